//! The connection to the database, and on which thread a request is served.
//!
//! A caller on its own thread serves its request itself if the connection is free: a pair of requests takes half the
//! processor time that it takes over another thread (18 µs against 35 µs). All else goes to a thread of the engine's
//! own, which waits for the disk, for other tasks and for other processes. So the background runtime, which renews the
//! locks of other engines, never waits for any of them.

use crate::batch::{Kind, Requests, Work, serve_alone, serve_next};
use crate::config::Config;
use crate::error::{ENGINE, LOCKED, Sql, from_sqlite, is_busy};
use crate::schema::{Schema, Unusable};
use crate::time::Time;
use crate::tokens::Tokens;
use crate::wake::{Wake, Wakeup};
use lockkeeper_core::engine::{Clock, Worker, background};
use lockkeeper_core::{Error, Result};
use rand::RngExt as _;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

/// How often a busy database is tried again at once: another process's transaction takes some 20 µs.
const QUICK_TRIES: u32 = 10;

/// The longest pause between two tries of a database that stays busy.
const LONGEST_PAUSE_MS: u64 = 10;

/// After how many pages the write-ahead log is folded into the file, which takes two waits for the disk. Locks change the
/// same few pages over and over, so a longer log than SQLite's default of 1000 pages means fewer waits and no more work.
const CHECKPOINT_PAGES: i64 = 4000;

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: Worker,
}

/// What callers and the engine's thread share. One connection for all claims: SQLite lets writers take turns anyway.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` when the engine was dropped.
    connection: Mutex<Option<Connection>>,
    pub(crate) requests: Requests,
    /// Another process was at work when the engine's thread tried last.
    is_locked: AtomicBool,
    wake: OnceLock<Arc<Wake>>,
    pub(crate) time: Time,
    pub(crate) tokens: Tokens,
}

impl Database {
    /// Opens the file, creating it and the style's tables if they are not there. Blocks.
    pub(crate) fn open(config: &Config, schema: &Schema, limit: Duration) -> Result<Self> {
        config.check()?;
        let time = Time::read()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let doing = "open the database";
        let connection =
            Connection::open_with_flags(&config.path, flags).map_err(|error| from_sqlite(doing, error))?;
        let give_up_at = Clock::Boot.now().plus(limit);
        let base = loop {
            match prepare(&connection, schema, &time) {
                Ok(base) => break base,
                // The change to WAL does not wait for others by itself when several processes come first together.
                Err(Unusable::Sql(error)) if is_busy(&error) && Clock::Boot.now() < give_up_at => {
                    std::thread::sleep(Duration::from_millis(rand::rng().random_range(1..10)));
                }
                Err(Unusable::Sql(error)) => return Err(from_sqlite(doing, error)),
                Err(Unusable::Other(why)) => return Err(Error::permanent(ENGINE, doing, why)),
            }
        };
        let shared = Shared {
            connection: Mutex::new(Some(connection)),
            requests: Requests::default(),
            is_locked: AtomicBool::new(false),
            wake: OnceLock::new(),
            time,
            tokens: Tokens::new(schema.style, base),
        };
        Ok(Self { shared: Arc::new(shared), worker: Worker::start(ENGINE)? })
    }

    /// Wakes after each commit whom it lets in.
    pub(crate) fn wake_through(&self, wake: Arc<Wake>) {
        let _ = self.shared.wake.set(wake);
    }

    /// Serves a request: inline, or on the engine's thread, maybe together with others. Waits while another process writes,
    /// up to the limit.
    ///
    /// Cancel safety: what was not begun never will be; what was is done before a later request begins (Law 4).
    pub(crate) async fn request<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        kind: Kind,
        work: impl Work<T>,
    ) -> Result<T> {
        if !background::is_current_thread()
            && let Some(served) = self.shared.serve_inline(kind, &work)
        {
            return served.map_err(|error| from_sqlite(doing, error));
        }
        let result = self.shared.requests.add(kind, work);
        let shared = Arc::clone(&self.shared);
        self.worker.send(move || shared.serve_pending());
        match Clock::Boot.timeout(limit, result).await {
            Ok(Ok(served)) => served.map_err(|error| from_sqlite(doing, error)),
            Ok(Err(_)) => Err(Error::temporary(ENGINE, doing, "the thread for the disk has ended")),
            Err(_) if self.shared.is_locked.load(Relaxed) => Err(Error::temporary(ENGINE, doing, LOCKED)),
            Err(_) => {
                let why = format!("the disk has not answered within {limit:?}");
                Err(Error::temporary(ENGINE, doing, why))
            }
        }
    }

    /// Does something on the engine's thread that nobody waits for. It is tried once.
    pub(crate) fn later<T>(&self, doing: &'static str, kind: Kind, work: impl Work<T>) {
        let shared = Arc::clone(&self.shared);
        self.worker.send(move || {
            let served =
                shared.connection().as_ref().map(|connection| serve_alone(connection, &shared, kind, &work));
            if let Some(Err(error)) = served {
                tracing::debug!(%error, "could not {doing}");
            }
        });
    }
}

