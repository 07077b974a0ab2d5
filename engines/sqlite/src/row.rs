//! The style 'row': inserting a row under the lock's unique name is locking, deleting it is unlocking.

use crate::batch::Kind;
use crate::config::Config;
use crate::connection::{Database, Shared};
use crate::error::Sql;
use crate::schema::Schema;
use crate::time::{Time, between, nanos};
use crate::view;
use lockkeeper_core::engine::{Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, LockName, Race, Renewal};
use lockkeeper_core::{Abilities, Holder, LockView, Result, Token};
use rand::RngExt as _;
use rusqlite::{Connection, OptionalExtension as _};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const SCHEMA: Schema = Schema {
    style: "row",
    create: include_str!("sql/row.sql"),
    steps: &["ALTER TABLE lockkeeper_rows ADD COLUMN asked INTEGER NOT NULL DEFAULT 0"],
    forget_all: "DELETE FROM lockkeeper_rows",
};

const LOOK: &str = "SELECT id, token, expires_at FROM lockkeeper_rows WHERE lock = ?1";
const ATTEMPT: &str = include_str!("sql/attempt.sql");
const REMOVE: &str = "DELETE FROM lockkeeper_rows WHERE lock = ?1";
/// Law 2: an expired row is not found, so it is never revived.
const KEEP: &str = "UPDATE lockkeeper_rows SET expires_at = ?1 WHERE lock = ?2 AND id = ?3 AND expires_at > ?4 \
     RETURNING asked";
const ASK: &str = "UPDATE lockkeeper_rows SET asked = 1 WHERE lock = ?1 AND id = ?2 AND expires_at > ?3";
/// Only the claim's own row (Q7), and only if it is still alive.
const LEAVE: &str = "DELETE FROM lockkeeper_rows WHERE lock = ?1 AND id = ?2 AND expires_at > ?3";
const CLEAN: &str = "DELETE FROM lockkeeper_rows WHERE expires_at <= ?1";

/// How often each engine looks for rows whose owners died.
const CLEAN_EVERY: Duration = Duration::from_secs(30);

/// The limit of a request that is not bound to a claim's TTL. Many others may be served before it.
const LIMIT: Duration = Duration::from_secs(10);

/// How long an opening waits for other processes at least.
const OPEN_LIMIT: Duration = Duration::from_secs(2);

/// The mean pause of a lone waiter before it tries again.
const PAUSE: Duration = Duration::from_millis(10);

/// Rows in a database file.
#[derive(Debug)]
pub(crate) struct SqliteRows {
    database: Database,
    /// How many claims of this engine wait. The more, the rarer each one tries, so that all together cost little.
    waiting: AtomicU32,
    /// When to clean up next.
    clean_at: AtomicI64,
}

impl SqliteRows {
    /// Opens the file. Blocks.
    pub(crate) fn open(config: &Config, ttl: Duration) -> Result<Self> {
        let database = Database::open(config, &SCHEMA, ttl.max(OPEN_LIMIT))?;
        Ok(Self { database, waiting: AtomicU32::new(0), clean_at: AtomicI64::new(0) })
    }

    /// Deletes the rows of owners that died, from time to time. The renewal that brought us here does not wait for it.
    fn clean(&self) {
        let now = self.database.shared.time.now();
        let due = self.clean_at.load(Relaxed);
        let next = now.saturating_add(nanos(CLEAN_EVERY));
        if now >= due && self.clean_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            self.database.later("clean up", Kind::Transaction, |connection, shared, _| {
                connection.prepare_cached(CLEAN)?.execute([shared.time.now()])
            });
        }
    }

    async fn remove(
        &self,
        doing: &'static str,
        limit: Duration,
        name: &LockName,
        id: ClaimId,
    ) -> Result<Left> {
        let (name, id) = (name.clone(), id.to_string());
        let removed = self.database.request(doing, limit, Kind::Statement, move |connection, shared, _| {
            remove(connection, &shared.time, name.as_str(), &id)
        });
        Ok(if removed.await? { Left::Left } else { Left::NotThere })
    }
}

/// Counts a waiter while it waits.
struct Waiter<'a>(&'a AtomicU32);

