//! Locks in a MySQL or MariaDB database: a fair queue in two tables, plain rows, open transactions or GET_LOCK.

mod advisory;
mod bell;
mod config;
mod fault;
mod held;
mod holders;
mod pool;
mod queue;
mod row;
mod schema;
mod styles;
mod text;
mod transaction;
mod wire;

pub use styles::{STYLES, connect, schema};
