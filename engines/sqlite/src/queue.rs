//! The style 'queue': a row per claim, in order; the rule says who holds.

use crate::batch::Kind;
use crate::claims::{ClaimRow, Claims, Freed};
use crate::config::Config;
use crate::connection::{Database, Shared};
use crate::error::Sql;
use crate::schema::Schema;
use crate::time::{Time, nanos};
use crate::view;
use crate::wake::{Wake, Wakeup};
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{
    Ahead, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Moment, Place, Queue, Renewal, grant,
};
use lockkeeper_core::{Abilities, Demand, Holder, LockView, Result, Token};
use rusqlite::Connection;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const SCHEMA: Schema = Schema {
    style: "queue",
    create: include_str!("sql/queue.sql"),
    steps: &[
        "ALTER TABLE lockkeeper_claims ADD COLUMN granted_at INTEGER",
        "ALTER TABLE lockkeeper_claims ADD COLUMN asked INTEGER NOT NULL DEFAULT 0",
    ],
    forget_all: "DELETE FROM lockkeeper_claims",
};

const JOIN: &str = include_str!("sql/join.sql");
const REMOVE: &str = "DELETE FROM lockkeeper_claims WHERE lock = ?1 AND place = ?2";
const KEEP: &str = "UPDATE lockkeeper_claims SET expires_at = ?1 WHERE lock = ?2 AND place = ?3";
const SHRINK: &str = "UPDATE lockkeeper_claims SET demand = ?1 WHERE lock = ?2 AND place = ?3";
const ASK: &str = "UPDATE lockkeeper_claims SET asked = 1 WHERE lock = ?1 AND id = ?2 AND expires_at > ?3";
const GRANT: &str = "UPDATE lockkeeper_claims SET granted_at = ?1 WHERE lock = ?2 AND place = ?3";
/// Locks with claims that have expired.
const ABANDONED: &str = "SELECT DISTINCT lock FROM lockkeeper_claims WHERE expires_at <= ?1 LIMIT 1000";

/// How often each engine looks for claims that expired in locks which nobody has requested since.
const CLEAN_EVERY: Duration = Duration::from_secs(30);

/// The limit of a request that is not bound to a claim's TTL. Many others may be served before it.
const LIMIT: Duration = Duration::from_secs(10);

/// How long an opening waits for other processes at least.
const OPEN_LIMIT: Duration = Duration::from_secs(2);

/// Queues in a database file.
#[derive(Debug)]
pub(crate) struct SqliteQueue {
    database: Database,
    wake: Arc<Wake>,
    /// When to clean up next.
    clean_at: AtomicI64,
}

/// What a look found.
struct Look {
    ahead: Ahead,
    /// When the first of the claims that block this one expires, unless it is renewed.
    blocked_until: Moment,
}

/// What a look without the write lock found.
enum Glance {
    Seen(Look),
    /// A claim ahead has expired; only a transaction that has the write lock may act on it.
    Expired,
    Gone,
}

impl SqliteQueue {
    /// Opens the file. Blocks.
    pub(crate) fn open(config: &Config, ttl: Duration) -> Result<Self> {
        let database = Database::open(config, &SCHEMA, ttl.max(OPEN_LIMIT))?;
        let wake = Arc::new(Wake::open(&config.path, &database.worker)?);
        database.wake_through(Arc::clone(&wake));
        Ok(Self { database, wake, clean_at: AtomicI64::new(0) })
    }

    /// A look at the claim's place, which removes expired claims ahead of it.
    async fn look(&self, claim: &Claim) -> Result<Look> {
        let doing = "look at the queue";
        let own = claim.clone();
        let glance = self.database.request(doing, limit(claim), Kind::Read, move |connection, shared, _| {
            Ok(glance(&Claims::read(connection, own.name.as_str())?, &own, &shared.time))
        });
        match glance.await? {
            Glance::Seen(look) => return Ok(look),
            Glance::Gone => return Err(claim.gone()),
            Glance::Expired => {}
        }
        let own = claim.clone();
        let look = self.database.request(
            doing,
            limit(claim),
            Kind::Transaction,
            move |connection, shared, wakeups| {
                let claims = remove_expired(connection, &shared.time, own.name.as_str(), wakeups)?;
                Ok(claims.find(own.id).map(|index| look_from(&claims, index, &own, &shared.time)))
            },
        );
        look.await?.ok_or_else(|| claim.gone())
    }

