//! RedLock on real servers: everything that the conformance suite does not check on every engine.

mod common;
mod faults;
mod histories;
mod interop;
mod restarts;
mod runtimes;
