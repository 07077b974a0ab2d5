//! The style 'queue': a row per claim, in order; the rule says who holds.

use crate::config::Config;
use crate::crowd::Ask;
use crate::database::{Database, Sql, transaction};
use crate::line::{Freed, Line, Standing, parsed};
use crate::time::{Time, between, nanos};
use crate::wake::{Ring, Wake};
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, ClaimView, Clock, Demand, Holder, Joined, Kept, Left, LockName,
    LockView, Moment, Place, Queue, Renewal, Result, Shape, Token, grant,
};
use rusqlite::Connection;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/queue/schema.sql");
const FORGET_ALL: &str = include_str!("sql/queue/forget_all.sql");
const REMOVE: &str = include_str!("sql/queue/remove.sql");

/// How often each engine looks for claims that died in locks nobody has asked for since.
const CLEAN_EVERY: Duration = Duration::from_secs(30);

/// How long to try what is not bound to a claim's TTL.
const PATIENCE: Duration = Duration::from_secs(2);

/// Queues in a database file.
#[derive(Debug)]
pub(crate) struct SqliteQueue {
    database: Database,
    wake: Arc<Wake>,
    /// When the cleaner is due.
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
    /// Somebody ahead seems to be dead; only a transaction that has the write lock may act on it.
    Dead,
    Gone,
}

impl SqliteQueue {
    /// Opens the file. Blocks.
    pub(crate) fn open(config: &Config, ttl: Duration) -> Result<Self> {
        let database = Database::open(config, SCHEMA, FORGET_ALL, ttl.max(PATIENCE))?;
        let wake = Arc::new(Wake::open(&config.path)?);
        let database = database.with_wake(Arc::clone(&wake));
        Ok(Self { database, wake, clean_at: AtomicI64::new(0) })
    }

    /// A look at the claim's place, which buries the dead ahead of it if there are any.
    async fn look(&self, claim: &Claim) -> Result<Look> {
        let doing = "look at the queue";
        let lock = claim.name.as_str();
        let glance = self.database.run(doing, limit(claim), |connection, database| {
            Ok(glance(&Line::read(connection, lock)?, claim, &database.time))
        });
        match glance.await? {
            Glance::Seen(look) => return Ok(look),
            Glance::Gone => return Err(claim.gone()),
            Glance::Dead => {}
        }
        let (line, rings) = self
            .database
            .run(doing, limit(claim), |connection, database| {
                transaction(connection, || bury(connection, &database.time, lock))
            })
            .await?;
        self.wake.ring(&rings);
        let index = line.find(claim.id).ok_or_else(|| claim.gone())?;
        Ok(look_from(&line, index, claim, &self.database.time))
    }

    /// Removes a claim; answers whether it was alive. Wakes who fits now.
    async fn remove(
        &self,
        doing: &'static str,
        limit: Duration,
        name: &LockName,
        id: ClaimId,
    ) -> Result<Left> {
        let name = name.clone();
        let ask = Ask::transaction(move |connection, database, rings| {
            remove(connection, &database.time, name.as_str(), id, rings)
        });
        let alive = self.database.write(doing, limit, ask).await?;
        Ok(if alive { Left::Left } else { Left::NotThere })
    }

    /// Buries the dead of locks that nobody has asked for since, from time to time.
    async fn clean(&self) {
        let now = self.database.time.now();
        let due = self.clean_at.load(Relaxed);
        let next = now.saturating_add(nanos(CLEAN_EVERY));
        if now < due || self.clean_at.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return;
        }
        // Tried once only: the renewal that brought us here must not wait for it.
        let cleaned = self.database.run("clean up", Duration::ZERO, clean);
        match cleaned.await {
            Ok(rings) => self.wake.ring(&rings),
            Err(error) => tracing::debug!(%error, "could not clean up; the next round will"),
        }
    }
}

/// No call may take so long that the claim's TTL is at risk.
fn limit(claim: &Claim) -> Duration {
    claim.ttl / 4
}

fn glance(line: &Line, claim: &Claim, time: &Time) -> Glance {
    let Some(index) = line.find(claim.id) else { return Glance::Gone };
    let now = time.now();
    if line.0[..=index].iter().any(|standing| standing.expires_at <= now) {
        return Glance::Dead;
    }
    Glance::Seen(look_from(line, index, claim, time))
}

fn look_from(line: &Line, index: usize, claim: &Claim, time: &Time) -> Look {
    let weights = line.weights_ahead(index);
    let blockers = grant::blockers(&weights, claim.demand.weight(), claim.demand.limit());
    let expiries = blockers.iter().map(|blocker| time.moment(line.0[*blocker].expires_at));
    Look { ahead: Ahead(weights.iter().sum()), blocked_until: expiries.min().unwrap_or(Moment::NEVER) }
}

