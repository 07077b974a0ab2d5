//! The queue style: a fair queue in two tables. A claim without others stands in the lock's own row.

use crate::batch::{Joining, KeepTexts, Texts, UnderWay, Writer, ask, fill, keep, microseconds};
use crate::config::Settings;
use crate::connection::{Pool, Work, first_row, rows, statement};
use crate::error::ENGINE;
use crate::view::{ListRow, claim_row};
use crate::{QUEUE, keys, wake};
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{
    Ahead, Claim, ClaimId, Clock, Connections, Joined, Kept, Left, LockName, Place, Queue, Renewal,
    background, grant,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use lockkeeper_sql_common::{Seen, Waiter, Waiters, lock_views};
use mysql_async::prelude::Queryable;
use mysql_async::{Params, Value};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_queue.sql");
const JOIN: &str = "CALL lockkeeper_join(?, ?, ?, ?, ?, ?, ?, ?, ?)";
const LEAVE: &str = "CALL lockkeeper_leave(?, ?)";
const SHRINK: &str = "CALL lockkeeper_shrink(?, ?, ?, ?)";
const SWEEP: &str = "CALL lockkeeper_sweep(?)";
const CLEAN: &str = "CALL lockkeeper_clean(86400)";
/// For claims in the queue, which never stand in their lock's row again.
const KEEP: KeepTexts = KeepTexts {
    update: include_str!("sql/queue_keep.sql"),
    alive: include_str!("sql/queue_alive.sql"),
    asked: include_str!("sql/queue_asked.sql"),
    ask: include_str!("sql/queue_ask.sql"),
};
/// For claims in their lock's row, which may move to the queue meanwhile.
const KEEP_SINGLE: KeepTexts = KeepTexts {
    update: concat!(include_str!("sql/single_keep.sql"), include_str!("sql/queue_keep.sql"), ";\nCOMMIT"),
    ..KEEP
};
const STAND: &str = include_str!("sql/queue_stand.sql");
const LOOK: &str = include_str!("sql/queue_look.sql");
const FITTING: &str = include_str!("sql/queue_fitting.sql");
const LIST_SINGLE: &str = include_str!("sql/single_list.sql");
const LIST: &str = include_str!("sql/queue_list.sql");

static SINGLE: Texts = Texts {
    join: include_str!("sql/single_join.sql"),
    row: include_str!("sql/single_row.sql"),
    joined: include_str!("sql/single_joined.sql"),
    leave: include_str!("sql/single_leave.sql"),
    leave_many: include_str!("sql/single_leave_many.sql"),
    values,
};

/// What a join says, in the lock's own row and in the queue; the note is the keeper's wake lock.
fn values(joining: &Joining) -> Vec<Value> {
    let Joining { claim, note, .. } = joining;
    vec![
        claim.name.as_str().into(),
        claim.id.to_string().into(),
        claim.demand.to_string().into(),
        claim.demand.weight().into(),
        claim.demand.limit().into(),
        permits(claim.demand).into(),
        claim.holder.encode().into(),
        note.as_str().into(),
        microseconds(claim.ttl).into(),
    ]
}

/// The number of permits, or 0 for a mutex or read-write lock: what everybody must agree on.
fn permits(demand: Demand) -> u64 {
    match demand.shape() {
        Shape::Permits { of } => of.into(),
        Shape::ReadWrite => 0,
    }
}

/// A fair queue in two tables.
pub(crate) struct TableQueue {
    connections: Arc<Connections<Writer>>,
    under_way: UnderWay,
    contended: Contended,
    waiters: Arc<Waiters>,
    /// The user lock by which the keeper is woken.
    wake_lock: String,
    limit: Duration,
}

impl TableQueue {
    /// Starts what wakes waiters.
    pub(crate) fn open(settings: Arc<Settings>) -> Self {
        let connections = Writer::connections(&settings, &SINGLE);
        let (waiters, woken) = (Arc::new(Waiters::new(settings.limits.look)), Arc::new(Notify::new()));
        let (wake_lock, limit) = (wake::name(), settings.limits.request);
        let tasks = background::handle();
        tasks.spawn(wake::listen(settings, wake_lock.clone(), Arc::clone(&waiters), Arc::clone(&woken)));
        tasks.spawn(look_when_woken(
            Arc::clone(&connections),
            wake_lock.clone(),
            Arc::clone(&waiters),
            woken,
        ));
        tasks.spawn(look_after(Arc::clone(&connections), Arc::clone(&waiters)));
        tasks.spawn(clean(Arc::clone(&connections), Arc::clone(&waiters)));
        let (under_way, contended) = (UnderWay::default(), Contended::default());
        Self { connections, under_way, contended, waiters, wake_lock, limit }
    }

    async fn run<T: Send + 'static>(&self, doing: &'static str, work: Work<T>) -> Result<T> {
        self.connections.foreground().await?.pool.run(doing, work).await
    }

    /// Joins by the procedure, which finds whatever is there.
    async fn join_queue(&self, waiter: &Waiter, joining: Arc<Joining>) -> Result<Joined> {
        const DOING: &str = "join the queue";
        let claim = joining.claim.clone();
        let params = Params::Positional(values(&joining));
        let work: Work<Option<JoinedRow>> = Box::new(move |conn| {
            let (joining, params) = (Arc::clone(&joining), params.clone());
            Box::pin(async move {
                if joining.has_left() { Ok(None) } else { conn.exec_first(JOIN, params).await }
            })
        });
        let row = self.run(DOING, work).await?;
        let row = row.ok_or_else(|| Error::temporary(ENGINE, DOING, "no row in the reply"))?;
        let joined = joined(&claim, &row).inspect_err(|_| self.waiters.forget(claim.id))?;
        waiter.is_queued.store(true, SeqCst);
        if !grant::fits(joined.ahead.0, claim.demand.weight(), claim.demand.limit()) {
            self.waiters.waits(waiter, row.2.map(duration));
        }
        Ok(joined)
    }

    fn is_queued(&self, id: ClaimId) -> bool {
        self.waiters.find(id).is_some_and(|waiter| waiter.is_queued.load(SeqCst))
    }

    /// Which of the claims stand in their lock's row (`true`) and which in the queue; those that have expired do not.
    async fn stand(&self, pool: &Pool, renewals: &[Renewal]) -> Result<HashMap<ClaimId, bool>> {
        let claims = renewals.iter().map(|renewal| (&renewal.claim.name, renewal.claim.id));
        let found = pool.run("see where claims stand", rows::<(String, bool)>(fill(STAND, claims))).await?;
        let found = found.into_iter().filter_map(|(id, is_single)| Some((id.parse().ok()?, is_single)));
        let stand: HashMap<ClaimId, bool> = found.collect();
        for (id, _) in stand.iter().filter(|(_, is_single)| !**is_single) {
            if let Some(waiter) = self.waiters.find(*id) {
                waiter.is_queued.store(true, SeqCst);
            }
        }
        Ok(stand)
    }

    async fn remove(&self, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        // On another connection a leave could overtake its join, which would then stay until it expires.
        self.under_way.settle(id, self.limit).await;
        let connection = self.connections.foreground().await?;
        if !self.contended.contains(name) && connection.leave(name, id).await? {
            self.waiters.forget(id);
            return Ok(true);
        }
        let params = (name.as_str().as_bytes().to_vec(), id.to_string());
        let left: Option<(u8, u8)> = connection.pool.run(doing, first_row(LEAVE, params)).await?;
        self.waiters.forget(id);
        if left == Some((1, 1)) {
            self.contended.note(name, false);
        }
        Ok(left.is_some_and(|(left, _)| left == 1))
    }

    fn end(&self) {
        self.waiters.close();
        self.connections.close();
    }
}

