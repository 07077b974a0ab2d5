//! Joins and leaves of one row each, as the styles queue and row have them: many tasks share a request and its commit.
//! Only MySQL has this file, since only here one statement writes the rows of many claims.
//!
//! Rows are always written in the order of their names, so that two batches do not wait for each other.

use crate::config::Settings;
use crate::connection::{Pool, Work, several};
use crate::error::{ENGINE, too_late};
use crate::keys;
use futures_util::future::join_all;
use lockkeeper_core::engine::{
    Batch, Batcher, Claim, ClaimId, Clock, Connection, Connections, Kept, LockName, Renewal,
};
use lockkeeper_core::{Error, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Params, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

/// How many requests of each kind are under way before the next ones gather, and how many claims share one.
const AT_ONCE: usize = 4;
const AT_MOST: usize = 64;

/// The statements of a style.
pub(crate) struct Texts {
    /// Takes the `{rows}` that are free.
    pub(crate) join: &'static str,
    /// One of those rows, with a question mark for each value.
    pub(crate) row: &'static str,
    /// Which of `{ids}` have the rows of these `{names}`, and with what number.
    pub(crate) joined: &'static str,
    /// Frees a claim's row.
    pub(crate) leave: &'static str,
    /// Frees many and says which.
    pub(crate) leave_many: &'static str,
    /// The values of a row.
    pub(crate) values: fn(&Joining) -> Vec<Value>,
}

/// The number that a claim got whose row was free.
type Number = Option<u64>;

/// The connections of one runtime, with the batches that are sent over them.
pub(crate) struct Writer {
    pub(crate) pool: Pool,
    joins: Batcher<Joins>,
    leaves: Batcher<Leaves>,
}

impl Connection for Writer {
    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }
}

impl Writer {
    /// One for each runtime, opened when it first needs it.
    pub(crate) fn connections(settings: &Arc<Settings>, texts: &'static Texts) -> Arc<Connections<Self>> {
        let settings = Arc::clone(settings);
        Arc::new(Connections::new(move || {
            let settings = Arc::clone(&settings);
            async move {
                let pool = Pool::open(settings).await?;
                let joins = Joins {
                    pool: pool.clone(),
                    join_one: texts.join.replace("{rows}", texts.row).into(),
                    texts,
                };
                let leaves = Leaves { pool: pool.clone(), texts };
                Ok(Self {
                    pool,
                    joins: Batcher::new(joins, Handle::current(), AT_ONCE),
                    leaves: Batcher::new(leaves, Handle::current(), AT_ONCE),
                })
            }
        }))
    }

    /// The number that the claim got if its row was free; else nothing was done.
    pub(crate) async fn join(&self, joining: Arc<Joining>) -> Result<Number> {
        self.joins.request(joining).await.unwrap_or_else(|| Err(ended("take the lock")))
    }

    /// Whether the claim had a row, and has left.
    pub(crate) async fn leave(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let leaving = Leaving { name: name.clone(), id };
        self.leaves.request(leaving).await.unwrap_or_else(|| Err(ended("free the lock")))
    }
}

fn ended(doing: &'static str) -> Error {
    Error::temporary(ENGINE, doing, "the tokio runtime has ended")
}

/// The joins under way, so that a leave does not overtake its join on another connection.
#[derive(Default)]
pub(crate) struct UnderWay(Arc<Mutex<HashMap<ClaimId, Arc<Entry>>>>);

#[derive(Default)]
struct Entry {
    /// Somebody leaves for this claim, so it must not be sent any more.
    has_left: AtomicBool,
    /// Locked until the join is over.
    under_way: Arc<tokio::sync::Mutex<()>>,
}

