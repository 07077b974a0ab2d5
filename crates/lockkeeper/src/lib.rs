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
//! Everything but the engines comes from `lockkeeper-core` and is re-exported here. Each engine is a cargo
//! feature; [`engines`] lists what this build has.

pub mod blocking;
mod connect;
mod diagnosis;
mod engines;

pub use connect::{Connect, connect, default_url};
pub use engines::{EngineInfo, engines};
pub use lockkeeper_core::*;

/// The README's example, compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
