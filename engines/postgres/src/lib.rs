//! Locks in a PostgreSQL database: a fair queue in two tables, plain rows, open transactions or advisory locks.

mod advisory;
mod backing;
mod config;
mod drive;
mod fault;
mod held;
mod key;
mod link;
mod messages;
mod pool;
mod queue;
mod roll;
mod row;
mod session;
mod styles;
mod transaction;
mod wake;
mod wired;

pub use styles::{STYLES, connect, schema};