impl<'a> Waiter<'a> {
    fn enter(waiting: &'a AtomicU32) -> (Self, u32) {
        let others = waiting.fetch_add(1, Relaxed);
        (Self(waiting), others)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// No request may take so long that the claim's TTL is at risk.
fn limit(claim: &Claim) -> Duration {
    claim.ttl / 4
}

/// What a lock's row says.
struct Held {
    by_us: bool,
    token: Token,
    expires_at: i64,
}

fn look(connection: &Connection, lock: &str, id: &str) -> Sql<Option<Held>> {
    let mut look = connection.prepare_cached(LOOK)?;
    let held = look.query_row([lock], |row| {
        let token: i64 = row.get(1)?;
        Ok(Held {
            by_us: row.get_ref(0)?.as_str()? == id,
            token: Token(token.unsigned_abs()),
            expires_at: row.get(2)?,
        })
    });
    held.optional()
}

impl Held {
    /// What an attempt finds at a living row (Law 4: our own is found again).
    fn found(&self, now: i64) -> Attempted {
        match self.by_us {
            true => Attempted::Granted(Grant { token: self.token }),
            false => Attempted::Busy { free_in: Some(between(now, self.expires_at)) },
        }
    }
}

fn attempt(connection: &Connection, shared: &Shared, claim: &Claim, thread: &str) -> Sql<Attempted> {
    let (lock, id) = (claim.name.as_str(), claim.id.to_string());
    let time = &shared.time;
    // Both clocks are read while we have the write lock: the token is larger than every earlier one, and an owner
    // whose renewal was committed in time is seen as alive.
    let (token, now) = (shared.tokens.next(connection, time)?, time.now());
    let Holder { text, host, pid } = claim.holder.as_ref();
    let expires_at = now.saturating_add(nanos(claim.ttl));
    let row = (lock, token, &id, text, host, pid, thread, now, expires_at);
    let mut insert = connection.prepare_cached(ATTEMPT)?;
    if insert.execute(row)? == 0 {
        // There is a row.
        if let Some(held) = look(connection, lock, &id)?.filter(|held| held.expires_at > now) {
            return Ok(held.found(now));
        }
        connection.prepare_cached(REMOVE)?.execute([lock])?;
        insert.execute(row)?;
    }
    Ok(Attempted::Granted(Grant { token: Token(token.unsigned_abs()) }))
}

/// Deletes the claim's own row; says whether it was alive.
fn remove(connection: &Connection, time: &Time, lock: &str, id: &str) -> Sql<bool> {
    let mut leave = connection.prepare_cached(LEAVE)?;
    if leave.execute((lock, id, time.now()))? > 0 {
        return Ok(true);
    }
    // An expired row of ours is no hold any more, but need not wait for the cleaner.
    leave.execute((lock, id, 0))?;
    Ok(false)
}

fn keep(connection: &Connection, time: &Time, renewals: &[Renewal]) -> Sql<Kept> {
    // Read after the transaction has begun: a time read before might be older than somebody's attempt, and revive a
    // row whose successor holds (Law 2).
    let now = time.now();
    let mut keep = connection.prepare_cached(KEEP)?;
    let mut kept = Kept::default();
    for Renewal { claim, ttl, .. } in renewals {
        let row = (now.saturating_add(nanos(*ttl)), claim.name.as_str(), claim.id.to_string(), now);
        match keep.query_row(row, |row| row.get::<_, bool>(0)).optional()? {
            Some(asked) => kept.asked.extend(asked.then_some(claim.id)),
            None => kept.dead.push(claim.id),
        }
    }
    Ok(kept)
}

/// The calling thread as shown to operators: its name, or its number.
fn this_thread() -> String {
    let thread = std::thread::current();
    thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned)
}

impl Race for SqliteRows {
    fn abilities(&self) -> Abilities {
        crate::ROW
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let (limit, thread, claim) = (limit(claim), this_thread(), claim.clone());
        let attempt =
            self.database.request("take the lock", limit, Kind::Transaction, move |connection, shared, _| {
                attempt(connection, shared, &claim, &thread)
            });
        attempt.await
    }

    async fn changed(&self, _: &Claim, free_in: Option<Duration>) -> Result<()> {
        let (_waiter, others) = Waiter::enter(&self.waiting);
        let longest = (PAUSE * 2).saturating_mul(1 + others / 4).min(Duration::from_secs(1));
        let pause = longest.mul_f64(rand::rng().random_range(0.1..1.0));
        Clock::Boot.sleep(pause.min(free_in.unwrap_or(pause))).await;
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let shortest = renewals.iter().map(|renewal| renewal.claim.ttl).min().unwrap_or(LIMIT);
        let renewals = renewals.to_vec();
        let kept =
            self.database.request("renew", shortest / 4, Kind::Transaction, move |connection, shared, _| {
                keep(connection, &shared.time, &renewals)
            });
        let kept = kept.await?;
        self.clean();
        Ok(kept)
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.remove("release", limit(claim), &claim.name, claim.id).await
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        let list = self.database.request("list locks", LIMIT, Kind::Read, move |connection, shared, _| {
            view::rows(connection, &shared.time, &prefix, at_most)
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

    async fn close(&self) {}
}
