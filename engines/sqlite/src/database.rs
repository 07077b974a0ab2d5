//! The connection: short transactions run inline, and a busy database is tried again without blocking a thread.

use crate::config::Config;
use crate::crowd::{Ask, Crowd};
use crate::time::{Time, micros, wall_micros};
use crate::wake::{Ring, Wake};
use lockkeeper_core::{Clock, Error, Moment, Result};
use rand::RngExt as _;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How often a busy database is tried again at once: another process's transaction takes some 20 µs.
const QUICK_TRIES: u32 = 10;

/// The longest pause between two tries of a database that stays busy.
const LONGEST_PAUSE_MS: u64 = 10;

/// After how many pages the write-ahead log is folded into the file, which takes two waits for the disk. Locks change the
/// same few pages over and over, so a longer log than SQLite's default of 1000 pages means fewer waits and no more work.
const CHECKPOINT_PAGES: i64 = 4000;

/// How far ahead the horizon of tokens is set, so that it is rarely written.
const HORIZON_MICROS: i64 = 60_000_000;

/// One connection, which all claims of this process share: SQLite lets writers take turns anyway.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Mutex<Connection>,
    pub(crate) crowd: Crowd,
    wake: Option<Arc<Wake>>,
    pub(crate) time: Time,
    pub(crate) numbers: Numbers,
}

/// What a transaction answers when it could not be run.
pub(crate) type Sql<T> = rusqlite::Result<T>;

impl Database {
    /// Opens the file, creating it and the style's tables if they are not there. Blocks.
    pub(crate) fn open(config: &Config, schema: &str, forget_all: &str, limit: Duration) -> Result<Self> {
        config.check()?;
        let time = Time::read()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&config.path, flags)
            .map_err(|error| explain("open the database", error))?;
        let give_up_at = Clock::Boot.now().plus(limit);
        let base = loop {
            match prepare(&connection, config.style, schema, forget_all, &time) {
                Ok(base) => break base,
                // The change to WAL does not wait for others by itself when several processes come first together.
                Err(Unfit::Sql(error)) if is_busy(&error) && Clock::Boot.now() < give_up_at => {
                    std::thread::sleep(Duration::from_millis(rand::rng().random_range(1..10)));
                }
                Err(Unfit::Sql(error)) => return Err(explain("open the database", error)),
                Err(Unfit::Other(why)) => return Err(Error::permanent("sqlite", "open the database", why)),
            }
        };
        let numbers =
            Numbers { style: config.style, base, horizon: AtomicI64::new(i64::MIN), last: AtomicI64::new(0) };
        let connection = Mutex::new(connection);
        Ok(Self { connection, crowd: Crowd::default(), wake: None, time, numbers })
    }

    /// Rings after each transaction whom it lets in.
    pub(crate) fn with_wake(self, wake: Arc<Wake>) -> Self {
        Self { wake: Some(wake), ..self }
    }

    pub(crate) fn ring(&self, rings: &[Ring]) {
        if let Some(wake) = &self.wake {
            wake.ring(rings);
        }
    }

    pub(crate) fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, unless somebody uses it.
    pub(crate) fn free_connection(&self) -> Option<MutexGuard<'_, Connection>> {
        match self.connection.try_lock() {
            Ok(connection) => Some(connection),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs the work inline, again and again while another process writes, at most for the time given.
    ///
    /// Nothing is handed to another thread, so a dropped future leaves nothing under way: a leave that is sent
    /// after a dropped join cannot be overtaken by it (Law 4).
    pub(crate) async fn run<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        mut work: impl FnMut(&Connection, &Self) -> Sql<T>,
    ) -> Result<T> {
        let mut patience = Patience::new(limit);
        loop {
            let answer = {
                let connection = self.connection();
                work(&connection, self)
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => patience.after(doing, error).await?,
            }
        }
    }

    /// Does what is asked for in a transaction that has the write lock, maybe together with what others ask for; rings
    /// whom it lets in. Again and again while another process writes, at most for the time given.
    ///
    /// Cancel safety: what was not begun never will be; what was is done when the next call begins (Law 4).
    pub(crate) async fn write<T, F>(&self, doing: &'static str, limit: Duration, ask: Ask<T, F>) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection, &Self, &mut Vec<Ring>) -> Sql<T> + Send + Sync + 'static,
    {
        let (ask, mut patience) = (Arc::new(ask), Patience::new(limit));
        loop {
            match self.do_one(&ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => patience.after(doing, error).await?,
            }
        }
    }
}

/// How often and how long a busy database is tried again.
struct Patience {
    give_up_at: Moment,
    tries: u32,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { give_up_at: Clock::Boot.now().plus(limit), tries: 0 }
    }

    /// Pauses if it was busy and there is time left; else the failure is final.
    async fn after(&mut self, doing: &'static str, error: rusqlite::Error) -> Result<()> {
        if !is_busy(&error) || Clock::Boot.now() >= self.give_up_at {
            return Err(explain(doing, error));
        }
        self.tries += 1;
        pause(self.tries).await;
        Ok(())
    }
}

/// The version of the tables.
const LAYOUT: i64 = 1;

/// Why a database cannot be used.
enum Unfit {
    Sql(rusqlite::Error),
    Other(String),
}

