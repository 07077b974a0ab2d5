//! Locks in a MySQL or MariaDB database: a fair queue in two tables, plain rows, open transactions or GET_LOCK.

mod advisory;
mod alone;
mod answer;
mod bell;
mod collision;
mod config;
mod fault;
mod held;
mod holders;
mod keep;
mod lane;
mod line;
mod login;
mod near;
mod packets;
mod pool;
mod queue;
mod request;
mod row;
mod schema;
mod scribe;
mod session;
mod several;
mod styles;
mod text;
mod transaction;
mod user_lock;
mod wire;

pub use styles::{STYLES, connect, schema};
