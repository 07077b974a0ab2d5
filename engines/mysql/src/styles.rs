//! The styles there are, and how each is opened.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::queue::{self, TableQueue};
use crate::row::{self, Rows};
use crate::schema::create;
use crate::{advisory, held, transaction, user_lock};
use lockkeeper_core::address::Address;
use lockkeeper_core::{Abilities, CrashFrees, Engine, MIN_TTL, QueueEngine, RaceEngine, Result};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const QUEUE: Abilities = Abilities {
    engine: ENGINE,
    style: "queue",
    url: "mysql://user@host/database",
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
    url: "mysql://user@host/database?style=row",
    fair: false,
    shared: false,
    permits: false,
    downgrade: false,
    push: false,
    ..QUEUE
};

pub(crate) const SESSION: Abilities = Abilities {
    style: "session",
    url: "mysql://user@host/database?style=session",
    push: true,
    crash_frees: CrashFrees::AtOnce,
    ..ROW
};

pub(crate) const ADVISORY: Abilities =
    Abilities { style: "advisory", url: "mysql://user@host/database?style=advisory", ..SESSION };

/// What each style can do.
pub const STYLES: &[Abilities] = &[QUEUE, ROW, SESSION, ADVISORY];

/// How many connections a keeper opens at most, unless the URL says otherwise: to share the work of a queue,
/// to hold locks each in its own transaction, or to wait for user locks.
fn connections(style: &str) -> usize {
    match style {
        "session" => 32,
        "advisory" => 16,
        _ => 8,
    }
}

/// How many connections hold advisory locks: each does one request after the other.
const SHARED: usize = 4;

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

/// What a style's statements create last: when it is there, all is.
fn newest_procedure(style: &str) -> &'static str {
    match style {
        "row" => "lockkeeper_row_clean",
        "session" => "lockkeeper_session_clean",
        "advisory" => "lockkeeper_advisory_clean",
        _ => "lockkeeper_clean",
    }
}

/// Connects to the server that the address names, and creates what the style needs if it is not there.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad parameter,
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when the server is not reachable, is read-only or does not
/// allow what is needed.
pub async fn connect(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let styles: Vec<&'static str> = STYLES.iter().map(|style| style.style).collect();
    let style = address.take_style(&styles)?;
    let settings = Arc::new(Settings::from_address(address, ttl, connections(style))?);
    let server = create(&settings, schema(style), newest_procedure(style)).await?;
    Ok(match style {
        "row" => Arc::new(RaceEngine(Rows::open(settings))),
        "session" => Arc::new(RaceEngine(held::open::<0>(settings, &transaction::STYLE))),
        "advisory" if server.mariadb => Arc::new(RaceEngine(user_lock::open(settings))),
        "advisory" => Arc::new(RaceEngine(held::open::<SHARED>(settings, &advisory::STYLE))),
        _ => Arc::new(QueueEngine(TableQueue::open(settings).await?)),
    })
}
