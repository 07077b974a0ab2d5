//! The connection: short transactions run inline, and a busy database is tried again without blocking a thread.

use crate::config::Config;
use crate::time::Time;
use lockkeeper_core::{Clock, Error, Result};
use rand::RngExt as _;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a busy database is tried again at once: another process's transaction takes some 20 µs.
const QUICK_TRIES: u32 = 10;

/// The longest pause between two tries of a database that stays busy.
const LONGEST_PAUSE_MS: u64 = 10;

/// After how many pages the write-ahead log is folded into the file, which takes two waits for the disk. Locks change the
/// same few pages over and over, so a longer log than SQLite's default of 1000 pages means fewer waits and no more work.
const CHECKPOINT_PAGES: i64 = 4000;

/// One connection, which all claims of this process share: SQLite lets writers take turns anyway.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Mutex<Connection>,
    pub(crate) time: Time,
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
        loop {
            match prepare(&connection, config.style, schema, forget_all, &time) {
                Ok(()) => break,
                // The change to WAL does not wait for others by itself when several processes come first together.
                Err(Unfit::Sql(error)) if is_busy(&error) && Clock::Boot.now() < give_up_at => {
                    std::thread::sleep(Duration::from_millis(rand::rng().random_range(1..10)));
                }
                Err(Unfit::Sql(error)) => return Err(explain("open the database", error)),
                Err(Unfit::Other(why)) => return Err(Error::permanent("sqlite", "open the database", why)),
            }
        }
        Ok(Self { connection: Mutex::new(connection), time })
    }

    /// Runs the work inline, again and again while another process writes, at most for the time given.
    ///
    /// Nothing is handed to another thread, so a dropped future leaves nothing under way: a leave that is sent
    /// after a dropped join cannot be overtaken by it (Law 4).
    pub(crate) async fn run<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        mut work: impl FnMut(&Connection, &Time) -> Sql<T>,
    ) -> Result<T> {
        let give_up_at = Clock::Boot.now().plus(limit);
        let mut tries = 0;
        loop {
            let answer = {
                let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
                work(&connection, &self.time)
            };
            match answer {
                Err(error) if is_busy(&error) && Clock::Boot.now() < give_up_at => {
                    tries += 1;
                    pause(tries).await;
                }
                Err(error) => return Err(explain(doing, error)),
                Ok(answer) => return Ok(answer),
            }
        }
    }
}

const COUNTER: &str = include_str!("sql/counter.sql");

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

/// Sets up the connection, makes the tables and buries the claims of an earlier boot.
fn prepare(
    connection: &Connection,
    style: &str,
    schema: &str,
    forget_all: &str,
    time: &Time,
) -> std::result::Result<(), Unfit> {
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
    let layout = match layout(connection, style)? {
        Some(layout) => layout,
        None => {
            transaction(connection, || connection.execute_batch(schema))?;
            layout(connection, style)?.unwrap_or_default()
        }
    };
    if layout != LAYOUT {
        return Err(Unfit::Other(format!(
            "its tables have layout {layout}; this version of lockkeeper knows layout {LAYOUT}"
        )));
    }
    Ok(transaction(connection, || meet_boot(connection, style, forget_all, time))?)
}

/// The layout of the style's tables, if they are there.
fn layout(connection: &Connection, style: &str) -> Sql<Option<i64>> {
    if !connection.table_exists(None, "lockkeeper_counter")? {
        return Ok(None);
    }
    connection.query_row(COUNTER, [style], |row| row.get(2)).optional()
}

/// On the first visit after a boot, every claim in the database is dead: its clock has gone.
pub(crate) fn meet_boot(connection: &Connection, style: &str, forget_all: &str, time: &Time) -> Sql<()> {
    let mut new_boot = connection.prepare_cached(include_str!("sql/new_boot.sql"))?;
    if new_boot.execute((&time.boot, style))? > 0 {
        connection.prepare_cached(forget_all)?.execute([])?;
    }
    Ok(())
}

/// Runs the work in a transaction that has the write lock from its start, so that what it reads stays true until it
/// commits. Undone if the work fails.
pub(crate) fn transaction<T>(connection: &Connection, work: impl FnOnce() -> Sql<T>) -> Sql<T> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let open = OpenTransaction(connection);
    let done = work()?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    std::mem::forget(open);
    Ok(done)
}

/// Rolls back when it is dropped: by an error or a panic on the way.
struct OpenTransaction<'a>(&'a Connection);

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        // SQLite has rolled back by itself after some errors, a full disk for one.
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

/// The next place or token of the style, in the present transaction: larger than the last one, and than what a power cut
/// may have undone, for the wall clock has moved on since.
///
/// In two statements, since `UPDATE … RETURNING` makes SQLite build a table for its answer, which costs more than both.
pub(crate) fn next(connection: &Connection, style: &str, forget_all: &str, time: &Time) -> Sql<i64> {
    let counter = connection
        .prepare_cached(COUNTER)?
        .query_row([style], |row| Ok((row.get::<_, i64>(0)?, row.get_ref(1)?.as_str()? == time.boot)));
    let (last, same_boot) = counter?;
    if !same_boot {
        meet_boot(connection, style, forget_all, time)?;
    }
    let next = last.saturating_add(1).max(crate::time::wall_micros());
    connection.prepare_cached(include_str!("sql/count.sql"))?.execute((next, style))?;
    Ok(next)
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
