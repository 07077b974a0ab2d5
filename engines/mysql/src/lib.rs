//! Locks in a MySQL or MariaDB database: a fair queue in two tables, plain rows, open transactions or GET_LOCK.

mod advisory;
mod batch;
mod config;
mod connection;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod queue;
mod row;
mod schema;
mod session;
mod view;
mod wake;

use crate::config::Settings;
use crate::error::ENGINE;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine, RaceEngine, background};
use lockkeeper_core::{Abilities, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// How often a keeper removes what nobody has used for a day.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// What each style can do.
pub const STYLES: &[Abilities] = &[QUEUE, ROW, SESSION, ADVISORY];

const QUEUE: Abilities =
    Abilities::new(ENGINE, "queue", "mysql://user@host/database").queue().push().detach().ask();
const ROW: Abilities = Abilities::new(ENGINE, "row", "mysql://user@host/database?style=row").detach().ask();
const SESSION: Abilities = Abilities::new(ENGINE, "session", "mysql://user@host/database?style=session")
    .push()
    .ask()
    .crash_frees_at_once();
const ADVISORY: Abilities = Abilities::new(ENGINE, "advisory", "mysql://user@host/database?style=advisory")
    .push()
    .ask()
    .evict_ends_others()
    .crash_frees_at_once();

/// The statements that create what a style needs; empty for a style that there is not.
pub fn schema(style: &str) -> &'static str {
    match style {
        "queue" => queue::SCHEMA,
        "row" => row::SCHEMA,
        "session" => session::SCHEMA,
        "advisory" => advisory::SCHEMA,
        _ => "",
    }
}

/// Connects to the server that the address names, and creates or migrates what the style needs.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`] for a bad parameter, [`Error::Engine`] when the server is not reachable, is read-only, is too old, has
/// tables of a newer release or does not allow what is needed.
pub async fn connect(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let styles: Vec<&'static str> = STYLES.iter().map(|style| style.style).collect();
    let style = address.take_style(&styles)?;
    let settings = Arc::new(Settings::from_address(address, ttl, style)?);
    let creating = schema::create(Arc::clone(&settings), style, schema(style));
    let created = background::handle().spawn(creating).await;
    let server = created.map_err(|error| Error::temporary(ENGINE, "connect", error))??;
    Ok(match style {
        "row" => Arc::new(RaceEngine(row::Rows::open(&settings))),
        "session" => Arc::new(RaceEngine(session::open_style::<0>(settings, &session::STYLE))),
        "advisory" if server.is_mariadb => Arc::new(RaceEngine(advisory::open_mariadb(settings))),
        "advisory" => {
            Arc::new(RaceEngine(session::open_style::<{ advisory::SHARED }>(settings, &advisory::STYLE)))
        }
        _ => Arc::new(QueueEngine(queue::TableQueue::open(settings))),
    })
}
