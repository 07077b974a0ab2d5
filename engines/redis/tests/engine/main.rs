//! The engine on real servers: everything that the conformance suite does not check on every engine.

mod common;
mod connections;
mod costs;
mod plain;
mod queue;
mod runtimes;
mod together;
mod topologies;
