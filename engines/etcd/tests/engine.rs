//! The tests of this engine beside the conformance suite, in one program.

#[path = "engine/access.rs"]
mod access;
#[path = "../../../crates/conformance/cases/authorities.rs"]
mod authorities;
#[path = "engine/common.rs"]
mod common;
#[path = "engine/connections.rs"]
mod connections;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/handover.rs"]
mod handover;
#[path = "engine/interop.rs"]
mod interop;
#[path = "engine/overload.rs"]
mod overload;
#[path = "../../../crates/conformance/cases/passwords.rs"]
mod passwords;
#[path = "engine/runtimes.rs"]
mod runtimes;
