//! What lockkeeper's database engines share: claims that wait, the listing of claims, time limits.

/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod holds;
mod limits;
mod listing;
mod pace;
mod poller;
mod schema;
mod sessions;
mod waiters;

pub use holds::{Hold, Holds};
pub use limits::Limits;
pub use listing::{ClaimRow, foreign_lock, lock_views};
pub use poller::Poller;
pub use schema::{Schema, may_not_create};
pub use sessions::{Connection, Connections, Sessions};
pub use waiters::{Seen, Waiter, Waiters};
