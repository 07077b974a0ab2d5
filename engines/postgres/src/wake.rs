//! What wakes waiters: notifications on one channel per keeper, and one look for all of them beneath.

use crate::link::Link;
use crate::queue::{CLEAN, LOOK, SWEEP};
use lockkeeper_core::{ClaimId, Result};
use lockkeeper_sql_common::{Seen, Waiter, Waiters};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Notification;

/// How often rows of idle locks are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// Hands messages to the waiters they are for. `ID AHEAD` is all a message says, and all the waiter needs to
/// know that it holds.
pub(crate) async fn hand_out(mut messages: UnboundedReceiver<Notification>, waiters: Arc<Waiters>) {
    while let Some(note) = messages.recv().await {
        let told = note
            .payload()
            .split_once(' ')
            .and_then(|(id, ahead)| Some((id.parse::<ClaimId>().ok()?, ahead.parse().ok()?)));
        if let Some((id, ahead)) = told {
            waiters.tell(id, ahead);
        }
    }
}

/// Looks after the waiters: when a claim ahead of one may have expired, when the line was new, and at a slow
/// pace in case a message got lost.
pub(crate) async fn look_after(link: Arc<crate::pool::Links>, waiters: Arc<Waiters>) {
    while waiters.due().await {
        let asked = waiters.waiting();
        if let Err(error) = look(link.house(), &waiters, &asked).await {
            tracing::debug!(%error, "could not look after the waiters; trying again");
            waiters.look_in(Duration::from_millis(rand::random_range(20..100)));
        }
    }
}

async fn look(link: &Link, waiters: &Waiters, asked: &[Arc<Waiter>]) -> Result<()> {
    let names: BTreeSet<&str> = asked.iter().map(|waiter| waiter.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let ids: Vec<String> = asked.iter().map(|waiter| waiter.id.to_string()).collect();
    let session = link.session().await?;
    let rows = session.rows(LOOK, &[&names, &ids], "look at the queue").await?;
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
    waiters.looked(asked, &seen);
    if !expired.is_empty() {
        // Sorted, so that two keepers that sweep the same locks do not wait for each other in a circle.
        let expired: Vec<&str> = expired.into_iter().collect();
        session.rows(SWEEP, &[&expired], "remove expired claims").await?;
    }
    Ok(())
}

/// Removes what nobody has used for long, now and then.
pub(crate) async fn clean(links: Arc<crate::pool::Links>, waiters: Arc<Waiters>) {
    while !waiters.is_closed() {
        // At random, so that the keepers of a fleet do not all come at once.
        tokio::time::sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        if let Some(session) = links.house().current()
            && let Err(error) = session.rows(CLEAN, &[], "remove idle locks").await
        {
            tracing::debug!(%error, "could not remove idle locks");
        }
    }
}
