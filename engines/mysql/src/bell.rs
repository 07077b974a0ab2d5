//! The bell of a keeper: a connection that sleeps in the server until somebody kills its query.
//!
//! MySQL has no messages between its clients. But a sleeping query costs nothing, and whoever makes room for a claim
//! can end the sleep of that claim's keeper at once.

use crate::config::Settings;
use crate::wire::Wire;
use lockkeeper_core::{ClaimId, Result, house};
use lockkeeper_sql_common::Waiters;
use mysql_async::prelude::Queryable;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const TAKE: &str = include_str!("sql/bell_take.sql");
const SLEEP: &str = include_str!("sql/bell_sleep.sql");
/// Longer than the sleep.
const LIMIT: Duration = Duration::from_secs(25);

/// A name for a new bell.
pub(crate) fn name() -> String {
    format!("lockkeeper_bell_{}", ClaimId::random())
}

/// Keeps the bell hanging and looks after the waiters when it rings, until the book of waiters is closed.
pub(crate) async fn hang(settings: Arc<Settings>, name: String, waiters: Arc<Waiters>, rung: Arc<Notify>) {
    while !waiters.is_closed() {
        if let Err(error) = listen(&settings, &name, &waiters, &rung).await {
            tracing::debug!(%error, "the bell fell down; hanging it again");
            tokio::time::sleep(Duration::from_millis(rand::random_range(50..300))).await;
        }
    }
}

/// Opens the connection and sleeps on it, again and again.
async fn listen(settings: &Settings, name: &str, waiters: &Waiters, rung: &Notify) -> Result<()> {
    let wire = Wire::open(settings, house::handle()).await?;
    let taken = name.to_owned();
    let got: Option<u8> = wire
        .run_within(
            "hang the bell",
            Duration::from_secs(6),
            Box::new(move |conn| {
                let taken = taken.clone();
                Box::pin(
                    async move { Ok(conn.exec_first::<Option<u8>, _, _>(TAKE, (taken,)).await?.flatten()) },
                )
            }),
        )
        .await?;
    if got != Some(1) {
        return Err(crate::fault::cut("hang the bell"));
    }
    // Somebody may have rung while it was not there.
    waiters.look_in(Duration::ZERO);
    while !waiters.is_closed() {
        let woken =
            wire.run_within("listen for the bell", LIMIT, Box::new(|conn| Box::pin(sleep(conn)))).await?;
        if woken {
            rung.notify_one();
        }
    }
    Ok(())
}

/// Whether the sleep was ended from outside.
async fn sleep(conn: &mut mysql_async::Conn) -> mysql_async::Result<bool> {
    const INTERRUPTED: u16 = 1317;
    match conn.query_first::<u8, _>(SLEEP).await {
        Ok(slept) => Ok(slept != Some(0)),
        Err(mysql_async::Error::Server(told)) if told.code == INTERRUPTED => Ok(true),
        Err(error) => Err(error),
    }
}
