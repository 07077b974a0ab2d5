//! The row style: the claim that inserts the row holds the lock; psql shows it.

mod batch;

use self::batch::{Frees, Leaving, Outcome, Takes, Taking};
use crate::ROW;
use crate::config::Settings;
use crate::connection::Connection;
use crate::queue::batch::{Batched, Unanswered, runtime_ended};
use crate::queue::{kept, milliseconds, open_table};
use futures_util::future::try_join_all;
use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Connections, Grant, Kept, Left, LockName, Race, Renewal, background,
};
use lockkeeper_core::{Abilities, Holder, LockView, Result, Token};
use lockkeeper_sql_common::{ClaimRow, Poller, lock_views};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;

pub(crate) const STATEMENTS: &[&str] = &[
    include_str!("sql/row_take.sql"),
    "DELETE FROM lockkeeper_rows WHERE name = $1::text AND id = $2::text RETURNING name",
    include_str!("sql/row_keep.sql"),
    include_str!("sql/row_list.sql"),
    include_str!("sql/row_clean.sql"),
    include_str!("sql/row_look.sql"),
    include_str!("sql/row_held.sql"),
    include_str!("sql/row_take_many.sql"),
    include_str!("sql/row_free_many.sql"),
    "UPDATE lockkeeper_rows SET asked = $2::text \
     WHERE name = $1::text AND id = $2 AND expires_at > clock_timestamp() RETURNING id",
];
const TAKE: usize = 0;
const FREE: usize = 1;
const KEEP: usize = 2;
const LIST: usize = 3;
const CLEAN: usize = 4;
const LOOK: usize = 5;
const HELD: usize = 6;
const TAKE_MANY: usize = 7;
const FREE_MANY: usize = 8;
const ASK: usize = 9;

/// How often rows that expired long ago are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// How many are renewed by one statement: the server compares each with half of the others.
const KEEP_AT_MOST: usize = 500;

/// The connection of a runtime.
type RowConnection = Batched<Takes, Frees>;

/// Locks that are rows.
pub(crate) struct Rows {
    connections: Arc<Connections<RowConnection>>,
    unanswered: Unanswered<RowConnection>,
    poller: Arc<Poller>,
}

impl Rows {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let connections = Arc::new(Connections::new(move || open(Arc::clone(&settings))));
        connections.background().await?;
        background::handle().spawn(clean(Arc::downgrade(&connections)));
        let poller = Arc::new(Poller::default());
        background::handle().spawn(poll_for_free(Arc::clone(&connections), Arc::clone(&poller)));
        Ok(Self { connections, unanswered: Unanswered::default(), poller })
    }

    async fn free(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let leaving = Leaving { name: name.clone(), id };
        if let Some(connection) = self.unanswered.remove(id)
            && let Ok(freed) = Frees::one(&connection.connection, &leaving).await
        {
            return Ok(freed);
        }
        // Also if that connection does not reply: then its attempt is over, or follows the leave that it was just sent.
        let connection = self.connections.foreground().await?;
        connection.leaves.request(leaving).await.unwrap_or_else(|| Err(runtime_ended("free the lock")))
    }

    fn close(&self) {
        self.poller.close();
        self.connections.close();
    }
}

async fn open(settings: Arc<Settings>) -> Result<RowConnection> {
    let connection = open_table(&settings, STATEMENTS, None).await?;
    let (takes, frees) = (Takes(Arc::clone(&connection)), Frees(Arc::clone(&connection)));
    Ok(Batched::new(connection, takes, frees))
}

async fn look(connection: &Connection, claim: &Claim) -> Result<Seen> {
    let (name, id) = (claim.name.as_str(), claim.id.to_string());
    let seen = connection.rows(LOOK, &[&name, &id], "look at the lock").await?;
    // No row: it was freed just now.
    let Some(row) = seen.first() else { return Ok(Seen { own: None, free_in: Duration::ZERO }) };
    let free_in = Duration::from_millis(row.get::<_, i64>("free_in_ms").max(0).unsigned_abs());
    Ok(Seen { own: row.get("token"), free_in })
}

/// What a claim sees that did not get the lock: its own hold, after all, or how long the present one can last.
struct Seen {
    own: Option<i64>,
    free_in: Duration,
}

fn granted(token: i64) -> Attempted {
    Attempted::Granted(Grant { token: Token(token.max(1).unsigned_abs()) })
}

