//! The ZooKeeper engine on real servers.

#[path = "../../../crates/conformance/cases/authorities.rs"]
mod authorities;
#[path = "engine/common.rs"]
mod common;
#[path = "engine/data.rs"]
mod data;
#[path = "engine/foreign.rs"]
mod foreign;
#[path = "engine/herd.rs"]
mod herd;
#[path = "engine/interop.rs"]
mod interop;
#[path = "engine/locks.rs"]
mod locks;
#[path = "engine/restart.rs"]
mod restart;
#[path = "engine/runtimes.rs"]
mod runtimes;
#[path = "engine/sessions.rs"]
mod sessions;
#[path = "engine/tls.rs"]
mod tls;
