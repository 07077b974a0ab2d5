//! The memory engine: the reference for every other one, and the one to test your own loss handling on.

use crate::claim::{Claim, ClaimId, Demand, Token};
use crate::clock::{Clock, Moment};
use crate::engine::{Abilities, Engine, Kept, Left, Renewal};
use crate::error::Result;
use crate::grant;
use crate::name::LockName;
use crate::queue::{Ahead, Joined, Place, Queue, QueueEngine};
use crate::views::{ClaimView, LockView, Standing};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Locks in this process's memory. Clones share the locks.
///
/// With [`on_tokio_clock`](Self::on_tokio_clock) leases run on tokio's clock, which a test can pause and advance:
///
/// ```
/// # use lockkeeper_core::{Keeper, engine::Memory, State};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> lockkeeper_core::Result<()> {
/// let locks = Memory::on_tokio_clock();
/// let keeper = Keeper::builder().build(locks.connect())?;
/// let guard = keeper.mutex("job").lock().await?;
/// locks.cut(true); // nothing replies any more
/// tokio::time::sleep(Duration::from_secs(11)).await;
/// assert_eq!(guard.state(), State::Lost);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Memory(Arc<Store>);

#[derive(Debug)]
struct Store {
    clock: Clock,
    locks: Mutex<Locks>,
    cut: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct Locks {
    queues: HashMap<LockName, BTreeMap<Place, Entry>>,
    /// One counter for all locks: it outlives each of them (Law 8) and needs no room for idle ones.
    last_place: u64,
}

#[derive(Debug)]
struct Entry {
    id: ClaimId,
    demand: Demand,
    holder: Arc<crate::claim::Holder>,
    joined_at: Moment,
    granted_at: Option<Moment>,
    expires_at: Moment,
    asked: bool,
    /// Woken when the claim fits, or is gone.
    turn: Arc<Notify>,
}

static NAMED: LazyLock<Mutex<HashMap<String, Weak<Store>>>> = LazyLock::new(Mutex::default);

impl Default for Memory {
    fn default() -> Self {
        Self::on(Clock::Boot)
    }
}

impl Memory {
    fn on(clock: Clock) -> Self {
        Self(Arc::new(Store { clock, locks: Mutex::default(), cut: false.into() }))
    }

    /// Locks of their own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks whose leases run on tokio's clock, which a test may pause. Keepers then run their background tasks on
    /// the runtime they are built on.
    pub fn on_tokio_clock() -> Self {
        Self::on(Clock::tokio())
    }

    /// The locks of that name in this process: `memory:name` in a URL.
    pub fn named(name: &str) -> Self {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return Self(store);
        }
        named.retain(|_, store| store.strong_count() > 0);
        let fresh = Self::new();
        named.insert(name.to_owned(), Arc::downgrade(&fresh.0));
        fresh
    }

    /// An engine on these locks.
    pub fn connect(&self) -> Arc<dyn Engine> {
        Arc::new(QueueEngine(self.clone()))
    }

    /// An engine on locks of its own.
    pub fn engine() -> Arc<dyn Engine> {
        Self::new().connect()
    }

    /// Cuts everybody off (or heals that): every request fails as if the server did not reply.
    pub fn cut(&self, cut: bool) {
        self.0.cut.store(cut, std::sync::atomic::Ordering::SeqCst);
    }

    fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// The locks, if we are not cut off.
    fn locks(&self, doing: &'static str) -> Result<MutexGuard<'_, Locks>> {
        if self.0.cut.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(crate::Error::temporary("memory", doing, "cut off by the test"));
        }
        Ok(self.0.locks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locks {
    /// Removes the dead, for good (Law 2), and wakes who fits now.
    fn prune(&mut self, name: &LockName, now: Moment) {
        self.remove(name, now, |entry| entry.expires_at <= now);
    }

    /// Removes claims and wakes who fits now; says how many were removed. A lock without claims leaves no trace.
    fn remove(&mut self, name: &LockName, now: Moment, goes: impl Fn(&Entry) -> bool) -> usize {
        let Some(queue) = self.queues.get_mut(name) else { return 0 };
        let before = queue.len();
        queue.retain(|_, entry| {
            let goes = goes(entry);
            if goes {
                entry.turn.notify_one();
            }
            !goes
        });
        let removed = before - queue.len();
        if queue.is_empty() {
            self.queues.remove(name);
        } else if removed > 0 {
            wake(queue, now);
        }
        removed
    }

    fn entry(&mut self, claim: &Claim) -> Option<(Place, &mut Entry)> {
        let queue = self.queues.get_mut(&claim.name)?;
        queue.iter_mut().find(|(_, entry)| entry.id == claim.id).map(|(place, entry)| (*place, entry))
    }

    fn ahead(&self, name: &LockName, place: Place) -> Ahead {
        let queue = self.queues.get(name);
        Ahead(queue.map_or(0, |queue| queue.range(..place).map(|(_, entry)| entry.demand.weight()).sum()))
    }
}

/// Law 10: wakes just the claims that fit, which is their grant. (Nobody waits for those that held before.)
fn wake(queue: &mut BTreeMap<Place, Entry>, now: Moment) {
    let mut ahead = 0;
    for entry in queue.values_mut() {
        if !grant::fits(ahead, entry.demand.weight(), entry.demand.limit()) {
            return;
        }
        ahead += entry.demand.weight();
        entry.granted_at.get_or_insert(now);
        entry.turn.notify_one();
    }
}

impl Queue for Memory {
    fn abilities(&self) -> Abilities {
        Abilities::new("memory", "queue", "memory:").queue().push().detach().ask().one_process()
    }

    fn clock(&self) -> Clock {
        self.0.clock
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let now = self.now();
        let mut locks = self.locks("join the queue")?;
        locks.prune(&claim.name, now);
        let place = match locks.entry(claim) {
            Some((place, _)) => place,
            None => {
                if let Some((_, oldest)) =
                    locks.queues.get(&claim.name).and_then(|queue| queue.first_key_value())
                {
                    claim.check_shape(oldest.demand.shape())?;
                }
                locks.last_place += 1;
                let place = Place(locks.last_place);
                let fits = grant::fits(
                    locks.ahead(&claim.name, place).0,
                    claim.demand.weight(),
                    claim.demand.limit(),
                );
                let entry = Entry {
                    id: claim.id,
                    demand: claim.demand,
                    holder: Arc::clone(&claim.holder),
                    joined_at: now,
                    granted_at: fits.then_some(now),
                    expires_at: now.plus(claim.ttl),
                    asked: false,
                    turn: Arc::default(),
                };
                locks.queues.entry(claim.name.clone()).or_default().insert(place, entry);
                place
            }
        };
        Ok(Joined { place, token: Token(place.0), ahead: locks.ahead(&claim.name, place), lifeline: None })
    }

    async fn changed(&self, claim: &Claim, place: Place, seen: Ahead) -> Result<Ahead> {
        loop {
            let (turn, next_expiry) = {
                let mut locks = self.locks("look at the queue")?;
                locks.prune(&claim.name, self.now());
                let turn = Arc::clone(&locks.entry(claim).ok_or_else(|| claim.gone())?.1.turn);
                let ahead = locks.ahead(&claim.name, place);
                if ahead < seen {
                    return Ok(ahead);
                }
                let expiries =
                    locks.queues.get(&claim.name).into_iter().flat_map(|queue| queue.range(..place));
                (turn, expiries.map(|(_, entry)| entry.expires_at).min().unwrap_or(Moment::NEVER))
            };
            tokio::select! {
                () = turn.notified() => {}
                () = self.0.clock.sleep_until(next_expiry) => {}
            }
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let now = self.now();
        let mut locks = self.locks("renew")?;
        let mut kept = Kept::default();
        for Renewal { claim, ttl, .. } in renewals {
            locks.prune(&claim.name, now);
            match locks.entry(claim) {
                Some((_, entry)) => {
                    entry.expires_at = now.plus(*ttl);
                    kept.asked.extend(entry.asked.then_some(claim.id));
                }
                None => kept.dead.push(claim.id),
            }
        }
        Ok(kept)
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let mut locks = self.locks("leave the queue")?;
        let now = self.now();
        locks.prune(&claim.name, now);
        let removed = locks.remove(&claim.name, now, |entry| entry.id == claim.id);
        Ok(if removed > 0 { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let mut locks = self.locks("downgrade")?;
        let now = self.now();
        locks.prune(&claim.name, now);
        locks.entry(claim).ok_or_else(|| claim.gone())?.1.demand = to;
        if let Some(queue) = locks.queues.get_mut(&claim.name) {
            wake(queue, now);
        }
        Ok(())
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let now = self.now();
        let mut locks = self.locks("list locks")?;
        let mut names: Vec<LockName> =
            locks.queues.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        names.sort();
        names.truncate(at_most);
        for name in &names {
            locks.prune(name, now);
        }
        let queues = names.iter().filter_map(|name| locks.queues.get(name).map(|queue| (name, queue)));
        Ok(queues.map(|(name, queue)| view(name, queue, now)).collect())
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        Ok(self.locks("evict a claim")?.remove(name, self.now(), |entry| entry.id == id) > 0)
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let mut locks = self.locks("ask a holder to release")?;
        locks.prune(name, self.now());
        let queue = locks.queues.get_mut(name);
        let found = queue.and_then(|queue| queue.values_mut().find(|entry| entry.id == id));
        Ok(found.is_some_and(|entry| {
            entry.asked = true;
            true
        }))
    }

    async fn close(&self) {}
}

fn view(name: &LockName, queue: &BTreeMap<Place, Entry>, now: Moment) -> LockView {
    let claims = queue.iter().map(|(place, entry)| {
        ClaimView::new(entry.id.to_string(), Standing::Waits, entry.demand, entry.holder.as_ref().clone())
            .token(Some(Token(place.0)))
            .age(Some(now.since(entry.joined_at)))
            .held_for(entry.granted_at.map(|granted_at| now.since(granted_at)))
            .ttl_left(Some(entry.expires_at.since(now)).filter(|left| *left < Duration::MAX))
    });
    LockView::from_queue(name.as_str(), claims.collect())
}
