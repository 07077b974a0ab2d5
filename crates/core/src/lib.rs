//! The heart of lockkeeper: claims, the rule that grants them, the two mechanisms, the keeper and its guards.
//!
//! A lock is a queue of claims, and a claim holds when what stands ahead of it leaves room. Read the files
//! in this order: `claim`, `grant`, `queue`, `race`, `engine`, `life`, `keeper`, `acquire`, `renewal`, `departure`,
//! `guard`, then the faces (`mutex`, `rwlock`, `semaphore`, `multi`, `owner`, `election`, `condition`).
//!
//! Applications use the `lockkeeper` crate, which re-exports what they need of this one and adds the engines. Authors of an
//! engine implement [`engine::Queue`] (fair, first come first served) or [`engine::Race`] (unfair) and nothing
//! else; everything a user sees is built on those few verbs, once, here.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(unix))]
compile_error!("lockkeeper runs on Linux and other Unix systems only; see docs/platforms.md");

mod acquire;
mod address;
mod attach;
#[doc(hidden)]
pub mod background;
mod batch;
mod claim;
mod clock;
mod condition;
mod connections;
mod deadlock;
mod departure;
mod election;
pub mod engine;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod grant;
mod guard;
mod handle;
#[cfg(shuttle)]
mod interleavings;
mod keeper;
mod life;
mod memory;
mod multi;
mod mutex;
mod name;
mod owner;
mod password;
mod queue;
mod race;
mod renewal;
mod rwlock;
mod semaphore;
mod sync;
mod telemetry;
mod views;
mod worker;

pub use claim::{Demand, Holder, Shape, Token};
pub use condition::Condition;
pub use deadlock::{Waits, deadlocks};
pub use election::{Election, Leaders};
pub use engine::{Abilities, CrashFrees};
pub use error::{Error, LostReason, Result};
pub use guard::{Guard, State};
pub use handle::Handle;
pub use keeper::{DEFAULT_OUTAGE_LIMIT, DEFAULT_TTL, Keeper, MIN_TTL};
pub use multi::{MultiLock, Wanted};
pub use mutex::Mutex;
pub use owner::Owner;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use views::{ClaimView, LockView, Standing};