/// Reads a queue and removes its dead, for good (Law 2). In a transaction only: a renewal under way has either been
/// committed and is seen, or will find nothing.
fn bury(connection: &Connection, time: &Time, lock: &str) -> Sql<(Line, Vec<Ring>)> {
    let mut line = Line::read(connection, lock)?;
    let dead = line.take_dead(time.now());
    if dead.is_empty() {
        return Ok((line, Vec::new()));
    }
    let mut remove = connection.prepare_cached(REMOVE)?;
    for claim in &dead {
        remove.execute((lock, claim.place))?;
    }
    let freed: Vec<Freed> = dead.iter().map(freed).collect();
    let mut rings = line.newly_fitting(&freed);
    // The dead are told, too, in case one of them still waits.
    rings.extend(dead.iter().map(Standing::ring));
    Ok((line, rings))
}

fn freed(claim: &Standing) -> Freed {
    Freed { place: claim.place, weight: claim.demand.weight() }
}

/// What a join did.
enum Entered {
    Joined(Joined),
    Refused(Shape),
}

fn join(
    connection: &Connection,
    database: &Database,
    claim: &Claim,
    wake: &str,
    rings: &mut Vec<Ring>,
) -> Sql<Entered> {
    let lock = claim.name.as_str();
    let time = &database.time;
    let (line, freed) = bury(connection, time, lock)?;
    rings.extend(freed);
    if let Some(index) = line.find(claim.id) {
        return Ok(Entered::Joined(joined(line.0[index].place, &line.0[..index])));
    }
    if let Some(oldest) = line.0.first()
        && oldest.demand.shape() != claim.demand.shape()
    {
        return Ok(Entered::Refused(oldest.demand.shape()));
    }
    // Law 1: behind everybody, whatever the clock says.
    let place = database.numbers.next(connection, time)?.max(line.0.last().map_or(0, |last| last.place + 1));
    let now = time.now();
    let Holder { text, host, pid } = claim.holder.as_ref();
    connection.prepare_cached(include_str!("sql/queue/join.sql"))?.execute((
        lock,
        place,
        claim.id.to_string(),
        claim.demand.to_string(),
        text,
        host,
        pid,
        wake,
        now,
        now.saturating_add(nanos(claim.ttl)),
    ))?;
    Ok(Entered::Joined(joined(place, &line.0)))
}

fn joined(place: i64, ahead: &[Standing]) -> Joined {
    let number = place.unsigned_abs();
    let ahead = ahead.iter().map(|claim| claim.demand.weight()).sum();
    Joined { place: Place(number), token: Token(number), ahead: Ahead(ahead), lifeline: None }
}

/// Deletes a claim; answers whether it was there and alive, and who fits now.
fn remove(connection: &Connection, time: &Time, lock: &str, id: ClaimId, rings: &mut Vec<Ring>) -> Sql<bool> {
    let mut line = Line::read(connection, lock)?;
    let Some(index) = line.find(id) else { return Ok(false) };
    let removed = line.0.remove(index);
    connection.prepare_cached(REMOVE)?.execute((lock, removed.place))?;
    rings.extend(line.newly_fitting(&[freed(&removed)]));
    // Whoever still waits with this claim learns that it is gone: it may have been evicted.
    rings.push(removed.ring());
    Ok(removed.expires_at > time.now())
}

fn shrink(connection: &Connection, time: &Time, claim: &Claim, to: Demand) -> Sql<Option<Vec<Ring>>> {
    let lock = claim.name.as_str();
    let mut line = Line::read(connection, lock)?;
    let now = time.now();
    let Some(index) = line.find(claim.id).filter(|index| line.0[*index].expires_at > now) else {
        return Ok(None);
    };
    let standing = &mut line.0[index];
    connection.prepare_cached(include_str!("sql/queue/shrink.sql"))?.execute((
        to.to_string(),
        lock,
        standing.place,
    ))?;
    let weight = standing.demand.weight().saturating_sub(to.weight());
    standing.demand = to;
    let freed = Freed { place: standing.place, weight };
    Ok(Some(line.newly_fitting(&[freed])))
}

