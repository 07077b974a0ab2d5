//! The queue style: the seam's verbs, one call each.

use crate::alone::{Alone, values};
use crate::config::Settings;
use crate::fault::ENGINE;
use crate::lane::Joining;
use crate::pool::{Home, Pool};
use crate::styles::QUEUE;
use crate::wire::{self, Work};
use crate::{bell, keep, request, text};
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, Clock, Demand, Error, Joined, Kept, Left, LockName, LockView, Place,
    Queue, Renewal, Result, Shape, Token, background, grant,
};
use lockkeeper_sql_common::{ClaimRow, Seen, Waiter, Waiters, lock_views};
use mysql_async::prelude::Queryable;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_queue.sql");
const JOIN: &str = include_str!("sql/queue_join.sql");
const LEAVE: &str = include_str!("sql/queue_leave.sql");
const SHRINK: &str = include_str!("sql/queue_shrink.sql");
const SWEEP: &str = include_str!("sql/queue_sweep.sql");
const CLEAN: &str = include_str!("sql/queue_clean.sql");
const KEEP: &str = include_str!("sql/queue_keep.sql");
const ALIVE: &str = include_str!("sql/queue_alive.sql");
const LOOK: &str = include_str!("sql/queue_look.sql");
const FITTING: &str = include_str!("sql/queue_fitting.sql");
const LIST_ALONE: &str = include_str!("sql/alone_list.sql");
const LIST: &str = include_str!("sql/queue_list.sql");

const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// A fair queue in two tables.
pub(crate) struct TableQueue {
    quick: Arc<Pool>,
    alone: Alone,
    house: Arc<Pool>,
    waiters: Arc<Waiters>,
    bell: String,
}

impl TableQueue {
    /// Connects, and starts what wakes waiters.
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let waiters = Arc::new(Waiters::new(settings.limits.look));
        let house_pool = Arc::new(Pool::new(&settings, Home::House, 2));
        let quick = Arc::new(Pool::new(&settings, Home::Caller, settings.connections));
        let bell = bell::name();
        let rung = Arc::new(Notify::new());
        background::handle().spawn(bell::hang(
            Arc::clone(&settings),
            bell.clone(),
            Arc::clone(&waiters),
            Arc::clone(&rung),
        ));
        background::handle().spawn(answer(Arc::clone(&house_pool), bell.clone(), Arc::clone(&waiters), rung));
        background::handle().spawn(look_after(Arc::clone(&house_pool), Arc::clone(&waiters)));
        background::handle().spawn(clean(Arc::clone(&house_pool), Arc::clone(&waiters)));
        let alone = Alone::new(&settings, &quick);
        Ok(Self { quick, alone, house: house_pool, waiters, bell })
    }

    async fn remove(&self, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        // On another connection a leave could overtake its join, which would then stay until it expires.
        let waiter = self.waiters.find(id);
        let _after_the_join = match &waiter {
            Some(waiter) => Some(waiter.under_way.lock().await),
            None => None,
        };
        if self.alone.leave(name, id).await? {
            self.waiters.forget(id);
            return Ok(true);
        }
        let bytes = name.as_str().as_bytes().to_vec();
        let left: Option<(u8, u8)> = self
            .quick
            .run(
                doing,
                Box::new(move |conn| {
                    let params = (bytes.clone(), id.to_string());
                    Box::pin(async move { conn.exec_first(LEAVE, params).await })
                }),
            )
            .await?;
        self.waiters.forget(id);
        if left == Some((1, 1)) {
            self.alone.is_free(name);
        }
        Ok(left.is_some_and(|(left, _)| left == 1))
    }
}

/// The number of permits, or 0 for a mutex or read-write lock: what everybody must agree on.
pub(crate) fn permits(demand: Demand) -> u64 {
    match demand.shape() {
        Shape::Permits { of } => of.into(),
        Shape::ReadWrite => 0,
    }
}

pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn duration(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.max(0).unsigned_abs())
}

fn number(number: i64) -> u64 {
    number.max(0).unsigned_abs()
}

type JoinedRow = (i64, i64, Option<i64>, Option<String>);

