//! Locks as the server's tables show them: listing, eviction, the end of waits, and the log of who holds user locks.

use crate::batch::microseconds;
use crate::config::Settings;
use crate::connection::{Pool, Work, rows, statement};
use crate::error::ENGINE;
use crate::keys;
use crate::session::Session;
use lockkeeper_core::engine::{Claim, ClaimId, Clock, Connections, LockName, Moment, background};
use lockkeeper_core::{Error, Holder, LockView, Result, Token};
use lockkeeper_sql_common::{ClaimRow, foreign_lock, lock_views};
use mysql_async::Value;
use mysql_async::prelude::Queryable;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

const WRITE: &str = include_str!("sql/user_lock_write.sql");
const ROW: &str = "(?, ?, ?, ?, ?, SYSDATE(6) - INTERVAL ? MICROSECOND, ?)";
const WHO: &str = "SELECT user, host FROM information_schema.processlist WHERE id = ?";
const ASK: &str = "INSERT IGNORE INTO lockkeeper_asks (id, asked_at) VALUES (?, SYSDATE(6))";
const UNWRITE: &str = "DELETE FROM lockkeeper_holds WHERE name = ? AND id = ?";

/// Name, claim, demand, holder, token, age, what is left of the TTL, and the time since the grant.
pub(crate) type ListRow = (Vec<u8>, String, String, String, i64, i64, Option<i64>, Option<i64>);

/// One row of a listing.
pub(crate) fn claim_row((name, id, demand, holder, token, age_us, left_us, held_us): ListRow) -> ClaimRow {
    ClaimRow {
        name: String::from_utf8_lossy(&name).into_owned(),
        id,
        demand,
        holder,
        token,
        age_ms: age_us / 1000,
        held_ms: held_us.map(|held| held / 1000),
        left_ms: left_us.map(|left| left / 1000),
    }
}

/// The statements of a style.
#[derive(Clone, Copy)]
pub(crate) struct ViewTexts {
    pub(crate) list: &'static str,
    pub(crate) find: &'static str,
    pub(crate) clean: &'static str,
    /// Whether the locks are user locks, which other programs can have.
    pub(crate) has_foreign: bool,
}

/// The holders of session locks, of every process.
pub(crate) struct Holders {
    connections: Connections<Pool>,
    texts: ViewTexts,
    is_closed: AtomicBool,
}

impl Holders {
    pub(crate) fn open(settings: &Arc<Settings>, texts: ViewTexts) -> Arc<Self> {
        let settings = Arc::clone(settings);
        let connections = Connections::new(move || Pool::open(Arc::clone(&settings)));
        let holders = Arc::new(Self { connections, texts, is_closed: AtomicBool::new(false) });
        background::handle().spawn(clean(Arc::downgrade(&holders)));
        holders
    }

