//! Locks between processes of one machine, without a server: claims are files that their owners keep locked.
//!
//! Read the files in this order: `claim_file` (what a claim looks like), `shard` (a directory of claims), `gate`
//! (the right to join), `look` (what is ahead), `own_claim` (a claim of this engine), `join`, `queue` (the verbs), `wake`.

mod claim_file;
mod config;
mod counter;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod join;
mod listing;
mod look;
mod network;
mod own_claim;
mod queue;
mod shard;
mod view;
mod wake;

pub use config::default_directory;

use config::Config;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine};
use lockkeeper_core::{Abilities, Result};
use queue::FileQueue;
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] =
    &[if cfg!(target_os = "linux") { QUEUE.push().detach().ask() } else { QUEUE.ask() }];

const QUEUE: Abilities =
    Abilities::new("file", "queue", "file:/dir").queue().one_machine().crash_frees_at_once();

/// Opens the directory that the address names, and makes it if it is not there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{DEFAULT_TTL, Keeper, engine::Address};
/// # let temporary = tempfile::tempdir().unwrap();
/// # let directory = temporary.path().join("locks");
/// let address = Address::parse(&format!("file:{}", directory.display()))?;
/// let engine = lockkeeper_file::connect(address, DEFAULT_TTL).await?;
/// let keeper = Keeper::builder().build(engine)?;
/// let guard = keeper.mutex("orders/42").lock().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// Cancel safety: dropping the future has no effect but that the directory may have been made.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad parameter, a network file system, or a default
/// directory that somebody else owns or may write to;
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when the directory cannot be made or opened.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    // The TTL comes with each claim.
    let _ = ttl;
    let config = Config::take(address)?;
    config.prepare()?;
    Ok(Arc::new(QueueEngine(FileQueue::new(config)?)))
}

#[cfg(test)]
mod tests;
