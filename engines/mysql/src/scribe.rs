//! Writes down who holds user locks, for those who look: in the background, and not what is freed again at once.

use crate::config::Settings;
use crate::pool::{Home, Pool};
use crate::queue::microseconds;
use crate::request::Value;
use crate::session::Session;
use crate::text;
use crate::user_lock::key;
use crate::wire::{Work, statement};
use futures_util::FutureExt as _;
use lockkeeper_core::{Claim, ClaimId, Clock, Holder, LockName, Moment, NameMap, Result, Token, background};
use mysql_async::prelude::Queryable;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

const WRITE: &str = include_str!("sql/user_lock_write.sql");
const ROW: &str = include_str!("sql/user_lock_row.sql");
const UNWRITE: &str = include_str!("sql/user_lock_unwrite.sql");

/// A hold is written when it has lasted about this long.
const MOMENT: Duration = Duration::from_millis(50);

/// It goes on looking for so long after the last grant: to be woken by each of many would take the one who locks a switch of threads.
const STAYS: Duration = Duration::from_secs(1);

/// The holds of one keeper.
pub(crate) struct Scribe {
    pool: Pool,
    book: Mutex<NameMap<Entry>>,
    /// Held while rows are written: to remove one is to wait for that.
    writing: tokio::sync::Mutex<()>,
    granted: Notify,
    closed: AtomicBool,
}

struct Entry {
    id: ClaimId,
    holder: Arc<Holder>,
    token: Token,
    session: Arc<Session>,
    since: Moment,
    written: bool,
}

impl Scribe {
    pub(crate) fn open(settings: &Arc<Settings>) -> Arc<Self> {
        let scribe = Arc::new(Self {
            pool: Pool::new(settings, Home::House, 2),
            book: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            granted: Notify::new(),
            closed: AtomicBool::new(false),
        });
        background::handle().spawn(write_in_the_end(Arc::downgrade(&scribe)));
        scribe
    }

    fn book(&self) -> MutexGuard<'_, NameMap<Entry>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn granted(&self, claim: &Claim, token: Token, session: &Arc<Session>) {
        let entry = Entry {
            id: claim.id,
            holder: Arc::clone(&claim.holder),
            token,
            session: Arc::clone(session),
            since: Clock::Boot.now(),
            written: false,
        };
        self.book().insert(claim.name.clone(), entry);
        self.granted.notify_one();
    }

    /// The lock is about to be freed: nothing must show it any more.
    pub(crate) async fn freed(&self, name: &LockName) -> Result<()> {
        let Some(entry) = self.book().remove(name) else { return Ok(()) };
        if !entry.written {
            return Ok(());
        }
        let _written = self.writing.lock().await;
        let row = (name.as_str().as_bytes().to_vec(), entry.id.to_string());
        self.pool.run("show a lock as free", statement(UNWRITE, row)).await
    }

    /// Writes the holds that are that old and not written yet.
    pub(crate) async fn write(&self, age: Duration) -> Result<()> {
        let _writing = self.writing.lock().await;
        let rows = self.rows(age);
        if rows.is_empty() {
            return Ok(());
        }
        let statement = WRITE.replace("{rows}", &rows.join(","));
        let work: Work<()> = Box::new(move |conn| {
            let statement = statement.clone();
            Box::pin(async move { conn.query_drop(statement).await })
        });
        let written = self.pool.run("show who holds", work).await;
        if written.is_err() {
            self.book().values_mut().for_each(|entry| entry.written = false);
        }
        written
    }

    /// The rows to write, which count as written from now on; in the order of their names, as everywhere.
    fn rows(&self, age: Duration) -> Vec<String> {
        let now = Clock::Boot.now();
        let mut book = self.book();
        // A connection that is gone holds nothing.
        book.retain(|_, entry| entry.session.is_open());
        let mut rows: Vec<(&LockName, String)> = Vec::new();
        for (name, entry) in book.iter_mut().filter(|(_, entry)| !entry.written) {
            if now.since(entry.since) < age {
                // Its turn comes with the next ones'.
                self.granted.notify_one();
                continue;
            }
            let values: [Value<'_>; 7] = [
                name.as_str().into(),
                key(&entry.session.database, name).into(),
                entry.id.to_string().into(),
                entry.holder.encode().into(),
                Value::Number(entry.session.number),
                Value::Number(microseconds(now.since(entry.since))),
                Value::Number(entry.token.0),
            ];
            rows.push((name, text::fill(ROW, &values)));
            entry.written = true;
        }
        rows.sort_by(|one, other| one.0.cmp(other.0));
        rows.into_iter().map(|(_, row)| row).collect()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.granted.notify_one();
        self.pool.close();
    }
}

async fn write_in_the_end(scribe: Weak<Scribe>) {
    loop {
        let Some(scribe) = scribe.upgrade().filter(|scribe| !scribe.closed.load(SeqCst)) else { return };
        // Not for ever: the keeper may end without a word.
        let granted = tokio::time::timeout(Duration::from_secs(2), scribe.granted.notified()).await;
        if granted.is_err() {
            continue;
        }
        let mut unused = Duration::ZERO;
        while unused < STAYS && !scribe.closed.load(SeqCst) {
            tokio::time::sleep(MOMENT).await;
            if let Err(error) = scribe.write(MOMENT).await {
                tracing::debug!(%error, "could not show who holds; trying again");
                scribe.granted.notify_one();
            }
            let is_used = scribe.granted.notified().now_or_never().is_some();
            unused = if is_used { Duration::ZERO } else { unused + MOMENT };
        }
    }
}
