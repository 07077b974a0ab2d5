//! What the engine promises beyond the suite, on real servers.

mod faults;
mod permissions;
mod promises;
mod restart;
mod rule;
mod runtimes;
mod schema;
mod tls;
mod together;