fn joined(claim: &Claim, row: &JoinedRow) -> Result<Joined> {
    if let Some(ruling) = &row.3 {
        let ruling: Demand = ruling
            .parse()
            .map_err(|error: String| Error::permanent(ENGINE, "read the oldest claim", error))?;
        claim.check_shape(ruling.shape())?;
    }
    let place = number(row.0);
    Ok(Joined { place: Place(place), token: Token(place), ahead: Ahead(number(row.1)), lifeline: None })
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
        let waiter = self.waiters.enter(claim, || 0);
        let under_way = Arc::clone(&waiter.under_way).lock_owned().await;
        let joining =
            Arc::new(Joining { claim: claim.clone(), note: self.bell.clone(), _under_way: under_way });
        if let Some(place) = self.alone.join(&joining).await? {
            return Ok(Joined { place, token: Token(place.0), ahead: Ahead(0), lifeline: None });
        }
        let demand = claim.demand;
        let row: Option<JoinedRow> = self
            .quick
            .run(
                "join the queue",
                Box::new(move |conn| {
                    let params = request::params(&values(&joining));
                    Box::pin(async move { conn.exec_first(JOIN, params).await })
                }),
            )
            .await?;
        let row = row.ok_or_else(|| Error::temporary(ENGINE, "join the queue", "no answer"))?;
        let joined = joined(claim, &row).inspect_err(|_| self.waiters.forget(claim.id))?;
        if !grant::fits(joined.ahead.0, demand.weight(), demand.limit()) {
            self.waiters.waits(&waiter, row.2.map(duration));
        }
        Ok(joined)
    }

    async fn changed(&self, claim: &Claim, _: Place, seen: Ahead) -> Result<Ahead> {
        self.waiters.changed(claim, seen).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        keep::keep(&self.house, KEEP, ALIVE, renewals).await
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.remove(&claim.name, claim.id, "leave the queue").await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let (name, id) = (claim.name.as_str().as_bytes().to_vec(), claim.id);
        let shrunk: Option<u8> = self
            .quick
            .run(
                "downgrade",
                Box::new(move |conn| {
                    let params = (name.clone(), id.to_string(), to.to_string(), to.weight());
                    Box::pin(async move { conn.exec_first(SHRINK, params).await })
                }),
            )
            .await?;
        if shrunk == Some(1) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let prefix = prefix.as_bytes().to_vec();
        let work: Work<Vec<ListRow>> = Box::new(move |conn| {
            let params = (prefix.clone(), prefix.len(), prefix.clone(), at_most);
            Box::pin(async move {
                // In this order: a claim that stands alone may move to the queue meanwhile, but not back.
                let alone: Vec<ListRow> = conn.exec(LIST_ALONE, params.clone()).await?;
                let mut rows: Vec<ListRow> = conn.exec(LIST, params).await?;
                let queued: HashSet<String> = rows.iter().map(|row| row.1.clone()).collect();
                rows.extend(alone.into_iter().filter(|row| !queued.contains(&row.1)));
                Ok(rows)
            })
        });
        let mut rows = self.quick.run("list locks", work).await?;
        rows.sort_by(|one, other| (&one.0, one.4).cmp(&(&other.0, other.4)));
        let mut views = lock_views(rows.into_iter().map(claim_row));
        views.truncate(at_most);
        Ok(views)
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.remove(name, id, "evict a claim").await
    }

    async fn close(&self) {
        self.end();
    }
}

impl TableQueue {
    fn end(&self) {
        self.waiters.close();
        self.alone.close();
        self.quick.close();
        self.house.close();
    }
}

impl Drop for TableQueue {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) type ListRow = (Vec<u8>, String, String, String, i64, i64, Option<i64>);

/// One row of a listing.
pub(crate) fn claim_row((name, id, demand, holder, token, age_us, left_us): ListRow) -> ClaimRow {
    ClaimRow {
        name: String::from_utf8_lossy(&name).into_owned(),
        id,
        demand,
        holder,
        token,
        age_ms: age_us / 1000,
        left_ms: left_us.map(|left| left / 1000),
    }
}

