//! Locks in a PostgreSQL database: a fair queue in a table, plain rows, open transactions or advisory locks.

mod advisory;
mod config;
mod connection;
mod error;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
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
use lockkeeper_core::{Abilities, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[QUEUE, ROW, SESSION, ADVISORY];

const QUEUE: Abilities =
    Abilities::new(ENGINE, "queue", "postgres://user@host/database").queue().push().detach().ask();
const ROW: Abilities =
    Abilities::new(ENGINE, "row", "postgres://user@host/database?style=row").detach().ask();
const SESSION: Abilities = Abilities::new(ENGINE, "session", "postgres://user@host/database?style=session")
    .push()
    .ask()
    .crash_frees_at_once();
const ADVISORY: Abilities =
    Abilities::new(ENGINE, "advisory", "postgres://user@host/database?style=advisory")
        .push()
        .ask()
        .crash_frees_at_once();

/// What those styles can do that work behind a transaction pooler (`pooler=transaction`).
pub const POOLED: &[Abilities] = &[POOLED_QUEUE, ROW];

const POOLED_QUEUE: Abilities =
    Abilities::new(ENGINE, "queue", "postgres://user@host/database?pooler=transaction")
        .queue()
        .detach()
        .ask();

/// How many connections a keeper opens at most to hold locks, or to wait for them, unless the URL says otherwise.
fn connections(style: &str) -> usize {
    if style == "advisory" { 16 } else { 32 }
}

/// Connects to the server that the address names, and creates or migrates what the style needs.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`] for a bad parameter,
/// [`Error::Engine`] when the server is not reachable, is a hot standby, does not allow what
/// is needed or has tables of a newer release.
pub async fn connect(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let styles: Vec<&'static str> = STYLES.iter().map(|style| style.style).collect();
    let style = address.take_style(&styles)?;
    let settings = Arc::new(Settings::from_address(address, ttl, connections(style))?);
    if settings.pooled && !POOLED.iter().any(|pooled| pooled.style == style) {
        return Err(Error::invalid(format!(
            "style={style} needs a session of its own, which a transaction pooler does not give: use style=queue or \
             style=row, or connect to PostgreSQL itself without pooler=transaction"
        )));
    }
    // Open until the style has opened its own: a transaction pooler shows when there are two.
    let _first = schema::create(&settings, style).await?;
    Ok(match style {
        "row" => Arc::new(RaceEngine(row::Rows::open(settings).await?)),
        "session" => Arc::new(RaceEngine(held::open::<session::Transaction>(settings).await?)),
        "advisory" => Arc::new(RaceEngine(held::open::<advisory::Advisory>(settings).await?)),
        _ => Arc::new(QueueEngine(queue::TableQueue::open(settings).await?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_pooler_a_style_lacks_its_messages_and_nothing_else() {
        for pooled in POOLED {
            let style = STYLES.iter().find(|style| style.style == pooled.style).expect("a style");
            let mut expected = *style;
            (expected.push, expected.url) = (false, pooled.url);
            assert_eq!(*pooled, expected);
        }
    }
}