impl From<rusqlite::Error> for Unfit {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Sets up the connection, makes the tables and buries the claims of an earlier boot; answers the base of this boot's
/// numbers.
fn prepare(
    connection: &Connection,
    style: &str,
    schema: &str,
    forget_all: &str,
    time: &Time,
) -> std::result::Result<i64, Unfit> {
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without it SQLite plans the statements again whenever a name is bound, which takes longer than running them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The pragma answers with the mode in force.
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Unfit::Other(format!(
            "it cannot use a write-ahead log; its journal mode stays '{mode}'"
        )));
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    if layout(connection, style, time)?.is_none() {
        transaction(connection, || connection.execute_batch(schema))?;
    }
    let layout = layout(connection, style, time)?.unwrap_or_default();
    if layout != LAYOUT {
        return Err(Unfit::Other(format!(
            "its tables have layout {layout}; this version of lockkeeper knows layout {LAYOUT}"
        )));
    }
    Ok(transaction(connection, || meet_boot(connection, style, forget_all, time))?)
}

/// The layout of the style's tables, if they are there.
fn layout(connection: &Connection, style: &str, time: &Time) -> Sql<Option<i64>> {
    if !connection.table_exists(None, "lockkeeper_counter")? {
        return Ok(None);
    }
    counter(connection, style, time).map(|counter| counter.layout).optional()
}

/// What the database says about numbers.
struct Counter {
    horizon: i64,
    base: i64,
    same_boot: bool,
    layout: i64,
}

fn counter(connection: &Connection, style: &str, time: &Time) -> Sql<Counter> {
    connection.prepare_cached(include_str!("sql/counter.sql"))?.query_row([style], |row| {
        Ok(Counter {
            horizon: row.get(0)?,
            base: row.get(1)?,
            same_boot: row.get_ref(2)?.as_str()? == time.boot,
            layout: row.get(3)?,
        })
    })
}

/// On the first visit after a boot, every claim in the database is dead, for its clock is gone. The base is chosen so that
/// tokens go on growing: beyond the horizon, and beyond the wall clock in case a power cut has undone the horizon.
fn meet_boot(connection: &Connection, style: &str, forget_all: &str, time: &Time) -> Sql<i64> {
    let counter = counter(connection, style, time)?;
    if counter.same_boot {
        return Ok(counter.base);
    }
    let start = counter.horizon.saturating_add(1).max(wall_micros());
    let base = start.saturating_sub(micros(time.now()));
    connection.prepare_cached(include_str!("sql/new_boot.sql"))?.execute((&time.boot, base, style))?;
    connection.prepare_cached(forget_all)?.execute([])?;
    Ok(base)
}

/// Where places and tokens come from, as far as it is known without asking the database.
#[derive(Debug)]
pub(crate) struct Numbers {
    style: &'static str,
    /// Chosen once per boot, so it does not change while we live.
    base: i64,
    /// A horizon that was read from the database, and so is committed; the true one is never lower.
    horizon: AtomicI64,
    /// The last number given by this process: of two in one transaction, the later one is larger, too.
    last: AtomicI64,
}

impl Numbers {
    /// The next place or token, in the present transaction: the shared clock, read while we have the write lock, is later
    /// than at every commit before. (Two grants of one lock are commits apart, which take many microseconds.)
    pub(crate) fn next(&self, connection: &Connection, time: &Time) -> Sql<i64> {
        let clock = self.base.saturating_add(micros(time.now()));
        let next = clock.max(self.last.load(Relaxed).saturating_add(1));
        self.last.store(next, Relaxed);
        if next > self.horizon.load(Relaxed) {
            let horizon = counter(connection, self.style, time)?.horizon;
            self.horizon.store(horizon, Relaxed);
            if next > horizon {
                let raised = next.saturating_add(HORIZON_MICROS);
                connection.prepare_cached(include_str!("sql/raise.sql"))?.execute((raised, self.style))?;
            }
        }
        Ok(next)
    }

    /// A transaction was undone in which several numbers were taken: the later ones may have read a horizon that the
    /// earlier ones had raised.
    pub(crate) fn undone(&self) {
        self.horizon.store(i64::MIN, Relaxed);
    }
}

/// Runs the work in a transaction that has the write lock from its start, so that what it reads stays true until it
/// commits. Undone if the work fails.
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

/// Whether another connection was at work, so that the same call will succeed.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A pause that grows: at first only the turn of this thread, in the end some milliseconds, at random.
async fn pause(tries: u32) {
    if tries <= QUICK_TRIES {
        std::thread::yield_now();
        return;
    }
    let longest = 2u64.saturating_pow(tries - QUICK_TRIES).min(LONGEST_PAUSE_MS);
    let micros = rand::rng().random_range(500..=longest * 1000);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

/// SQLite's failure in words that say what to do.
pub(crate) fn explain(doing: &'static str, error: rusqlite::Error) -> Error {
    let (advice, passes) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ("another process has kept the database locked for too long", true)
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            ("the file is not a SQLite database, or is damaged: choose another file", false)
        }
        Some(ErrorCode::ReadOnly) => ("the file or its directory is read-only", false),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            ("no permission for the file", false)
        }
        Some(ErrorCode::CannotOpen) => ("the file, or its -wal or -shm file, cannot be opened", false),
        Some(ErrorCode::DiskFull) => ("the disk is full", true),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => ("the system failed", true),
        _ => ("the database refused", false),
    };
    let why = format!("{advice} ({error})");
    if passes { Error::temporary("sqlite", doing, why) } else { Error::permanent("sqlite", doing, why) }
}
