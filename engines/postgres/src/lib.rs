//! Locks in a PostgreSQL database: a fair queue in a table, plain rows, open transactions or advisory locks.

mod advisory;
mod config;
mod connection;
mod error;
mod held;
mod queue;
mod row;
mod schema;
mod session;
mod view;
mod wake;

pub use schema::schema;

use crate::config::Settings;
use crate::error::ENGINE;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Engine, QueueEngine, RaceEngine};
use lockkeeper_core::{Abilities, CrashFrees, MIN_TTL, Result};
use std::sync::Arc;
use std::time::Duration;

const QUEUE: Abilities = Abilities {
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

const ROW: Abilities = Abilities {
    style: "row",
    url: "postgres://user@host/database?style=row",
    fair: false,
    shared: false,
    permits: false,
    downgrade: false,
    push: false,
    ..QUEUE
};

const SESSION: Abilities = Abilities {
    style: "session",
    url: "postgres://user@host/database?style=session",
    push: true,
    crash_frees: CrashFrees::AtOnce,
    ..ROW
};

const ADVISORY: Abilities =
    Abilities { style: "advisory", url: "postgres://user@host/database?style=advisory", ..SESSION };

/// What each style can do.
pub const STYLES: &[Abilities] = &[QUEUE, ROW, SESSION, ADVISORY];

/// How many connections a keeper opens at most to hold locks, or to wait for them, unless the URL says otherwise.
fn connections(style: &str) -> usize {
    if style == "advisory" { 16 } else { 32 }
}

/// Connects to the server that the address names, and creates or migrates what the style needs.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad parameter,
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when the server is not reachable, is a hot standby, does not allow what
/// is needed or has tables of a newer release.
pub async fn connect(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let styles: Vec<&'static str> = STYLES.iter().map(|style| style.style).collect();
    let style = address.take_style(&styles)?;
    let settings = Arc::new(Settings::from_address(address, ttl, connections(style))?);
    // Open until the style has opened its own: a transaction pooler shows when there are two.
    let _first = schema::create(&settings, style).await?;
    Ok(match style {
        "row" => Arc::new(RaceEngine(row::Rows::open(settings).await?)),
        "session" => Arc::new(RaceEngine(held::open::<session::Transaction>(settings).await?)),
        "advisory" => Arc::new(RaceEngine(held::open::<advisory::Advisory>(settings).await?)),
        _ => Arc::new(QueueEngine(queue::TableQueue::open(settings).await?)),
    })
}
