//! What the engine promises beyond the suite, on real servers.

mod access;
#[path = "../../../../crates/conformance/cases/authorities.rs"]
mod authorities;
mod faults;
#[path = "../../../../crates/conformance/cases/passwords.rs"]
mod passwords;
mod permissions;
mod promises;
mod restart;
mod rule;
mod runtimes;
mod schema;
mod tls;
mod together;