impl Drop for TableQueue {
    fn drop(&mut self) {
        self.end();
    }
}

fn duration(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.max(0).unsigned_abs())
}

fn number(number: i64) -> u64 {
    number.max(0).unsigned_abs()
}

/// Place, weight ahead, microseconds until the first claim ahead expires, and the oldest claim's demand if it rules.
type JoinedRow = (i64, i64, Option<i64>, Option<String>);

fn joined(claim: &Claim, row: &JoinedRow) -> Result<Joined> {
    if let Some(ruling) = &row.3 {
        let ruling: Demand = ruling
            .parse()
            .map_err(|error: String| Error::permanent(ENGINE, "read the oldest claim", error))?;
        claim.check_shape(ruling.shape())?;
    }
    Ok(at(number(row.0), number(row.1)))
}

fn at(place: u64, ahead: u64) -> Joined {
    Joined { place: Place(place), token: Token(place), ahead: Ahead(ahead), lifeline: None }
}

impl Queue for TableQueue {
    fn abilities(&self) -> Abilities {
        QUEUE
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let waiter = self.waiters.enter(claim);
        let joining = self.under_way.begin(claim, self.wake_lock.clone(), self.limit).await?;
        if !self.contended.contains(&claim.name) {
            waiter.is_queued.store(false, SeqCst);
            let place = self.connections.foreground().await?.join(Arc::clone(&joining)).await?;
            self.contended.note(&claim.name, place.is_none());
            if let Some(place) = place {
                return Ok(at(place, 0));
            }
        }
        Box::pin(self.join_queue(&waiter, joining)).await
    }