    /// Runs the work on the background runtime, where these connections live.
    async fn run<T: Send + 'static>(&self, doing: &'static str, work: Work<T>) -> Result<T> {
        let pool = self.connections.background().await?;
        let run = background::handle().spawn(async move { pool.run(doing, work).await });
        run.await.unwrap_or_else(|error| Err(Error::temporary(ENGINE, doing, error)))
    }

    /// The locks held by anybody; also by another program, if the prefix is a lock's whole name.
    pub(crate) async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let is_named = |locks: &[LockView]| locks.first().is_some_and(|lock| lock.name == prefix);
        let mut locks = self.list_ours(prefix, at_most).await?;
        if !self.texts.has_foreign || is_named(&locks) || self.foreign(prefix).await?.is_none() {
            return Ok(locks);
        }
        // A keeper may have just taken it, which is shown a moment later.
        Clock::Boot.sleep(MOMENT * 3).await;
        locks = self.list_ours(prefix, at_most).await?;
        if !is_named(&locks)
            && let Some(foreign) = self.foreign(prefix).await?
        {
            locks.insert(0, foreign);
            locks.truncate(at_most);
        }
        Ok(locks)
    }

    /// The lock of this name, if any session has it.
    async fn foreign(&self, name: &str) -> Result<Option<LockView>> {
        type Session = (u64, Option<String>, Option<String>);
        let lock = LockName::from_engine(name);
        let work: Work<Option<Session>> = Box::new(move |conn| {
            let lock = lock.clone();
            Box::pin(async move {
                let database: Option<String> = conn.query_first("SELECT DATABASE()").await?;
                let key = keys::user_lock(&database.unwrap_or_default(), &lock);
                let number: Option<Option<u64>> = conn.exec_first("SELECT IS_USED_LOCK(?)", (key,)).await?;
                let Some(number) = number.flatten() else { return Ok(None) };
                // Without the right to see other users' sessions only the number is known.
                let who: Option<(Option<String>, Option<String>)> = conn.exec_first(WHO, (number,)).await?;
                let (user, host) = who.unwrap_or_default();
                Ok(Some((number, user, host)))
            })
        });
        let found = self.run("look for another program", work).await?;
        Ok(found.map(|(number, user, host)| {
            let text = user.unwrap_or_else(|| format!("session {number}"));
            let host = host.map(|host| host.split(':').next().unwrap_or_default().to_owned());
            foreign_lock(name, number, Holder { text, host: host.unwrap_or_default(), pid: 0 })
        }))
    }

    async fn list_ours(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let (prefix, list) = (prefix.as_bytes().to_vec(), self.texts.list);
        let work: Work<Vec<ListRow>> = Box::new(move |conn| {
            let params = (prefix.clone(), prefix.len(), prefix.clone(), at_most);
            Box::pin(async move {
                conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
                conn.exec(list, params).await
            })
        });
        Ok(lock_views(self.run("list locks", work).await?.into_iter().map(claim_row)))
    }

    /// Ends the connection that holds the lock for this claim.
    pub(crate) async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let (name, find) = (name.as_str().as_bytes().to_vec(), self.texts.find);
        let work: Work<bool> = Box::new(move |conn| {
            let params = (name.clone(), id.to_string());
            Box::pin(async move {
                conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
                let Some(number) = conn.exec_first::<u64, _, _>(find, params).await? else {
                    return Ok(false);
                };
                conn.query_drop(format!("KILL CONNECTION {number}")).await?;
                Ok(true)
            })
        });
        self.run("evict a claim", work).await
    }

    /// Notes that somebody asks for the lock that this claim has; `false` if it has none.
    pub(crate) async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let (name, find) = (name.as_str().as_bytes().to_vec(), self.texts.find);
        let work: Work<bool> = Box::new(move |conn| {
            let params = (name.clone(), id.to_string());
            Box::pin(async move {
                conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
                if conn.exec_first::<u64, _, _>(find, params).await?.is_none() {
                    return Ok(false);
                }
                conn.exec_drop(ASK, (id.to_string(),)).await?;
                Ok(true)
            })
        });
        self.run("ask a holder to release", work).await
    }

    /// Which of these claims somebody asks for.
    pub(crate) async fn asked(&self, ids: &[ClaimId]) -> Result<Vec<ClaimId>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let text = format!("SELECT id FROM lockkeeper_asks WHERE id IN ({})", keys::ids(ids.iter().copied()));
        let found = self.run("look for requests", rows::<String>(text)).await?;
        Ok(found.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// Ends what a connection waits for in the server.
    pub(crate) async fn interrupt(&self, number: u64) -> Result<()> {
        self.run("end a wait", rows::<mysql_async::Row>(format!("KILL QUERY {number}"))).await.map(drop)
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.connections.close();
    }
}

