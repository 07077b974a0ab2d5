//! Distributed locks for Rust services, with one API on the engine you already run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! let keeper = lockkeeper::connect("memory:").await?; // or file:/dir, redis://…, etcd://…
//! let guard = keeper.mutex("orders/42").lock().await?;
//! let token = guard.token()?; // send it with every access to what the lock protects
//! # let _ = token;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! [`connect()`] opens the engine that a URL names and returns a [`Keeper`], which makes locks by name: [`Mutex`],
//! [`RwLock`], [`Semaphore`], [`MultiLock`], [`Election`], [`Condition`]. Each of them returns a [`Guard`], whose
//! [`state`](Guard::state), [`lost`](Guard::lost) and [`token`](Guard::token) say whether you still hold. Code without
//! async uses [`blocking`].
//!
//! [`Keeper::inspect`] shows who holds and who waits, as [`views`].
//!
//! Each engine is a cargo feature; [`engines`] lists what this build has, [`register`] adds one of your own (see
//! `lockkeeper_core::engine`).

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
mod connect;
mod diagnosis;
mod engines;

pub use connect::{Connect, connect, default_url};
pub use engines::{engines, register};
pub use lockkeeper_core::{
    Condition, DEFAULT_TTL, Election, Error, Guard, Handle, Holder, Keeper, Leaders, LostReason, MIN_TTL,
    MultiLock, Mutex, Owner, Result, RwLock, Semaphore, State, Token, Wanted,
};

/// What can be seen of locks, claims and engines: what [`Keeper::inspect`] returns, and the processes in it that wait for each
/// other.
pub mod views {
    pub use crate::engines::EngineInfo;
    pub use lockkeeper_core::{
        Abilities, ClaimView, CrashFrees, Demand, LockView, Shape, Standing, Waits, deadlocks,
    };
}

/// The examples of the README and of the book, compiled and run with the documentation's.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../README.md")]
    struct PackagesReadme;

    #[doc = include_str!("../../../docs/book/first-lock.md")]
    struct FirstLock;

    #[doc = include_str!("../../../docs/book/concepts.md")]
    struct Concepts;

    #[doc = include_str!("../../../docs/recipes.md")]
    struct Recipes;
}
