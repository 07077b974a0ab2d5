//! Locks in a PostgreSQL database: a fair queue in two tables, plain rows, open transactions or advisory locks.

mod config;
mod fault;
mod link;
mod pool;
mod queue;
mod session;
mod styles;
mod wake;

pub use styles::{STYLES, connect, schema};
