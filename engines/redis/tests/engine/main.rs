//! The engine on real servers: everything that the conformance suite does not check on every engine.

mod access;
#[path = "../../../../crates/conformance/cases/authorities.rs"]
mod authorities;
mod clocks;
mod common;
mod connections;
mod costs;
#[path = "../../../../crates/conformance/cases/passwords.rs"]
mod passwords;
mod plain;
mod queue;
mod redisson;
mod runtimes;
mod tls;
mod together;
mod topologies;
