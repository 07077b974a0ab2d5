//! The row style: the claim that writes the row holds the lock; the row is readable with the `mysql` program.

use crate::ROW;
use crate::batch::{Joining, KeepTexts, Texts, UnderWay, Writer, ask, keep, microseconds};
use crate::config::Settings;
use crate::connection::{Work, first_row, rows, statement};
use crate::keys;
use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Connections, Grant, Kept, Left, LockName, Race, Renewal, background,
};
use lockkeeper_core::{Abilities, Holder, LockView, Result, Token};
use lockkeeper_sql_common::{ClaimRow, Poller, lock_views};
use mysql_async::Value;
use mysql_async::prelude::Queryable;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_row.sql");
const LOOK: &str = include_str!("sql/row_look.sql");
const HELD: &str = include_str!("sql/row_held.sql");
const KEEP: KeepTexts = KeepTexts {
    update: include_str!("sql/row_keep.sql"),
    alive: include_str!("sql/row_alive.sql"),
    asked: include_str!("sql/row_asked.sql"),
    ask: include_str!("sql/row_ask.sql"),
};
const LIST: &str = include_str!("sql/row_list.sql");
const CLEAN: &str = "CALL lockkeeper_row_clean(86400)";

static TEXTS: Texts = Texts {
    join: include_str!("sql/row_take.sql"),
    row: include_str!("sql/row_values.sql"),
    joined: include_str!("sql/row_taken.sql"),
    leave: "UPDATE lockkeeper_rows SET expires_at = '2000-01-01' WHERE name = ? AND id = ? AND expires_at > '2000-01-01'",
    leave_many: include_str!("sql/row_free_many.sql"),
    values,
};

/// What a row says: the note is the thread.
fn values(joining: &Joining) -> Vec<Value> {
    let Joining { claim, note, .. } = joining;
    vec![
        claim.name.as_str().into(),
        claim.id.to_string().into(),
        claim.holder.text.as_str().into(),
        claim.holder.host.as_str().into(),
        claim.holder.pid.into(),
        note.as_str().into(),
        microseconds(claim.ttl).into(),
    ]
}

/// Locks that are rows.
pub(crate) struct Rows {
    connections: Arc<Connections<Writer>>,
    under_way: UnderWay,
    poller: Arc<Poller>,
    limit: Duration,
}

impl Rows {
    pub(crate) fn open(settings: &Arc<Settings>) -> Self {
        let (connections, poller) = (Writer::connections(settings, &TEXTS), Arc::new(Poller::default()));
        background::handle().spawn(clean(Arc::downgrade(&connections)));
        background::handle().spawn(look_for_free(Arc::clone(&connections), Arc::clone(&poller)));
        Self { connections, under_way: UnderWay::default(), poller, limit: settings.limits.request }
    }

    async fn free(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        // On another connection a leave could overtake its attempt, which would then hold until it expires.
        self.under_way.settle(id, self.limit).await;
        self.connections.foreground().await?.leave(name, id).await
    }

    /// The claim's own token if it holds after all, and when the present hold expires.
    async fn look(&self, claim: &Claim) -> Result<(Option<u64>, Option<i64>)> {
        let params = (claim.id.to_string(), claim.name.as_str().as_bytes().to_vec());
        let pool = &self.connections.foreground().await?.pool;
        let row = pool.run("look who holds", first_row(LOOK, params)).await?;
        // No row: it was removed just now.
        Ok(row.unwrap_or((None, Some(0))))
    }

    fn end(&self) {
        self.poller.close();
        self.connections.close();
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.end();
    }
}

/// Looks for all waiters of this keeper which locks are free.
async fn look_for_free(connections: Arc<Connections<Writer>>, poller: Arc<Poller>) {
    while let Some(names) = poller.due().await {
        let look = HELD.replace("{names}", &keys::names(names.iter().map(LockName::as_str)));
        let held = async {
            let pool = &connections.background().await?.pool;
            pool.run("look which locks are free", rows::<Vec<u8>>(look)).await
        };
        match held.await {
            Ok(held) => {
                let held = held.iter().map(|name| LockName::from_engine(&String::from_utf8_lossy(name)));
                poller.looked(&names, &held.collect());
            }
            Err(error) => poller.failed(&names, &error),
        }
    }
}

async fn clean(connections: Weak<Connections<Writer>>) {
    loop {
        Clock::Boot.sleep(crate::CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        let Some(connections) = connections.upgrade() else { return };
        let cleaned = async { connections.background().await?.pool.run("clean", statement(CLEAN, ())).await };
        if let Err(error) = cleaned.await {
            tracing::debug!(%error, "could not remove old rows");
        }
    }
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
        let joining = self.under_way.begin(claim, thread(), self.limit).await?;
        let taken = self.connections.foreground().await?.join(joining).await?;
        if let Some(token) = taken {
            return Ok(Attempted::Granted(Grant { token: Token(token) }));
        }
        let (token, free_in_us) = Box::pin(self.look(claim)).await?;
        if let Some(token) = token {
            return Ok(Attempted::Granted(Grant { token: Token(token) }));
        }
        let free_in = free_in_us.map(|time| Duration::from_micros(time.max(0).unsigned_abs()));
        Ok(Attempted::Busy { free_in })
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        self.poller.turn(&claim.name).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        keep(&self.connections.background().await?.pool, &KEEP, renewals).await
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.free(&claim.name, claim.id).await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        type Row = (Vec<u8>, String, String, String, u32, i64, i64, i64);
        let prefix = prefix.as_bytes().to_vec();
        let work: Work<Vec<Row>> = Box::new(move |conn| {
            let params = (prefix.clone(), prefix.len(), prefix.clone(), at_most);
            Box::pin(async move { conn.exec(LIST, params).await })
        });
        let rows = self.connections.foreground().await?.pool.run("list locks", work).await?;
        Ok(lock_views(rows.into_iter().map(|(name, id, text, host, pid, token, age_us, left_us)| ClaimRow {
            name: String::from_utf8_lossy(&name).into_owned(),
            id,
            demand: "exclusive".into(),
            holder: Holder { text, host, pid }.encode(),
            token,
            age_ms: age_us / 1000,
            held_ms: None,
            left_ms: Some(left_us / 1000),
        })))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.free(name, id).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        ask(&self.connections.foreground().await?.pool, &KEEP, name, id).await
    }

    async fn close(&self) {
        self.end();
    }
}
