//! The styles there are, and how each is opened.

use crate::config::Settings;
use crate::fault::{ENGINE, fault};
use crate::queue::{self, TableQueue};
use crate::row::{self, Rows};
use crate::session::Session;
use crate::{advisory, held, transaction};
use lockkeeper_core::address::Address;
use lockkeeper_core::{Abilities, CrashFrees, Engine, Error, MIN_TTL, QueueEngine, RaceEngine, Result};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const QUEUE: Abilities = Abilities {
    engine: ENGINE,
    style: "queue",
    url: "postgres://user@host/database",
    fair: true,
    shared: true,
    permits: true,
    downgrade: true,
    push: true,
    across_processes: true,
    across_machines: true,
    token_survives_restart: true,
    crash_frees: CrashFrees::WithinTtl,
    min_ttl: MIN_TTL,
};

pub(crate) const ROW: Abilities = Abilities {
    style: "row",
    url: "postgres://user@host/database?style=row",
    fair: false,
    shared: false,
    permits: false,
    downgrade: false,
    push: false,
    ..QUEUE
};

pub(crate) const SESSION: Abilities = Abilities {
    style: "session",
    url: "postgres://user@host/database?style=session",
    push: true,
    crash_frees: CrashFrees::AtOnce,
    ..ROW
};

pub(crate) const ADVISORY: Abilities =
    Abilities { style: "advisory", url: "postgres://user@host/database?style=advisory", ..SESSION };

/// What each style can do.
pub const STYLES: &[Abilities] = &[QUEUE, ROW, SESSION, ADVISORY];

/// How many connections a keeper opens at most, unless the URL says otherwise: to share the work of a queue,
/// to hold locks each in its own transaction, or to wait for advisory locks.
fn connections(style: &str) -> usize {
    match style {
        "session" => 32,
        "advisory" => 16,
        _ => 4,
    }
}

/// The statements that create what a style needs; empty for a style that there is not.
pub fn schema(style: &str) -> &'static str {
    match style {
        "queue" => queue::SCHEMA,
        "row" => row::SCHEMA,
        "session" => transaction::SCHEMA,
        "advisory" => advisory::SCHEMA,
        _ => "",
    }
}

/// Connects to the server that the address names, and creates what the style needs if it is not there.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`] for a bad parameter, [`Error::Engine`] when the server is not reachable, is a hot
/// standby or does not allow what is needed.
pub async fn connect(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let styles: Vec<&'static str> = STYLES.iter().map(|style| style.style).collect();
    let style = address.take_style(&styles)?;
    let settings = Arc::new(Settings::from_address(address, ttl, connections(style))?);
    // Kept open until the style has opened its own: a pooler in between shows when there are two.
    let _first = create(&settings, style).await?;
    Ok(match style {
        "row" => Arc::new(RaceEngine(Rows::open(settings).await?)),
        "session" => Arc::new(RaceEngine(held::open::<transaction::Transaction>(settings).await?)),
        "advisory" => Arc::new(RaceEngine(held::open::<advisory::Advisory>(settings).await?)),
        _ => Arc::new(QueueEngine(TableQueue::open(settings).await?)),
    })
}

const IS_THERE: &str = include_str!("sql/schema_is_there.sql");

/// Creates the style's tables and functions, unless all is there: then no right to create is needed.
async fn create(settings: &Arc<Settings>, style: &'static str) -> Result<Arc<Session>> {
    let session = Session::open(Arc::clone(settings), &[IS_THERE], None).await?;
    let newest = newest_object(style);
    if session.row(0, &[&newest], "look for the tables").await?.get(0) {
        return Ok(session);
    }
    let created = session.create(schema(style), settings.limits.connect).await;
    created.map(|()| session).map_err(|error| match error.as_db_error() {
        Some(told) if told.code() == &tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE => {
            Error::permanent(
                ENGINE,
                "create the tables",
                format!(
                    "{}; let somebody who may create them run what 'lockkeeper schema postgres' prints",
                    told.message()
                ),
            )
        }
        _ => fault("create the tables", error),
    })
}

/// What a style's statements create last: when it is there, all is.
fn newest_object(style: &str) -> &'static str {
    match style {
        "row" => "lockkeeper_rows",
        "session" => "lockkeeper_session_clean(interval)",
        "advisory" => "lockkeeper_advisory_wait(text)",
        _ => "lockkeeper_clean(interval)",
    }
}
