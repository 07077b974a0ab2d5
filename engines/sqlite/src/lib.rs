//! Locks in a SQLite file, between processes of one machine: a queue of rows, or a row per lock.
#![doc = include_str!("../README.md")]

mod batch;
mod claims;
mod config;
mod connection;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod queue;
mod row;
mod schema;
mod time;
mod tokens;
mod view;
mod wake;

use config::Config;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine, RaceEngine};
use lockkeeper_core::{Abilities, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[QUEUE, ROW];

const QUEUE: Abilities =
    Abilities::new("sqlite", "queue", "sqlite:/path/to/locks.db").queue().push().detach().ask().one_machine();
const ROW: Abilities =
    Abilities::new("sqlite", "row", "sqlite:/path/to/locks.db?style=row").detach().ask().one_machine();

/// The statements that make a style's tables, as [`connect`] runs them; empty for an unknown style.
///
/// ```
/// assert!(lockkeeper_sqlite::schema("queue").contains("lockkeeper_claims"));
/// assert!(lockkeeper_sqlite::schema("plain").is_empty());
/// ```
pub fn schema(style: &str) -> &'static str {
    match style {
        "queue" => queue::SCHEMA.create,
        "row" => row::SCHEMA.create,
        _ => "",
    }
}

/// Opens the database file that the address names, and makes the style's tables or brings them to the present version.
///
/// Cancel safety: when dropped, the file is closed again in the background; the tables may have been made.
///
/// # Errors
/// [`Error::Invalid`] for a bad address, [`Error::Engine`] when the file cannot be used, saying why.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let config = Config::from(address)?;
    // Opening reads, writes and may wait for others.
    let opened = tokio::task::spawn_blocking(move || -> Result<Arc<dyn Engine>> {
        match config.style {
            "row" => Ok(Arc::new(RaceEngine(row::SqliteRows::open(&config, ttl)?))),
            _ => Ok(Arc::new(QueueEngine(queue::SqliteQueue::open(&config, ttl)?))),
        }
    });
    opened.await.map_err(|error| Error::permanent("sqlite", "open the database", error))?
}
