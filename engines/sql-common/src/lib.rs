//! What lockkeeper's database engines share: the book of waiters, the listing of claims, time limits.

mod limits;
mod listing;
mod waiters;

pub use limits::Limits;
pub use listing::{ClaimRow, lock_views};
pub use waiters::{Seen, Waiter, Waiters};