/// One claim on its way in. The last one that drops it ends the wait of a leave.
pub(crate) struct Joining {
    pub(crate) claim: Claim,
    /// What the style writes beside it.
    pub(crate) note: String,
    entry: Arc<Entry>,
    all: Arc<Mutex<HashMap<ClaimId, Arc<Entry>>>>,
    _under_way: OwnedMutexGuard<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnderWay {
    /// Enters a claim before its join is sent.
    pub(crate) async fn begin(&self, claim: &Claim, note: String, limit: Duration) -> Result<Arc<Joining>> {
        let entry = Arc::clone(lock(&self.0).entry(claim.id).or_default());
        let locking = Arc::clone(&entry.under_way).lock_owned();
        let locked = Clock::Boot.timeout(limit, locking).await;
        let _under_way = locked.map_err(|_| too_late("take the lock", limit))?;
        // An earlier join of the same claim has removed it when it ended.
        lock(&self.0).insert(claim.id, Arc::clone(&entry));
        Ok(Arc::new(Joining { claim: claim.clone(), note, entry, all: Arc::clone(&self.0), _under_way }))
    }

    /// Before a leave: waits until the claim's join is over. If it takes longer than the limit, such as on a runtime that
    /// is blocked, it was sent long ago or never will be.
    pub(crate) async fn settle(&self, id: ClaimId, limit: Duration) {
        let Some(entry) = lock(&self.0).get(&id).cloned() else { return };
        entry.has_left.store(true, SeqCst);
        let _ = Clock::Boot.timeout(limit, entry.under_way.lock()).await;
    }
}

impl Joining {
    /// Whether a leave has been sent for it, so that a join would stay until it expires.
    pub(crate) fn has_left(&self) -> bool {
        self.entry.has_left.load(SeqCst)
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if all.get(&self.claim.id).is_some_and(|entry| Arc::ptr_eq(entry, &self.entry)) {
            all.remove(&self.claim.id);
        }
    }
}

struct Joins {
    pool: Pool,
    join_one: Arc<str>,
    texts: &'static Texts,
}

impl Batch for Joins {
    type Request = Arc<Joining>;
    type Reply = Result<Number>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, asks: &[Arc<Joining>]) -> Vec<Result<Number>> {
        if let [ask] = asks {
            return vec![self.one(ask).await];
        }
        match self.many(asks).await {
            Ok(numbers) => asks.iter().map(|ask| Ok(numbers.get(&ask.claim.id).copied())).collect(),
            // One must not fail because of the others.
            Err(_) => join_all(asks.iter().map(|ask| self.one(ask))).await,
        }
    }
}

impl Joins {
    async fn one(&self, joining: &Arc<Joining>) -> Result<Number> {
        let (joining, text) = (Arc::clone(joining), Arc::clone(&self.join_one));
        let params = Params::Positional((self.texts.values)(&joining));
        let work: Work<Number> = Box::new(move |conn| {
            let (joining, text, params) = (Arc::clone(&joining), Arc::clone(&text), params.clone());
            Box::pin(async move {
                if joining.has_left() {
                    return Ok(None);
                }
                conn.exec_drop(&*text, params).await?;
                Ok(conn.last_insert_id().filter(|number| *number > 0))
            })
        });
        self.pool.run("take the lock", work).await
    }

    /// What those got whose rows were free.
    async fn many(&self, joinings: &[Arc<Joining>]) -> Result<HashMap<ClaimId, u64>> {
        let mut in_order = joinings.to_vec();
        in_order.retain(|joining| !joining.has_left());
        in_order.sort_by(|one, other| one.claim.name.cmp(&other.claim.name));
        if in_order.is_empty() {
            return Ok(HashMap::new());
        }
        let row = |joining: &Arc<Joining>| keys::fill(self.texts.row, &(self.texts.values)(joining));
        let rows: Vec<String> = in_order.iter().map(row).collect();
        let join = self.texts.join.replace("{rows}", &rows.join(","));
        let joined =
            fill(self.texts.joined, in_order.iter().map(|joining| (&joining.claim.name, joining.claim.id)));
        let work: Work<(Vec<(String, u64)>, u64)> = several(format!("{join};\n{joined}"));
        // The joins are over when the request is, not when somebody stops waiting for it.
        let work: Work<(Vec<(String, u64)>, u64)> = Box::new(move |conn| {
            let _under_way = &in_order;
            work(conn)
        });
        let (rows, _) = self.pool.run("take locks", work).await?;
        Ok(rows.into_iter().filter_map(|(id, number)| Some((id.parse().ok()?, number))).collect())
    }
}

/// One claim on its way out.
struct Leaving {
    name: LockName,
    id: ClaimId,
}

struct Leaves {
    pool: Pool,
    texts: &'static Texts,
}

impl Batch for Leaves {
    type Request = Leaving;
    type Reply = Result<bool>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, asks: &[Leaving]) -> Vec<Result<bool>> {
        if let [ask] = asks {
            return vec![self.one(ask).await];
        }
        match self.many(asks).await {
            Ok(left) => asks.iter().map(|ask| Ok(left.contains(&ask.id))).collect(),
            Err(_) => join_all(asks.iter().map(|ask| self.one(ask))).await,
        }
    }
}