    /// Removes a claim and wakes those that fit now.
    async fn remove(
        &self,
        doing: &'static str,
        limit: Duration,
        name: &LockName,
        id: ClaimId,
    ) -> Result<Left> {
        let name = name.clone();
        let removed =
            self.database.request(doing, limit, Kind::Transaction, move |connection, shared, wakeups| {
                remove(connection, &shared.time, name.as_str(), id, wakeups)
            });
        Ok(if removed.await? { Left::Left } else { Left::NotThere })
    }

    /// Removes expired claims of locks that nobody has requested since, from time to time. The renewal that brought us here
    /// does not wait for it.
    fn clean(&self) {
        let now = self.database.shared.time.now();
        let due = self.clean_at.load(Relaxed);
        let next = now.saturating_add(nanos(CLEAN_EVERY));
        if now >= due && self.clean_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            self.database.later("clean up", Kind::Read, clean);
        }
    }
}

/// No request may take so long that the claim's TTL is at risk.
fn limit(claim: &Claim) -> Duration {
    claim.ttl / 4
}

fn glance(claims: &Claims, claim: &Claim, time: &Time) -> Glance {
    let Some(index) = claims.find(claim.id) else { return Glance::Gone };
    let now = time.now();
    if claims.0[..=index].iter().any(|row| row.expires_at <= now) {
        return Glance::Expired;
    }
    Glance::Seen(look_from(claims, index, claim, time))
}

fn look_from(claims: &Claims, index: usize, claim: &Claim, time: &Time) -> Look {
    let weights = claims.weights_ahead(index);
    let blockers = grant::blockers(&weights, claim.demand.weight(), claim.demand.limit());
    let expiries = blockers.iter().map(|blocker| time.moment(claims.0[*blocker].expires_at));
    Look { ahead: Ahead(weights.iter().sum()), blocked_until: expiries.min().unwrap_or(Moment::NEVER) }
}

/// Reads a queue and removes what has expired, for good (Law 2). In a transaction only: a renewal under way has either been
/// committed and is seen, or will find nothing.
fn remove_expired(
    connection: &Connection,
    time: &Time,
    lock: &str,
    wakeups: &mut Vec<Wakeup>,
) -> Sql<Claims> {
    let mut claims = Claims::read(connection, lock)?;
    let dead = claims.take_dead(time.now());
    if dead.is_empty() {
        return Ok(claims);
    }
    let mut remove = connection.prepare_cached(REMOVE)?;
    for claim in &dead {
        remove.execute((lock, claim.place))?;
    }
    let freed: Vec<Freed> = dead.iter().map(freed).collect();
    let_in(connection, time, lock, &claims, &freed, wakeups)?;
    // The dead are woken, too, in case one of them still waits.
    wakeups.extend(dead.iter().map(ClaimRow::wakeup));
    Ok(claims)
}

fn freed(claim: &ClaimRow) -> Freed {
    Freed { place: claim.place, weight: claim.demand.weight() }
}

/// Marks the claims that fit now and did not before as granted, and wakes them.
fn let_in(
    connection: &Connection,
    time: &Time,
    lock: &str,
    claims: &Claims,
    freed: &[Freed],
    wakeups: &mut Vec<Wakeup>,
) -> Sql<()> {
    for claim in claims.newly_fitting(freed) {
        connection.prepare_cached(GRANT)?.execute((time.now(), lock, claim.place))?;
        wakeups.push(claim.wakeup());
    }
    Ok(())
}

/// What a join did.
enum Entered {
    Joined(Joined),
    Refused(Shape),
}