/// Answers the bell: looks which claims fit now. Once more a little later, for a bell that rings while nobody
/// sleeps on its connection is not heard.
async fn answer(pool: Arc<Pool>, bell: String, waiters: Arc<Waiters>, rung: Arc<Notify>) {
    const ONCE_MORE: Duration = Duration::from_millis(10);
    let mut again = false;
    while !waiters.is_closed() {
        let heard = if again {
            tokio::time::timeout(ONCE_MORE, rung.notified()).await.is_ok()
        } else {
            wait(&rung).await
        };
        if !heard && !again {
            continue;
        }
        if let Err(error) = look_for_fitting(&pool, &bell, &waiters).await {
            tracing::debug!(%error, "could not answer the bell");
            waiters.look_in(ONCE_MORE);
        }
        again = heard;
    }
}

/// A pause in which the end of the keeper is noticed, too.
async fn wait(rung: &Notify) -> bool {
    tokio::time::timeout(Duration::from_secs(2), rung.notified()).await.is_ok()
}

async fn look_for_fitting(pool: &Pool, bell: &str, waiters: &Waiters) -> Result<()> {
    let waiting = waiters.waiting();
    if waiting.is_empty() {
        return Ok(());
    }
    let names: BTreeSet<&str> = waiting.iter().map(|waiter| waiter.name.as_str()).collect();
    let statement = FITTING.replace("{names}", &text::names(names)).replace("{bell}", bell);
    let rows: Vec<(String, i64)> = pool
        .run(
            "look who fits",
            Box::new(move |conn| {
                let statement = statement.clone();
                Box::pin(async move { conn.query(statement).await })
            }),
        )
        .await?;
    for (id, ahead) in rows {
        if let Ok(id) = id.parse() {
            waiters.tell(id, number(ahead));
        }
    }
    Ok(())
}

/// Looks after the waiters: when a claim ahead of one may have expired, and at a slow pace
/// in case a ring was not heard.
async fn look_after(pool: Arc<Pool>, waiters: Arc<Waiters>) {
    while waiters.due().await {
        let asked = waiters.waiting();
        if let Err(error) = look(&pool, &waiters, &asked).await {
            tracing::debug!(%error, "could not look after the waiters; trying again");
            waiters.look_in(Duration::from_millis(rand::random_range(20..100)));
        }
    }
}

async fn look(pool: &Pool, waiters: &Waiters, asked: &[Arc<Waiter>]) -> Result<()> {
    let names: BTreeSet<&str> = asked.iter().map(|waiter| waiter.name.as_str()).collect();
    let statement = LOOK
        .replace("{names}", &text::names(names))
        .replace("{ids}", &text::ids(asked.iter().map(|waiter| waiter.id)));
    type Row = (String, Vec<u8>, i64, Option<i64>);
    let rows: Vec<Row> = pool
        .run(
            "look at the queue",
            Box::new(move |conn| {
                let statement = statement.clone();
                Box::pin(async move { conn.query(statement).await })
            }),
        )
        .await?;
    let mut expired = BTreeSet::new();
    let mut seen = Vec::with_capacity(rows.len());
    for (id, name, ahead, free_in_us) in rows {
        if free_in_us.is_some_and(|time| time <= 0) {
            expired.insert(name);
        }
        seen.push(Seen {
            id: id.parse().unwrap_or(ClaimId(0)),
            ahead: number(ahead),
            free_in: free_in_us.filter(|time| *time > 0).map(duration),
        });
    }
    waiters.looked(asked, &seen);
    for name in expired {
        pool.run("remove expired claims", wire::statement(SWEEP, (name,))).await?;
    }
    Ok(())
}

/// Removes what nobody has used for long, now and then.
async fn clean(pool: Arc<Pool>, waiters: Arc<Waiters>) {
    while !waiters.is_closed() {
        // At random, so that the keepers of a fleet do not all come at once.
        tokio::time::sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        let cleaned = pool
            .run("remove idle locks", Box::new(|conn| Box::pin(async { conn.query_drop(CLEAN).await })))
            .await;
        if let Err(error) = cleaned {
            tracing::debug!(%error, "could not remove idle locks");
        }
    }
}
