//! The primitives of what many tasks use at once. `interleavings/` builds this crate with those of shuttle, which tries the orders
//! in which tasks can meet; tokio's channels and `Notify` stay, each of their calls being one step.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use tokio::runtime::{Handle, Id};
#[cfg(not(shuttle))]
pub(crate) use tokio::task::{AbortHandle, yield_now};

#[cfg(shuttle)]
pub(crate) use crate::interleavings::{Handle, Id};
#[cfg(shuttle)]
pub(crate) use shuttle::future::{AbortHandle, yield_now};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
