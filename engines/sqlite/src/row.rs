//! The style 'row': inserting a row under the lock's unique name is locking, deleting it is unlocking.

use crate::config::Config;
use crate::crowd::Ask;
use crate::database::{Database, Sql, transaction};
use crate::time::{Time, between, nanos};
use lockkeeper_core::{
    Abilities, Answer, Claim, ClaimId, ClaimView, Clock, Demand, Grant, Holder, Kept, Left, LockName,
    LockView, Race, Renewal, Result, Standing, Token,
};
use rand::RngExt as _;
use rusqlite::{Connection, OptionalExtension as _};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/row/schema.sql");
const FORGET_ALL: &str = include_str!("sql/row/forget_all.sql");

/// How often each engine looks for rows whose owners died.
const CLEAN_EVERY: Duration = Duration::from_secs(30);

/// How long to try what is not bound to a claim's TTL.
const PATIENCE: Duration = Duration::from_secs(2);

/// The mean pause of a lone waiter before it tries again.
const PAUSE: Duration = Duration::from_millis(10);

/// Rows in a database file.
#[derive(Debug)]
pub(crate) struct SqliteRows {
    database: Database,
    /// How many claims of this engine wait. The more, the rarer each one tries, so that all together cost little.
    waiting: AtomicU32,
    /// When the cleaner is due.
    clean_at: AtomicI64,
}

impl SqliteRows {
    /// Opens the file. Blocks.
    pub(crate) fn open(config: &Config, ttl: Duration) -> Result<Self> {
        let database = Database::open(config, SCHEMA, FORGET_ALL, ttl.max(PATIENCE))?;
        Ok(Self { database, waiting: AtomicU32::new(0), clean_at: AtomicI64::new(0) })
    }

    /// The cleaner: deletes the rows of owners that died, from time to time.
    async fn clean(&self) {
        let now = self.database.time.now();
        let due = self.clean_at.load(Relaxed);
        let next = now.saturating_add(nanos(CLEAN_EVERY));
        if now < due || self.clean_at.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return;
        }
        // Tried once only: the renewal that brought us here must not wait for it.
        let cleaned = self.database.run("clean up", Duration::ZERO, |connection, database| {
            transaction(connection, || {
                connection.prepare_cached(include_str!("sql/row/clean.sql"))?.execute([database.time.now()])
            })
        });
        if let Err(error) = cleaned.await {
            tracing::debug!(%error, "could not clean up; the next round will");
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
        let ask = Ask::statement(move |connection, database, _| {
            remove(connection, &database.time, name.as_str(), &id)
        });
        let removed = self.database.write(doing, limit, ask);
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

/// No call may take so long that the claim's TTL is at risk.
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
    let mut look = connection.prepare_cached(include_str!("sql/row/look.sql"))?;
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
    /// What the living row answers to an attempt (Law 4: our own is found again).
    fn answer(&self, now: i64) -> Answer {
        match self.by_us {
            true => Answer::Granted(Grant { token: self.token }),
            false => Answer::Busy { free_in: Some(between(now, self.expires_at)) },
        }
    }
}

fn attempt(connection: &Connection, database: &Database, claim: &Claim, thread: &str) -> Sql<Answer> {
    let (lock, id) = (claim.name.as_str(), claim.id.to_string());
    let time = &database.time;
    // Both clocks are read while we have the write lock: the token is larger than every earlier one, and an owner
    // whose renewal was committed in time is seen as alive.
    let (token, now) = (database.numbers.next(connection, time)?, time.now());
    let Holder { text, host, pid } = claim.holder.as_ref();
    let expires_at = now.saturating_add(nanos(claim.ttl));
    let row = (lock, token, &id, text, host, pid, thread, now, expires_at);
    let mut insert = connection.prepare_cached(include_str!("sql/row/attempt.sql"))?;
    if insert.execute(row)? == 0 {
        // Somebody's row is there.
        if let Some(held) = look(connection, lock, &id)?.filter(|held| held.expires_at > now) {
            return Ok(held.answer(now));
        }
        connection.prepare_cached(include_str!("sql/row/bury.sql"))?.execute([lock])?;
        insert.execute(row)?;
    }
    Ok(Answer::Granted(Grant { token: Token(token.unsigned_abs()) }))
}

/// Deletes the claim's own row; answers whether it was alive.
fn remove(connection: &Connection, time: &Time, lock: &str, id: &str) -> Sql<bool> {
    let mut leave = connection.prepare_cached(include_str!("sql/row/leave.sql"))?;
    if leave.execute((lock, id, time.now()))? > 0 {
        return Ok(true);
    }
    // An expired row of ours is no hold any more, but need not wait for the cleaner.
    leave.execute((lock, id, 0))?;
    Ok(false)
}

fn keep(connection: &Connection, time: &Time, renewals: &[Renewal]) -> Sql<Vec<ClaimId>> {
    // Read after the transaction has begun: a time read before might be older than somebody's attempt, and revive a
    // row whose successor holds (Law 2).
    let now = time.now();
    let mut keep = connection.prepare_cached(include_str!("sql/row/keep.sql"))?;
    let mut dead = Vec::new();
    for Renewal { claim, ttl } in renewals {
        let expires_at = now.saturating_add(nanos(*ttl));
        if keep.execute((expires_at, claim.name.as_str(), claim.id.to_string(), now))? == 0 {
            dead.push(claim.id);
        }
    }
    Ok(dead)
}

fn list(connection: &Connection, time: &Time, prefix: &str, at_most: usize) -> Sql<Vec<LockView>> {
    let now = time.now();
    let mut list = connection.prepare_cached(include_str!("sql/row/list.sql"))?;
    let mut rows = list.query([prefix])?;
    let mut locks = Vec::new();
    while let Some(row) = rows.next()? {
        let lock: String = row.get(0)?;
        if !lock.starts_with(prefix) || locks.len() == at_most {
            break;
        }
        let expires_at: i64 = row.get(7)?;
        if expires_at <= now {
            continue;
        }
        let claim = ClaimView {
            id: row.get(2)?,
            standing: Standing::Holds,
            demand: Demand::Exclusive,
            holder: Holder { text: row.get(3)?, host: row.get(4)?, pid: row.get(5)? },
            token: Some(Token(row.get::<_, i64>(1)?.unsigned_abs())),
            age: Some(between(row.get(6)?, now)),
            ttl_left: Some(between(now, expires_at)),
            foreign: false,
        };
        locks.push(LockView { name: lock, claims: vec![claim] });
    }
    Ok(locks)
}

/// The thread that asks, for people who look: its name, or its number.
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

    async fn attempt(&self, claim: &Claim) -> Result<Answer> {
        let (limit, thread, claim) = (limit(claim), this_thread(), claim.clone());
        let ask =
            Ask::transaction(move |connection, database, _| attempt(connection, database, &claim, &thread));
        self.database.write("take the lock", limit, ask).await
    }

    async fn changed(&self, _: &Claim, free_in: Option<Duration>) -> Result<()> {
        let (_waiter, others) = Waiter::enter(&self.waiting);
        let longest = (PAUSE * 2).saturating_mul(1 + others / 4).min(Duration::from_secs(1));
        let pause = longest.mul_f64(rand::rng().random_range(0.1..1.0));
        tokio::time::sleep(pause.min(free_in.unwrap_or(pause))).await;
        Ok(())
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
        self.remove("release", limit(claim), &claim.name, claim.id).await
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

    async fn close(&self) {}
}