fn join(
    connection: &Connection,
    shared: &Shared,
    claim: &Claim,
    address: &str,
    wakeups: &mut Vec<Wakeup>,
) -> Sql<Entered> {
    let lock = claim.name.as_str();
    let time = &shared.time;
    let claims = remove_expired(connection, time, lock, wakeups)?;
    if let Some(index) = claims.find(claim.id) {
        return Ok(Entered::Joined(joined(claims.0[index].place, &claims.0[..index])));
    }
    if let Some(oldest) = claims.0.first()
        && oldest.demand.shape() != claim.demand.shape()
    {
        return Ok(Entered::Refused(oldest.demand.shape()));
    }
    // Law 1: behind everybody, whatever the clock says.
    let behind = claims.0.last().map_or(0, |last| last.place + 1);
    let joined = joined(shared.tokens.next(connection, time)?.max(behind), &claims.0);
    let fits = grant::fits(joined.ahead.0, claim.demand.weight(), claim.demand.limit());
    let now = time.now();
    let Holder { text, host, pid } = claim.holder.as_ref();
    connection.prepare_cached(JOIN)?.execute((
        lock,
        joined.place.0.cast_signed(),
        claim.id.to_string(),
        claim.demand.to_string(),
        text,
        host,
        pid,
        address,
        now,
        fits.then_some(now),
        now.saturating_add(nanos(claim.ttl)),
    ))?;
    Ok(Entered::Joined(joined))
}

fn joined(place: i64, ahead: &[ClaimRow]) -> Joined {
    let number = place.unsigned_abs();
    let ahead = ahead.iter().map(|claim| claim.demand.weight()).sum();
    Joined { place: Place(number), token: Token(number), ahead: Ahead(ahead), lifeline: None }
}

/// Deletes a claim; says whether it was there and alive.
fn remove(
    connection: &Connection,
    time: &Time,
    lock: &str,
    id: ClaimId,
    wakeups: &mut Vec<Wakeup>,
) -> Sql<bool> {
    let mut claims = Claims::read(connection, lock)?;
    let Some(index) = claims.find(id) else { return Ok(false) };
    let removed = claims.0.remove(index);
    connection.prepare_cached(REMOVE)?.execute((lock, removed.place))?;
    let_in(connection, time, lock, &claims, &[freed(&removed)], wakeups)?;
    // The claim itself may still wait: it may have been evicted.
    wakeups.push(removed.wakeup());
    Ok(removed.expires_at > time.now())
}

/// Lets a claim take less room; says whether it was there and alive.
fn shrink(
    connection: &Connection,
    time: &Time,
    claim: &Claim,
    to: Demand,
    wakeups: &mut Vec<Wakeup>,
) -> Sql<bool> {
    let lock = claim.name.as_str();
    let mut claims = Claims::read(connection, lock)?;
    let now = time.now();
    let Some(index) = claims.find(claim.id).filter(|index| claims.0[*index].expires_at > now) else {
        return Ok(false);
    };
    let row = &mut claims.0[index];
    connection.prepare_cached(SHRINK)?.execute((to.to_string(), lock, row.place))?;
    let freed = Freed { place: row.place, weight: row.demand.weight().saturating_sub(to.weight()) };
    row.demand = to;
    let_in(connection, time, lock, &claims, &[freed], wakeups)?;
    Ok(true)
}

