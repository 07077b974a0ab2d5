//! The SQLite engine on real files: both styles, errors, tables and their versions, and disks that stall.

#[path = "engine/errors.rs"]
mod errors;
#[path = "engine/queue.rs"]
mod queue;
#[path = "engine/row.rs"]
mod row;
#[path = "engine/runtimes.rs"]
mod runtimes;
#[path = "engine/stall.rs"]
mod stall;
#[path = "engine/support.rs"]
mod support;
#[path = "engine/tables.rs"]
mod tables;
