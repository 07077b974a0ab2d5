//! What wakes waiters of the queue style: notifications on one channel per keeper, and one look for all of them beneath.

use crate::connection::Message;
use crate::queue::{CLEAN, LOOK, QueueConnection, SWEEP};
use lockkeeper_core::Result;
use lockkeeper_core::engine::{ClaimId, Clock, Connection, Connections, Lifeline};
use lockkeeper_sql_common::{Seen, Waiter, Waiters};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// How often rows of idle locks are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// Passes notifications to the waiters they are for, and reconnects when the connection is lost. `ID AHEAD` is all that a
/// notification contains, and all that a waiter needs to know that it holds; or `-ID` of a claim that has expired by the
/// server's clock, and is lost at that moment; or `?ID` of a claim that somebody asks for.
pub(crate) async fn listen(
    mut messages: UnboundedReceiver<Message>,
    connections: Arc<Connections<QueueConnection>>,
    waiters: Arc<Waiters>,
    claims: Lifeline,
) {
    while let Some(message) = messages.recv().await {
        match message {
            Message::Notification(note) => {
                if let Some(Ok(id)) = note.payload().strip_prefix('-').map(str::parse) {
                    claims.end_one(id);
                    continue;
                }
                if let Some(Ok(id)) = note.payload().strip_prefix('?').map(str::parse) {
                    claims.ask_one(id);
                    continue;
                }
                let parsed = note
                    .payload()
                    .split_once(' ')
                    .and_then(|(id, ahead)| Some((id.parse::<ClaimId>().ok()?, ahead.parse().ok()?)));
                if let Some((id, ahead)) = parsed {
                    waiters.notify(id, ahead);
                }
            }
            Message::Closed if waiters.is_closed() => return,
            Message::Closed => {
                reconnect(&connections, || waiters.is_closed()).await;
                // Notifications may have been lost.
                waiters.look_in(Duration::ZERO);
            }
        }
    }
}

/// Opens the background connection again, unless all is closed meanwhile.
pub(crate) async fn reconnect<C: Connection>(connections: &Connections<C>, is_closed: impl Fn() -> bool) {
    let mut pause = Duration::from_millis(10);
    while !is_closed()
        && let Err(error) = connections.background().await
    {
        tracing::debug!(%error, "wake connection lost; reconnecting");
        Clock::Boot.sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    if is_closed() {
        connections.close();
    }
}

/// Looks at the queues for the waiters: when a claim ahead of one may have expired, when the connection is new, and at a
/// slow pace in case a notification got lost.
pub(crate) async fn look_after(connections: Arc<Connections<QueueConnection>>, waiters: Arc<Waiters>) {
    while waiters.due().await {
        let waiting = waiters.waiting();
        if let Err(error) = look(&connections, &waiters, &waiting).await {
            tracing::debug!(%error, "could not look at the queues; trying again");
            waiters.look_in(Duration::from_millis(rand::random_range(20..100)));
        }
    }
}

async fn look(
    connections: &Connections<QueueConnection>,
    waiters: &Waiters,
    waiting: &[Arc<Waiter>],
) -> Result<()> {
    let names: BTreeSet<&str> = waiting.iter().map(|waiter| waiter.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let ids: Vec<String> = waiting.iter().map(|waiter| waiter.id.to_string()).collect();
    let connection = connections.background().await?;
    let rows = connection.connection.rows(LOOK, &[&names, &ids], "look at the queue").await?;
    let mut expired = BTreeSet::new();
    let mut seen = Vec::with_capacity(rows.len());
    for row in &rows {
        let free_in_ms: Option<i64> = row.get("free_in_ms");
        if free_in_ms.is_some_and(|time| time <= 0) {
            expired.insert(row.get::<_, &str>("name"));
        }
        seen.push(Seen {
            id: row.get::<_, &str>("id").parse().unwrap_or(ClaimId(0)),
            ahead: row.get::<_, i64>("ahead").max(0).unsigned_abs(),
            free_in: free_in_ms
                .filter(|time| *time > 0)
                .map(|time| Duration::from_millis(time.unsigned_abs())),
        });
    }
    waiters.looked(waiting, &seen);
    if !expired.is_empty() {
        // Sorted, so that two keepers that sweep the same locks do not wait for each other in a circle.
        let expired: Vec<&str> = expired.into_iter().collect();
        connection.connection.rows(SWEEP, &[&expired], "remove expired claims").await?;
    }
    Ok(())
}

/// Removes claims that expired long ago, now and then.
pub(crate) async fn clean(connections: Arc<Connections<QueueConnection>>, waiters: Arc<Waiters>) {
    loop {
        // At random, so that the keepers of a fleet do not all come at once.
        Clock::Boot.sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        if waiters.is_closed() {
            return;
        }
        if let Ok(connection) = connections.background().await
            && let Err(error) = connection.connection.rows(CLEAN, &[], "remove idle locks").await
        {
            tracing::debug!(%error, "could not remove idle locks");
        }
    }
}