fn keep(connection: &Connection, time: &Time, renewals: &[Renewal], wakeups: &mut Vec<Wakeup>) -> Sql<Kept> {
    // Read after the transaction has begun: a time read before might be older than somebody's look, and revive a claim
    // whose successor holds (Law 2).
    let now = time.now();
    let mut keep = connection.prepare_cached(KEEP)?;
    let mut kept = Kept::default();
    // Each queue is read once, however many of our claims stand in it.
    let mut queues: HashMap<&str, HashMap<ClaimId, ClaimRow>> = HashMap::new();
    for Renewal { claim, ttl, outlives, .. } in renewals {
        let lock = claim.name.as_str();
        let queue = match queues.entry(lock) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let claims = Claims::read(connection, lock)?;
                new.insert(claims.0.into_iter().map(|row| (row.id, row)).collect())
            }
        };
        match queue.get(&claim.id).filter(|row| row.expires_at > now) {
            Some(row) => {
                let expires_at = now.saturating_add(nanos(*ttl));
                keep.execute((expires_at, lock, row.place))?;
                kept.asked.extend(row.asked.then_some(claim.id));
                if expires_at < row.expires_at && !outlives.is_zero() {
                    // A hold is detached for less than was left: those that wait sleep until it would have expired.
                    wakeups
                        .extend(queue.values().filter(|other| other.place > row.place).map(ClaimRow::wakeup));
                }
            }
            None => kept.dead.push(claim.id),
        }
    }
    Ok(kept)
}

fn clean(connection: &Connection, shared: &Shared, wakeups: &mut Vec<Wakeup>) -> Sql<()> {
    // Read first: mostly there is nothing to do, and then nobody has to wait for us.
    let mut abandoned = connection.prepare_cached(ABANDONED)?;
    let locks = abandoned.query_map([shared.time.now()], |row| row.get(0))?.collect::<Sql<Vec<String>>>()?;
    for lock in locks {
        crate::connection::transaction(connection, || {
            remove_expired(connection, &shared.time, &lock, wakeups)
        })?;
    }
    Ok(())
}

impl Queue for SqliteQueue {
    fn abilities(&self) -> Abilities {
        crate::QUEUE
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let (own, wake) = (claim.clone(), Arc::clone(&self.wake));
        let entered = self.database.request(
            "join the queue",
            limit(claim),
            Kind::Transaction,
            move |connection, shared, wakeups| join(connection, shared, &own, &wake.address, wakeups),
        );
        match entered.await? {
            Entered::Joined(joined) => Ok(joined),
            Entered::Refused(ruling) => Err(claim.check_shape(ruling).err().unwrap_or_else(|| claim.gone())),
        }
    }

    async fn changed(&self, claim: &Claim, _: Place, seen: Ahead) -> Result<Ahead> {
        let waiter = self.wake.waiter(claim.id);
        loop {
            let look = self.look(claim).await?;
            if look.ahead < seen {
                return Ok(look.ahead);
            }
            // The expiry of the blocker is the slow poll beneath the wake-up, too.
            tokio::select! {
                () = waiter.woken() => {}
                () = self.clock().sleep_until(look.blocked_until) => {}
            }
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let shortest = renewals.iter().map(|renewal| renewal.claim.ttl).min().unwrap_or(LIMIT);
        let renewals = renewals.to_vec();
        let kept = self.database.request(
            "renew",
            shortest / 4,
            Kind::Transaction,
            move |connection, shared, wakeups| keep(connection, &shared.time, &renewals, wakeups),
        );
        let kept = kept.await?;
        self.clean();
        Ok(kept)
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.remove("leave the queue", limit(claim), &claim.name, claim.id).await
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let own = claim.clone();
        let shrunk = self.database.request(
            "downgrade",
            limit(claim),
            Kind::Transaction,
            move |connection, shared, wakeups| shrink(connection, &shared.time, &own, to, wakeups),
        );
        if shrunk.await? { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        let list = self.database.request("list locks", LIMIT, Kind::Read, move |connection, shared, _| {
            view::queues(connection, &shared.time, &prefix, at_most)
        });
        list.await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        Ok(self.remove("evict a claim", LIMIT, name, id).await? == Left::Left)
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let name = name.clone();
        let asked = self.database.request(
            "ask a holder to release",
            LIMIT,
            Kind::Statement,
            move |connection, shared, _| {
                let row = (name.as_str(), id.to_string(), shared.time.now());
                Ok(connection.prepare_cached(ASK)?.execute(row)? > 0)
            },
        );
        asked.await
    }

    async fn close(&self) {
        self.wake.close().await;
    }
}