    async fn changed(&self, claim: &Claim, _: Place, seen: Ahead) -> Result<Ahead> {
        self.waiters.changed(claim, seen).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let pool = &self.connections.background().await?.pool;
        let (mut queued, mut rest): (Vec<Renewal>, Vec<Renewal>) =
            renewals.iter().cloned().partition(|renewal| self.is_queued(renewal.claim.id));
        let mut gone = Vec::new();
        if !rest.is_empty() {
            let stand = self.stand(pool, &rest).await?;
            rest.retain(|renewal| match stand.get(&renewal.claim.id) {
                Some(true) => true,
                Some(false) => {
                    queued.push(renewal.clone());
                    false
                }
                None => {
                    gone.push(renewal.claim.id);
                    false
                }
            });
        }
        // At once: a renewal in the lock's row may have to wait for those that join there.
        let (queued, rest) = tokio::join!(keep(pool, &KEEP, &queued), keep(pool, &KEEP_SINGLE, &rest));
        let (mut all, rest) = (queued?, rest?);
        all.dead.extend(gone.into_iter().chain(rest.dead));
        all.asked.extend(rest.asked);
        Ok(all)
    }

    fn detached(&self, claim: &Claim) {
        self.waiters.forget(claim.id);
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.remove(&claim.name, claim.id, "leave the queue").await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let name = claim.name.as_str().as_bytes().to_vec();
        let params = (name, claim.id.to_string(), to.to_string(), to.weight());
        let shrunk: Option<u8> = self.run("downgrade", first_row(SHRINK, params)).await?;
        if shrunk == Some(1) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let prefix = prefix.as_bytes().to_vec();
        let work: Work<Vec<ListRow>> = Box::new(move |conn| {
            let params = (prefix.clone(), prefix.len(), prefix.clone(), at_most);
            Box::pin(async move {
                // In this order: a claim in the lock's row may move to the queue meanwhile, but not back.
                let single: Vec<ListRow> = conn.exec(LIST_SINGLE, params.clone()).await?;
                let mut rows: Vec<ListRow> = conn.exec(LIST, params).await?;
                let queued: HashSet<String> = rows.iter().map(|row| row.1.clone()).collect();
                rows.extend(single.into_iter().filter(|row| !queued.contains(&row.1)));
                Ok(rows)
            })
        });
        let mut rows = self.run("list locks", work).await?;
        rows.sort_by(|one, other| (&one.0, one.4).cmp(&(&other.0, other.4)));
        let mut views = lock_views(rows.into_iter().map(claim_row));
        views.truncate(at_most);
        Ok(views)
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.remove(name, id, "evict a claim").await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        ask(&self.connections.foreground().await?.pool, &KEEP, name, id).await
    }

    async fn close(&self) {
        self.end();
    }
}

/// Locks that were not free when this keeper last joined them: there the claim goes to the queue at once. It may be wrong
/// both ways, which costs a request.
#[derive(Default)]
struct Contended(Mutex<HashSet<LockName>>);

impl Contended {
    /// How many are remembered.
    const AT_MOST: usize = 10_000;

    fn all(&self) -> MutexGuard<'_, HashSet<LockName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, name: &LockName) -> bool {
        self.all().contains(name)
    }

    fn note(&self, name: &LockName, is_contended: bool) {
        let mut all = self.all();
        if !is_contended {
            all.remove(name);
        } else if !all.contains(name) {
            if all.len() >= Self::AT_MOST {
                all.clear();
            }
            all.insert(name.clone());
        }
    }
}

/// Looks which claims fit when the keeper was woken. Once more a little later, for a wake that comes while nothing
/// waits on its connection is lost.
async fn look_when_woken(
    connections: Arc<Connections<Writer>>,
    wake_lock: String,
    waiters: Arc<Waiters>,
    woken: Arc<Notify>,
) {
    const ONCE_MORE: Duration = Duration::from_millis(10);
    /// How soon the end of the keeper is noticed.
    const PAUSE: Duration = Duration::from_secs(2);
    let mut again = false;
    while !waiters.is_closed() {
        let pause = if again { ONCE_MORE } else { PAUSE };
        let is_woken = Clock::Boot.timeout(pause, woken.notified()).await.is_ok();
        if !is_woken && !again {
            continue;
        }
        if let Err(error) = look_for_fitting(&connections, &wake_lock, &waiters).await {
            tracing::debug!(%error, "could not look which claims fit; trying again");
            waiters.look_in(ONCE_MORE);
        }
        again = is_woken;
    }
}

