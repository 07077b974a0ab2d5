//! The queue style: the seam's verbs, one statement each.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::pool::Links;
use crate::session::Session;
use crate::styles::QUEUE;
use crate::wake;
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, Clock, Demand, Error, Joined, Kept, Left, LockName, LockView, Place,
    Queue, Renewal, Result, Shape, Token, background, grant,
};
use lockkeeper_sql_common::{ClaimRow, Waiters, lock_views};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(crate) const SCHEMA: &str =
    concat!(include_str!("sql/schema_tokens.sql"), "\n", include_str!("sql/schema_queue.sql"));

const STATEMENTS: &[&str] = &[
    include_str!("sql/queue_join.sql"),
    include_str!("sql/queue_leave.sql"),
    include_str!("sql/queue_keep.sql"),
    include_str!("sql/queue_look.sql"),
    include_str!("sql/queue_sweep.sql"),
    include_str!("sql/queue_shrink.sql"),
    include_str!("sql/queue_list.sql"),
    include_str!("sql/queue_clean.sql"),
];
const RAISE: &str = include_str!("sql/raise_tokens.sql");
const JOIN: usize = 0;
const LEAVE: usize = 1;
const KEEP: usize = 2;
pub(crate) const LOOK: usize = 3;
pub(crate) const SWEEP: usize = 4;
const SHRINK: usize = 5;
const LIST: usize = 6;
pub(crate) const CLEAN: usize = 7;

/// A fair queue in two tables.
pub(crate) struct TableQueue {
    links: Arc<Links>,
    waiters: Arc<Waiters>,
    channel: String,
}

impl TableQueue {
    /// Connects, and starts what wakes waiters.
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let (sender, messages) = tokio::sync::mpsc::unbounded_channel();
        let channel = format!("lockkeeper_{}", ClaimId::random());
        let waiters = Arc::new(Waiters::new(settings.limits.look));
        let listen = format!("LISTEN {channel}");
        let links = Arc::new(Links::new(&settings, STATEMENTS, RAISE, &listen, Some(sender)));
        links.house().session().await?;
        background::handle().spawn(wake::hand_out(messages, Arc::clone(&waiters)));
        background::handle().spawn(wake::look_after(Arc::clone(&links), Arc::clone(&waiters)));
        background::handle().spawn(wake::clean(Arc::clone(&links), Arc::clone(&waiters)));
        Ok(Self { links, waiters, channel })
    }

    /// The connection that carries this claim: on one connection a leave cannot overtake its join.
    async fn session_of(&self, id: ClaimId) -> Result<Arc<Session>> {
        match self.waiters.find(id) {
            Some(waiter) => self.links.at(waiter.link.load(SeqCst)).session().await,
            None => self.links.house().session().await,
        }
    }

    /// The claim's place, or 0 if it is not known: another process's claim, or one whose join was not answered.
    fn place_of(&self, id: ClaimId) -> i64 {
        self.waiters.find(id).map_or(0, |waiter| number(waiter.place.load(SeqCst)))
    }

    async fn remove(&self, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        let session = self.session_of(id).await?;
        let params: [&(dyn ToSql + Sync); 3] = [&name.as_str(), &self.place_of(id), &id.to_string()];
        let row = session.row(LEAVE, &params, doing).await?;
        self.waiters.forget(id);
        Ok(row.get(0))
    }

    fn joined(&self, claim: &Claim, row: &Row) -> Result<Joined> {
        if let Some(ruling) = row.get::<_, Option<&str>>("o_ruling") {
            let ruling: Demand = ruling
                .parse()
                .map_err(|error: String| Error::permanent(ENGINE, "read the oldest claim", error))?;
            claim.check_shape(ruling.shape())?;
        }
        let place = row.get::<_, i64>("o_place").max(0).unsigned_abs();
        let ahead = row.get::<_, i64>("o_ahead").max(0).unsigned_abs();
        Ok(Joined { place: Place(place), token: Token(place), ahead: Ahead(ahead), lifeline: None })
    }
}