fn keep(connection: &Connection, time: &Time, renewals: &[Renewal]) -> Sql<Vec<ClaimId>> {
    // Read after the transaction has begun: a time read before might be older than somebody's look, and revive a claim
    // whose successor holds (Law 2).
    let now = time.now();
    let mut keep = connection.prepare_cached(include_str!("sql/queue/keep.sql"))?;
    let mut dead = Vec::new();
    // Each queue is read once, however many of our claims stand in it.
    let mut lines: HashMap<&str, HashMap<ClaimId, Standing>> = HashMap::new();
    for Renewal { claim, ttl } in renewals {
        let lock = claim.name.as_str();
        let line = match lines.entry(lock) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let line = Line::read(connection, lock)?;
                new.insert(line.0.into_iter().map(|standing| (standing.id, standing)).collect())
            }
        };
        match line.get(&claim.id).filter(|standing| standing.expires_at > now) {
            Some(standing) => drop(keep.execute((now.saturating_add(nanos(*ttl)), lock, standing.place))?),
            None => dead.push(claim.id),
        }
    }
    Ok(dead)
}

fn clean(connection: &Connection, database: &Database) -> Sql<Vec<Ring>> {
    let time = &database.time;
    // Read first: mostly there is nothing to do, and then nobody has to wait for us.
    let mut abandoned = connection.prepare_cached(include_str!("sql/queue/abandoned.sql"))?;
    let locks = abandoned.query_map([time.now()], |row| row.get(0))?.collect::<Sql<Vec<String>>>()?;
    let mut rings = Vec::new();
    for lock in locks {
        rings.extend(transaction(connection, || bury(connection, time, &lock))?.1);
    }
    Ok(rings)
}

fn list(connection: &Connection, time: &Time, prefix: &str, at_most: usize) -> Sql<Vec<LockView>> {
    let now = time.now();
    let mut list = connection.prepare_cached(include_str!("sql/queue/list.sql"))?;
    let mut rows = list.query([prefix])?;
    let mut locks: Vec<(String, Vec<ClaimView>)> = Vec::new();
    while let Some(row) = rows.next()? {
        let lock: String = row.get(0)?;
        if !lock.starts_with(prefix) {
            break;
        }
        let expires_at: i64 = row.get(8)?;
        if expires_at <= now {
            continue;
        }
        if locks.last().is_none_or(|(name, _)| *name != lock) {
            if locks.len() == at_most {
                break;
            }
            locks.push((lock, Vec::new()));
        }
        if let Some((_, claims)) = locks.last_mut() {
            claims.push(ClaimView {
                id: row.get(2)?,
                standing: lockkeeper_core::Standing::Waits,
                demand: parsed(row, 3)?,
                holder: Holder { text: row.get(4)?, host: row.get(5)?, pid: row.get(6)? },
                token: Some(Token(row.get::<_, i64>(1)?.unsigned_abs())),
                age: Some(between(row.get(7)?, now)),
                ttl_left: Some(between(now, expires_at)),
                foreign: false,
            });
        }
    }
    Ok(locks.into_iter().map(|(name, claims)| LockView::from_queue(name, claims)).collect())
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
        let (owned, wake) = (claim.clone(), Arc::clone(&self.wake));
        let ask = Ask::transaction(move |connection, database, rings| {
            join(connection, database, &owned, &wake.address, rings)
        });
        match self.database.write("join the queue", limit(claim), ask).await? {
            Entered::Joined(joined) => Ok(joined),
            Entered::Refused(ruling) => Err(claim.check_shape(ruling).err().unwrap_or_else(|| claim.gone())),
        }
    }

    async fn changed(&self, claim: &Claim, _: Place, seen: Ahead) -> Result<Ahead> {
        let bell = self.wake.bell(claim.id);
        loop {
            let look = self.look(claim).await?;
            if look.ahead < seen {
                return Ok(look.ahead);
            }
            // The expiry of whoever blocks is the slow poll beneath the bell, too.
            tokio::select! {
                () = bell.rung() => {}
                () = self.clock().sleep_until(look.blocked_until) => {}
            }
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let shortest = renewals.iter().map(|renewal| renewal.claim.ttl).min().unwrap_or(PATIENCE);
        let dead = self.database.run("renew", shortest / 4, |connection, database| {
            transaction(connection, || keep(connection, &database.time, renewals))
        });
        let dead = dead.await?;
        self.clean().await;
        Ok(Kept { dead, as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.remove("leave the queue", limit(claim), &claim.name, claim.id).await
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let shrunk = self.database.run("downgrade", limit(claim), |connection, database| {
            transaction(connection, || shrink(connection, &database.time, claim, to))
        });
        let rings = shrunk.await?.ok_or_else(|| claim.gone())?;
        self.wake.ring(&rings);
        Ok(())
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.database
            .run("list locks", PATIENCE, |connection, database| {
                list(connection, &database.time, prefix, at_most)
            })
            .await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        Ok(self.remove("evict a claim", PATIENCE, name, id).await? == Left::Left)
    }

    async fn close(&self) {
        self.wake.close();
    }
}