async fn look_for_fitting(
    connections: &Connections<Writer>,
    wake_lock: &str,
    waiters: &Waiters,
) -> Result<()> {
    let waiting = waiters.waiting();
    if waiting.is_empty() {
        return Ok(());
    }
    let names: BTreeSet<&str> = waiting.iter().map(|waiter| waiter.name.as_str()).collect();
    let look = FITTING.replace("{names}", &keys::names(names)).replace("{bell}", wake_lock);
    let pool = &connections.background().await?.pool;
    for (id, ahead) in pool.run("look which claims fit", rows::<(String, i64)>(look)).await? {
        if let Ok(id) = id.parse() {
            waiters.notify(id, number(ahead));
        }
    }
    Ok(())
}

/// Looks after the waiters: when a claim ahead of one may have expired, and at a slow pace in case a wake was lost.
async fn look_after(connections: Arc<Connections<Writer>>, waiters: Arc<Waiters>) {
    while waiters.due().await {
        let asked = waiters.waiting();
        if let Err(error) = look(&connections, &waiters, &asked).await {
            tracing::debug!(%error, "could not look after the waiters; trying again");
            waiters.look_in(Duration::from_millis(rand::random_range(20..100)));
        }
    }
}

async fn look(connections: &Connections<Writer>, waiters: &Waiters, asked: &[Arc<Waiter>]) -> Result<()> {
    type Row = (String, Vec<u8>, i64, Option<i64>);
    let names: BTreeSet<&str> = asked.iter().map(|waiter| waiter.name.as_str()).collect();
    let look = LOOK
        .replace("{names}", &keys::names(names))
        .replace("{ids}", &keys::ids(asked.iter().map(|waiter| waiter.id)));
    let pool = &connections.background().await?.pool;
    let (mut expired, mut seen) = (BTreeSet::new(), Vec::new());
    for (id, name, ahead, free_in_us) in pool.run("look at the queue", rows::<Row>(look)).await? {
        if free_in_us.is_some_and(|time| time <= 0) {
            expired.insert(name);
        }
        seen.push(Seen {
            id: id.parse().unwrap_or(ClaimId(0)),
            ahead: number(ahead),
            free_in: free_in_us.filter(|time| *time > 0).map(duration),
        });
    }
    waiters.looked(asked, &seen);
    for name in expired {
        pool.run("remove expired claims", statement(SWEEP, (name,))).await?;
    }
    Ok(())
}

/// Removes what nobody has used for long, now and then.
async fn clean(connections: Arc<Connections<Writer>>, waiters: Arc<Waiters>) {
    while !waiters.is_closed() {
        // At random, so that the keepers of a fleet do not all come at once.
        Clock::Boot.sleep(crate::CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        if waiters.is_closed() {
            return;
        }
        let cleaned = async { connections.background().await?.pool.run("clean", statement(CLEAN, ())).await };
        if let Err(error) = cleaned.await {
            tracing::debug!(%error, "could not remove idle locks");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::Keeper;
    use lockkeeper_core::engine::{Address, QueueEngine};
    use std::net::TcpListener;

    #[test]
    fn a_lock_is_remembered_as_it_was_last_and_not_too_many_are() {
        let (contended, name) = (Contended::default(), LockName::from_engine("a"));
        for is_contended in [true, true, false, false, true] {
            contended.note(&name, is_contended);
            assert_eq!(contended.contains(&name), is_contended);
        }
        for number in 0..Contended::AT_MOST {
            contended.note(&LockName::from_engine(&number.to_string()), true);
        }
        assert!(contended.all().len() <= Contended::AT_MOST);
    }

    #[tokio::test]
    async fn claims_that_could_not_leave_are_forgotten() {
        const TTL: Duration = Duration::from_millis(200);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let address =
            Address::parse(&format!("mysql://root@127.0.0.1:{port}/nobody-listens")).expect("a URL");
        let queue =
            TableQueue::open(Arc::new(Settings::from_address(address, TTL, "queue").expect("settings")));
        let waiters = Arc::clone(&queue.waiters);
        let keeper = Keeper::builder().ttl(TTL).build(Arc::new(QueueEngine(queue))).expect("a keeper");
        keeper.mutex("it").try_lock().await.expect_err("nobody listens");
        assert!(!waiters.is_empty(), "the claim may be at the server");
        keeper.close().await;
        assert!(waiters.is_empty());
    }
}
