//! What the engine promises beyond the suite, on real servers.

#[path = "../../../crates/conformance/cases/authorities.rs"]
mod authorities;
#[path = "../../../crates/conformance/cases/runtimes.rs"]
mod cases;
#[path = "../../../crates/conformance/cases/leaving.rs"]
mod leaving;
#[path = "../../../crates/conformance/cases/passwords.rs"]
mod passwords;

#[path = "engine/access.rs"]
mod access;
#[path = "engine/advisory.rs"]
mod advisory;
#[path = "engine/batches.rs"]
mod batches;
#[path = "engine/clocks.rs"]
mod clocks;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/limits.rs"]
mod limits;
#[path = "engine/permissions.rs"]
mod permissions;
#[path = "engine/promises.rs"]
mod promises;
#[path = "engine/restart.rs"]
mod restart;
#[path = "engine/rule.rs"]
mod rule;
#[path = "engine/runtimes.rs"]
mod runtimes;
#[path = "engine/schema.rs"]
mod schema;
#[path = "engine/tls.rs"]
mod tls;