async fn clean(holders: Weak<Holders>) {
    loop {
        Clock::Boot.sleep(crate::CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        let Some(holders) = holders.upgrade().filter(|holders| !holders.is_closed.load(SeqCst)) else {
            return;
        };
        if let Err(error) = holders.run("remove idle rows", statement(holders.texts.clean, ())).await {
            tracing::debug!(%error, "could not remove idle rows");
        }
    }
}

/// A hold is written when it has lasted about this long.
const MOMENT: Duration = Duration::from_millis(50);

/// The task goes on looking for this long after the last grant: to wake it at each of many grants would cost each a switch
/// of threads.
const STAYS: Duration = Duration::from_secs(1);

/// The user locks that one keeper holds, written to a table so that others can list and evict them: in the background, and
/// only those that are not freed again at once.
pub(crate) struct HolderLog {
    holders: Arc<Holders>,
    entries: Mutex<HashMap<LockName, Entry>>,
    /// Held while rows are written: to remove one is to wait for that. Only locked on the background runtime.
    writing: tokio::sync::Mutex<()>,
    granted: Notify,
    is_closed: AtomicBool,
}

struct Entry {
    id: ClaimId,
    holder: Arc<Holder>,
    token: Token,
    session: Arc<Session>,
    since: Moment,
    is_written: bool,
}

impl HolderLog {
    pub(crate) fn open(holders: &Arc<Holders>) -> Arc<Self> {
        let log = Arc::new(Self {
            holders: Arc::clone(holders),
            entries: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            granted: Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        background::handle().spawn(write_later(Arc::downgrade(&log)));
        log
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<LockName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn granted(&self, claim: &Claim, token: Token, session: &Arc<Session>) {
        let entry = Entry {
            id: claim.id,
            holder: Arc::clone(&claim.holder),
            token,
            session: Arc::clone(session),
            since: Clock::Boot.now(),
            is_written: false,
        };
        self.entries().insert(claim.name.clone(), entry);
        self.granted.notify_one();
    }

    /// The lock is about to be freed: nothing must show it any more.
    pub(crate) async fn freed(self: &Arc<Self>, name: &LockName) -> Result<()> {
        let Some(entry) = self.entries().remove(name) else { return Ok(()) };
        if !entry.is_written {
            return Ok(());
        }
        let (log, row) = (Arc::clone(self), (name.as_str().as_bytes().to_vec(), entry.id.to_string()));
        let unwrite = async move {
            let _written = log.writing.lock().await;
            log.holders.run("show a lock as free", statement(UNWRITE, row)).await
        };
        in_background(unwrite).await
    }

    /// Writes all holds that are not written yet.
    pub(crate) async fn write_now(self: &Arc<Self>) -> Result<()> {
        let log = Arc::clone(self);
        in_background(async move { log.write(Duration::ZERO).await }).await
    }

    /// Writes the holds that are that old and not written yet.
    async fn write(&self, age: Duration) -> Result<()> {
        let _writing = self.writing.lock().await;
        let new = self.new_rows(age);
        if new.is_empty() {
            return Ok(());
        }
        let write = rows::<mysql_async::Row>(WRITE.replace("{rows}", &new.join(",")));
        let written = self.holders.run("show who holds", write).await;
        if written.is_err() {
            self.entries().values_mut().for_each(|entry| entry.is_written = false);
        }
        written.map(drop)
    }

    /// The rows to write, which count as written from now on; in the order of their names, as everywhere.
    fn new_rows(&self, age: Duration) -> Vec<String> {
        let now = Clock::Boot.now();
        let mut entries = self.entries();
        // A connection that is gone holds nothing.
        entries.retain(|_, entry| entry.session.is_open());
        let mut rows: Vec<(&LockName, String)> = Vec::new();
        for (name, entry) in entries.iter_mut().filter(|(_, entry)| !entry.is_written) {
            if now.since(entry.since) < age {
                // Its turn comes with the next ones'.
                self.granted.notify_one();
                continue;
            }
            rows.push((name, keys::fill(ROW, &entry.values(name, now))));
            entry.is_written = true;
        }
        rows.sort_by(|one, other| one.0.cmp(other.0));
        rows.into_iter().map(|(_, row)| row).collect()
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.granted.notify_one();
    }
}

impl Entry {
    fn values(&self, name: &LockName, now: Moment) -> [Value; 7] {
        [
            name.as_str().into(),
            keys::user_lock(&self.session.database, name).into(),
            self.id.to_string().into(),
            self.holder.encode().into(),
            self.session.number.into(),
            microseconds(now.since(self.since)).into(),
            self.token.0.into(),
        ]
    }
}

async fn in_background(work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let work = background::handle().spawn(work);
    work.await.unwrap_or_else(|error| Err(Error::temporary(ENGINE, "show who holds", error)))
}

async fn write_later(log: Weak<HolderLog>) {
    loop {
        let Some(log) = log.upgrade().filter(|log| !log.is_closed.load(SeqCst)) else { return };
        // The keeper may end without a close.
        if Clock::Boot.timeout(Duration::from_secs(2), log.granted.notified()).await.is_err() {
            continue;
        }
        let mut unused = Duration::ZERO;
        while unused < STAYS && !log.is_closed.load(SeqCst) {
            Clock::Boot.sleep(MOMENT).await;
            if let Err(error) = log.write(MOMENT).await {
                tracing::debug!(%error, "could not show who holds; trying again");
                log.granted.notify_one();
            }
            let is_used = Clock::Boot.timeout(Duration::ZERO, log.granted.notified()).await.is_ok();
            unused = if is_used { Duration::ZERO } else { unused + MOMENT };
        }
    }
}