impl Leaves {
    async fn one(&self, leaving: &Leaving) -> Result<bool> {
        let (text, params) =
            (self.texts.leave, (leaving.name.as_str().as_bytes().to_vec(), leaving.id.to_string()));
        let work: Work<bool> = Box::new(move |conn| {
            let params = params.clone();
            Box::pin(async move {
                conn.exec_drop(text, params).await?;
                Ok(conn.affected_rows() > 0)
            })
        });
        self.pool.run("free the lock", work).await
    }

    /// Those that had a row, and have left.
    async fn many(&self, leavings: &[Leaving]) -> Result<HashSet<ClaimId>> {
        let statements =
            fill(self.texts.leave_many, leavings.iter().map(|leaving| (&leaving.name, leaving.id)));
        let (rows, _) = self.pool.run("free locks", several::<String>(statements)).await?;
        Ok(rows.iter().filter_map(|id| id.parse().ok()).collect())
    }
}

/// A statement for these claims.
pub(crate) fn fill<'a>(text: &str, claims: impl Iterator<Item = (&'a LockName, ClaimId)> + Clone) -> String {
    let names = keys::names(claims.clone().map(|(name, _)| name.as_str()));
    text.replace("{names}", &names).replace("{ids}", &keys::ids(claims.map(|(_, id)| id)))
}

/// The statements that renew claims and ask for them.
pub(crate) struct KeepTexts {
    pub(crate) update: &'static str,
    /// Which of them are alive.
    pub(crate) alive: &'static str,
    /// Which of them somebody asks for.
    pub(crate) asked: &'static str,
    /// Asks for one.
    pub(crate) ask: &'static str,
}

/// Notes that somebody asks for a claim to be released; `false` if it is not there.
pub(crate) async fn ask(pool: &Pool, texts: &KeepTexts, name: &LockName, id: ClaimId) -> Result<bool> {
    let statements = [texts.ask, texts.asked].map(|text| fill(text, std::iter::once((name, id)))).concat();
    let (found, _) = pool.run("ask a holder to release", several::<String>(statements)).await?;
    Ok(!found.is_empty())
}

/// Renews all claims of a keeper; looks which are alive if the update did not find them all.
pub(crate) async fn keep(pool: &Pool, texts: &KeepTexts, renewals: &[Renewal]) -> Result<Kept> {
    // All have the same TTL but for fixed leases: usually one request.
    let mut by_ttl: BTreeMap<u64, Vec<&Claim>> = BTreeMap::new();
    // For every claim, since `id` says whose it is; the first keeps the list from being empty.
    let mut held_us = "WHEN '' THEN NULL".to_owned();
    for renewal in renewals {
        by_ttl.entry(microseconds(renewal.ttl)).or_default().push(&renewal.claim);
        if let Some(held_for) = renewal.held_for {
            held_us += &format!(" WHEN '{}' THEN {}", renewal.claim.id, microseconds(held_for));
        }
    }
    let mut all = Kept::default();
    for (ttl_us, claims) in by_ttl {
        let own = claims.iter().map(|claim| (&claim.name, claim.id));
        let update = fill(texts.update, own.clone()).replace("{ttl_us}", &ttl_us.to_string());
        let update = update.replace("{held_us}", &held_us);
        let update = format!("{};\n{}", update.trim_end(), fill(texts.asked, own.clone()));
        let update = Arc::new(several::<String>(update));
        let (alive, wanted) = (fill(texts.alive, own), claims.len() as u64);
        let work: Work<(Vec<String>, Option<Vec<String>>)> = Box::new(move |conn| {
            let (update, alive) = (Arc::clone(&update), alive.clone());
            Box::pin(async move {
                let (asked, changed) = update(conn).await?;
                let alive = if changed == wanted { None } else { Some(conn.query(alive).await?) };
                Ok((asked, alive))
            })
        });
        let (asked, kept) = pool.run("renew", work).await?;
        all.asked.extend(asked.iter().filter_map(|id| id.parse::<ClaimId>().ok()));
        if let Some(kept) = kept {
            let kept: HashSet<ClaimId> = kept.iter().filter_map(|id| id.parse().ok()).collect();
            all.dead.extend(claims.iter().map(|claim| claim.id).filter(|id| !kept.contains(id)));
        }
    }
    Ok(all)
}

pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