/// Closing waits for the disk: the log is folded into the file.
impl Drop for Database {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.worker.send(move || drop(shared.connection().take()));
    }
}

impl Shared {
    /// The connection. Waits while it is in use.
    pub(crate) fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, unless it is in use.
    fn free_connection(&self) -> Option<MutexGuard<'_, Option<Connection>>> {
        match self.connection.try_lock() {
            Ok(connection) => Some(connection),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Serves a request on the caller's thread; `None` if it would have to wait.
    fn serve_inline<T>(&self, kind: Kind, work: &impl Work<T>) -> Option<Sql<T>> {
        // A read gains nothing from a batch.
        if kind != Kind::Read && self.requests.are_contended() {
            return None;
        }
        let slot = self.free_connection()?;
        let connection = slot.as_ref()?;
        for _ in 0..QUICK_TRIES {
            match serve_alone(connection, self, kind, work) {
                Err(error) if is_busy(&error) => std::thread::yield_now(),
                served => return Some(served),
            }
        }
        None
    }

    /// Serves a batch of requests. On the engine's thread, once for each request; earlier calls may have served it.
    fn serve_pending(&self) {
        if self.requests.are_none() {
            return;
        }
        let mut tries = 0;
        while !self.connection().as_ref().is_none_or(|connection| serve_next(connection, self)) {
            self.is_locked.store(true, Relaxed);
            tries += 1;
            pause(tries);
        }
        self.is_locked.store(false, Relaxed);
    }

    pub(crate) fn wake(&self, wakeups: &[Wakeup]) {
        if let Some(wake) = self.wake.get() {
            wake.wake(wakeups);
        }
    }
}

/// Sets up the connection and the tables; returns the base of this boot's tokens.
fn prepare(connection: &Connection, schema: &Schema, time: &Time) -> std::result::Result<i64, Unusable> {
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without it SQLite plans the statements again whenever a name is bound, which takes longer than running them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The pragma returns the mode in force.
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let why = format!("it cannot use a write-ahead log; its journal mode stays '{mode}'");
        return Err(Unusable::Other(why));
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    let open = begin(connection)?;
    schema.prepare(connection)?;
    let base = schema.enter_boot(connection, time)?;
    commit(open)?;
    Ok(base)
}

/// Runs the work in a transaction that has the write lock from its start, so that what it reads stays true until it
/// commits. Rolled back if the work fails.
pub(crate) fn transaction<T>(connection: &Connection, work: impl FnOnce() -> Sql<T>) -> Sql<T> {
    let open = begin(connection)?;
    let done = work()?;
    commit(open)?;
    Ok(done)
}

pub(crate) fn begin(connection: &Connection) -> Sql<OpenTransaction<'_>> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(OpenTransaction(connection))
}

pub(crate) fn commit(open: OpenTransaction<'_>) -> Sql<()> {
    open.0.prepare_cached("COMMIT")?.execute([])?;
    std::mem::forget(open);
    Ok(())
}

/// Rolls back when it is dropped: by an error or a panic on the way.
pub(crate) struct OpenTransaction<'a>(&'a Connection);

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        // SQLite has rolled back by itself after some errors, a full disk for one.
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

/// A pause that grows: at first only the turn of this thread, in the end some milliseconds, at random.
fn pause(tries: u32) {
    if tries <= QUICK_TRIES {
        std::thread::yield_now();
        return;
    }
    let longest = 2u64.saturating_pow(tries - QUICK_TRIES).min(LONGEST_PAUSE_MS);
    std::thread::sleep(Duration::from_micros(rand::rng().random_range(500..=longest * 1000)));
}