/// Looks for all who wait in this keeper which locks are free.
async fn poll_for_free(connections: Arc<Connections<RowConnection>>, poller: Arc<Poller>) {
    while let Some(names) = poller.due().await {
        match held(&connections, &names).await {
            Ok(held) => poller.looked(&names, &held),
            Err(error) => poller.failed(&names, &error),
        }
    }
}

async fn held(connections: &Connections<RowConnection>, names: &[LockName]) -> Result<HashSet<LockName>> {
    let names: Vec<&str> = names.iter().map(LockName::as_str).collect();
    let connection = connections.background().await?;
    let rows = connection.connection.rows(HELD, &[&names], "look which locks are free").await?;
    Ok(rows.iter().map(|row| LockName::from_engine(row.get::<_, &str>(0))).collect())
}

async fn clean(connections: std::sync::Weak<Connections<RowConnection>>) {
    loop {
        Clock::Boot.sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        let Some(connections) = connections.upgrade() else { return };
        if let Ok(connection) = connections.background().await {
            let _ = connection.connection.rows(CLEAN, &[], "remove old rows").await;
        }
    }
}

/// Renews some, and says which of them are dead.
async fn keep(connection: &Connection, renewals: &[Renewal]) -> Result<Kept> {
    let names: Vec<&str> = renewals.iter().map(|renewal| renewal.claim.name.as_str()).collect();
    let ids: Vec<String> = renewals.iter().map(|renewal| renewal.claim.id.to_string()).collect();
    let ttls: Vec<i64> = renewals.iter().map(|renewal| milliseconds(renewal.ttl)).collect();
    let rows = connection.rows(KEEP, &[&names, &ids, &ttls], "renew").await?;
    Ok(kept(renewals, &rows))
}

fn thread() -> String {
    let thread = std::thread::current();
    thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned)
}

impl Race for Rows {
    fn abilities(&self) -> Abilities {
        ROW
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let batched = self.connections.foreground().await?;
        self.unanswered.insert(claim.id, &batched);
        let taking = Taking { claim: claim.clone(), thread: thread() };
        let reply = batched.joins.request(taking).await;
        let mut outcome = reply.unwrap_or_else(|| Err(runtime_ended("take the lock")))?;
        let seen = loop {
            if let Outcome::Taken(token) = outcome {
                self.unanswered.remove(claim.id);
                return Ok(granted(token));
            }
            let seen = look(&batched.connection, claim).await?;
            if matches!(outcome, Outcome::Held) || !seen.free_in.is_zero() {
                break seen;
            }
            // It has expired, or is being taken: only a statement for one lock takes that over, or waits for that.
            let taking = Taking { claim: claim.clone(), thread: thread() };
            outcome = Takes::one(&batched.connection, &taking).await?;
        };
        self.unanswered.remove(claim.id);
        // Without a hold of its own nothing of it is left, so nobody will leave for it.
        Ok(seen.own.map_or(Attempted::Busy { free_in: Some(seen.free_in) }, granted))
    }

    async fn changed(&self, claim: &Claim, free_in: Option<Duration>) -> Result<()> {
        // A lock that was freed just now is tried again at once.
        if free_in == Some(Duration::ZERO) {
            return Ok(());
        }
        self.poller.turn(&claim.name).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let connection = self.connections.background().await?;
        let all = renewals.chunks(KEEP_AT_MOST).map(|some| keep(&connection.connection, some));
        let mut kept = Kept::default();
        for some in try_join_all(all).await? {
            kept.dead.extend(some.dead);
            kept.asked.extend(some.asked);
        }
        Ok(kept)
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.free(&claim.name, claim.id).await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let connection = self.connections.foreground().await?;
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let rows = connection.connection.rows(LIST, &[&prefix, &at_most], "list locks").await?;
        Ok(lock_views(rows.iter().map(claim_row)))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.free(name, id).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let connection = self.connections.foreground().await?;
        let (name, id) = (name.as_str(), id.to_string());
        let rows = connection.connection.rows(ASK, &[&name, &id], "ask a holder to release").await?;
        Ok(!rows.is_empty())
    }

    async fn close(&self) {
        self.close();
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.close();
    }
}

fn claim_row(row: &Row) -> ClaimRow {
    let pid = u32::try_from(row.get::<_, i64>("process")).unwrap_or(0);
    let holder = Holder { text: row.get("who"), host: row.get("host"), pid };
    ClaimRow {
        name: row.get("name"),
        id: row.get("id"),
        demand: "exclusive".into(),
        holder: holder.encode(),
        token: row.get("token"),
        age_ms: row.get("age_ms"),
        held_ms: None,
        left_ms: row.get("left_ms"),
    }
}
