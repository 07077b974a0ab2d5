//! Locks in a PostgreSQL database: a fair queue in two tables, plain rows, open transactions or advisory locks.

mod advisory;
mod config;
mod drive;
mod fault;
mod held;
mod link;
mod pool;
mod queue;
mod roll;
mod row;
mod session;
mod styles;
mod transaction;
mod wake;

pub use styles::{STYLES, connect, schema};