/// The number of permits, or 0 for a mutex or read-write lock: what everybody must agree on.
fn permits(demand: Demand) -> i64 {
    match demand.shape() {
        Shape::Permits { of } => of.into(),
        Shape::ReadWrite => 0,
    }
}

fn number(weight: u64) -> i64 {
    i64::try_from(weight).unwrap_or(i64::MAX)
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Queue for TableQueue {
    fn abilities(&self) -> Abilities {
        QUEUE
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let waiter = self.waiters.enter(claim, || self.links.choose());
        let link = self.links.at(waiter.link.load(SeqCst));
        let session = link.session().await?;
        let _under_way = link.under_way();
        let demand = claim.demand;
        let row = session
            .row(
                JOIN,
                &[
                    &claim.name.as_str(),
                    &claim.id.to_string(),
                    &demand.to_string(),
                    &number(demand.weight()),
                    &number(demand.limit()),
                    &permits(demand),
                    &claim.holder.encode(),
                    &self.channel,
                    &milliseconds(claim.ttl),
                ],
                "join the queue",
            )
            .await?;
        let joined = self.joined(claim, &row).inspect_err(|_| self.waiters.forget(claim.id))?;
        waiter.place.store(joined.place.0, SeqCst);
        if !grant::fits(joined.ahead.0, demand.weight(), demand.limit()) {
            let free_in: Option<i64> = row.get("o_free_in_ms");
            let free_in = free_in.map(|time| Duration::from_millis(time.max(0).unsigned_abs()));
            self.waiters.waits(&waiter, free_in);
        }
        Ok(joined)
    }

    async fn changed(&self, claim: &Claim, _: Place, seen: Ahead) -> Result<Ahead> {
        self.waiters.changed(claim, seen).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let names: Vec<&str> = renewals.iter().map(|renewal| renewal.claim.name.as_str()).collect();
        let places: Vec<i64> = renewals.iter().map(|renewal| self.place_of(renewal.claim.id)).collect();
        let ids: Vec<String> = renewals.iter().map(|renewal| renewal.claim.id.to_string()).collect();
        let ttls: Vec<i64> = renewals.iter().map(|renewal| milliseconds(renewal.ttl)).collect();
        let session = self.links.house().session().await?;
        let rows = session.rows(KEEP, &[&names, &places, &ids, &ttls], "renew").await?;
        let kept: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let dead = renewals.iter().zip(&ids).filter(|(_, id)| !kept.contains(id.as_str()));
        Ok(Kept { dead: dead.map(|(renewal, _)| renewal.claim.id).collect(), as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.remove(&claim.name, claim.id, "leave the queue").await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let session = self.session_of(claim.id).await?;
        let (id, weight) = (claim.id.to_string(), number(to.weight()));
        let params: [&(dyn ToSql + Sync); 5] =
            [&claim.name.as_str(), &self.place_of(claim.id), &id, &to.to_string(), &weight];
        let row = session.row(SHRINK, &params, "downgrade").await?;
        if row.get(0) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let session = self.links.house().session().await?;
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let rows = session.rows(LIST, &[&prefix, &at_most], "list locks").await?;
        Ok(lock_views(rows.iter().map(claim_row)))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.remove(name, id, "evict a claim").await
    }

    async fn close(&self) {
        self.waiters.close();
        self.links.close();
    }
}

impl Drop for TableQueue {
    fn drop(&mut self) {
        self.waiters.close();
        self.links.close();
    }
}

/// One row of a listing.
pub(crate) fn claim_row(row: &Row) -> ClaimRow {
    ClaimRow {
        name: row.get("name"),
        id: row.get("id"),
        demand: row.get("demand"),
        holder: row.get("holder"),
        token: row.get("place"),
        age_ms: row.get("age_ms"),
        left_ms: row.get("left_ms"),
    }
}
