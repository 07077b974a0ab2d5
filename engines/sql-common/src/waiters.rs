//! A keeper's claims that wait: messages and looks are entered here, and waits read them.
//!
//! One look per pace serves all waiters of a keeper, whatever their number (Law 10).

use crate::pace::Pace;
use lockkeeper_core::Result;
use lockkeeper_core::engine::{Ahead, Claim, ClaimId, Clock, LockName, Moment};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// One claim on its way, waiting or held, as this process knows it.
#[derive(Debug)]
pub struct Waiter {
    /// The claim.
    pub id: ClaimId,
    /// Its lock.
    pub name: LockName,
    /// Its place, once it has joined; 0 before.
    pub place: AtomicU64,
    /// It stands in the queue for certain, for an engine where it may have another place until others come.
    pub is_queued: AtomicBool,
    waits: AtomicBool,
    ahead: AtomicU64,
    gone: AtomicBool,
    turn: Notify,
}

impl Waiter {
    /// The weight ahead as last known.
    pub fn ahead(&self) -> Ahead {
        Ahead(self.ahead.load(SeqCst))
    }

    fn notify(&self, ahead: u64) {
        // What stands ahead only shrinks, so an old message cannot undo a newer look (Law 1).
        self.ahead.fetch_min(ahead, SeqCst);
        self.turn.notify_one();
    }

    fn notify_gone(&self) {
        self.gone.store(true, SeqCst);
        self.turn.notify_one();
    }
}

/// What a look found of one waiting claim.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The claim.
    pub id: ClaimId,
    /// The weight ahead of it.
    pub ahead: u64,
    /// When the first claim ahead would expire, if it is not renewed.
    pub free_in: Option<Duration>,
}

/// The claims of a keeper.
#[derive(Debug)]
pub struct Waiters {
    claims: Mutex<HashMap<ClaimId, Arc<Waiter>>>,
    /// When the next look is due, in nanoseconds on the boot clock.
    looks_at: AtomicU64,
    sooner: Notify,
    looks: Looks,
    closed: AtomicBool,
}

/// How often waiters are looked after.
#[derive(Debug)]
enum Looks {
    /// Messages wake them, and looks come at this pace in case one got lost.
    Beneath(Duration),
    /// There are no messages.
    Only(Pace),
}

/// Lets an expired claim be expired for certain when we look.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

impl Waiters {
    /// Without claims; messages wake them, and looks come at this pace.
    pub fn new(pace: Duration) -> Self {
        Self::with(Looks::Beneath(pace))
    }

    /// Without claims; no message wakes them, only looks do.
    pub fn polling() -> Self {
        Self::with(Looks::Only(Pace::default()))
    }

    fn with(looks: Looks) -> Self {
        Self {
            claims: Mutex::default(),
            looks_at: AtomicU64::new(u64::MAX),
            sooner: Notify::new(),
            looks,
            closed: AtomicBool::new(false),
        }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Waiter>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a claim before its join is sent, so that a message that comes right after it is not missed.
    pub fn enter(&self, claim: &Claim) -> Arc<Waiter> {
        let mut claims = self.claims();
        let waiter = claims.entry(claim.id).or_insert_with(|| {
            Arc::new(Waiter {
                id: claim.id,
                name: claim.name.clone(),
                place: AtomicU64::new(0),
                is_queued: AtomicBool::new(false),
                waits: AtomicBool::new(false),
                ahead: AtomicU64::new(u64::MAX),
                gone: AtomicBool::new(false),
                turn: Notify::new(),
            })
        });
        Arc::clone(waiter)
    }

    /// The entry of a claim.
    pub fn find(&self, id: ClaimId) -> Option<Arc<Waiter>> {
        self.claims().get(&id).cloned()
    }

    /// Forgets a claim: it has left, or never was at the engine.
    pub fn forget(&self, id: ClaimId) {
        self.claims().remove(&id);
    }

    /// Whether it knows of no claim.
    pub fn is_empty(&self) -> bool {
        self.claims().is_empty()
    }

    /// The claim has to wait: from now on it is looked after, first when a claim ahead may expire.
    pub fn waits(&self, waiter: &Waiter, free_in: Option<Duration>) {
        waiter.waits.store(true, SeqCst);
        let pace = self.pace();
        self.look_in(free_in.map_or(pace, |time| (time + AFTER_EXPIRY).min(pace)));
    }

    fn pace(&self) -> Duration {
        match &self.looks {
            Looks::Beneath(pace) => *pace,
            Looks::Only(pace) => {
                pace.count(true);
                pace.pause()
            }
        }
    }

    /// A claim of this keeper has left: if no message says so, those who wait here for the same lock look at once.
    pub fn left(&self, name: &LockName) {
        if matches!(self.looks, Looks::Only(_))
            && self.claims().values().any(|waiter| waiter.name == *name && waiter.waits.load(SeqCst))
        {
            self.look_in(Duration::ZERO);
        }
    }

    /// Brings the next look forward.
    pub fn look_in(&self, time: Duration) {
        let at = Clock::Boot.now().plus(time).as_nanos();
        if self.looks_at.fetch_min(at, SeqCst) > at {
            self.sooner.notify_one();
        }
    }

    /// A message says what stands ahead of a claim now.
    pub fn notify(&self, id: ClaimId, ahead: u64) {
        if let Some(waiter) = self.find(id) {
            waiter.notify(ahead);
        }
    }

    /// Waits until less than `seen` stands ahead of the claim.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Lost`](lockkeeper_core::Error::Lost) when the claim is gone.
    pub async fn changed(&self, claim: &Claim, seen: Ahead) -> Result<Ahead> {
        let waiter = self.enter(claim);
        if !waiter.waits.load(SeqCst) {
            self.waits(&waiter, Some(Duration::ZERO));
        }
        loop {
            if waiter.gone.load(SeqCst) {
                return Err(claim.gone());
            }
            let ahead = waiter.ahead();
            if ahead < seen {
                let (weight, limit) = (claim.demand.weight(), claim.demand.limit());
                let fits = lockkeeper_core::engine::grant::fits(ahead.0, weight, limit);
                waiter.waits.store(!fits, SeqCst);
                return Ok(ahead);
            }
            waiter.turn.notified().await;
        }
    }

    /// The claims to look for.
    pub fn waiting(&self) -> Vec<Arc<Waiter>> {
        self.claims().values().filter(|waiter| waiter.waits.load(SeqCst)).cloned().collect()
    }

    /// Writes down what a look for these claims found: those it did not find are gone.
    pub fn looked(&self, asked: &[Arc<Waiter>], seen: &[Seen]) {
        let found: HashMap<ClaimId, &Seen> = seen.iter().map(|seen| (seen.id, seen)).collect();
        for waiter in asked {
            match found.get(&waiter.id) {
                Some(seen) => waiter.notify(seen.ahead),
                None => waiter.notify_gone(),
            }
        }
        if let Some(soonest) = seen.iter().filter_map(|seen| seen.free_in).min() {
            self.look_in(soonest + AFTER_EXPIRY);
        }
    }

    /// Resolves when a look is due, and puts the next one a pace later; `false` when it is closed.
    pub async fn due(&self) -> bool {
        loop {
            if self.closed.load(SeqCst) {
                return false;
            }
            let at = Moment::from_nanos(self.looks_at.load(SeqCst));
            if Clock::Boot.now() >= at {
                // First the new time, then the question who waits: one who begins to wait in between asks for
                // a look by itself.
                self.looks_at.store(Clock::Boot.now().plus(self.pace()).as_nanos(), SeqCst);
                if !self.waiting().is_empty() {
                    return true;
                }
                if let Looks::Only(pace) = &self.looks {
                    pace.count(false);
                }
                self.looks_at.fetch_max(u64::MAX, SeqCst);
                if self.waiting().is_empty() {
                    continue;
                }
                self.look_in(Duration::ZERO);
            }
            tokio::select! {
                () = self.sooner.notified() => {}
                () = Clock::Boot.sleep_until(at) => {}
            }
        }
    }

    /// Ends the looking.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.sooner.notify_one();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }
}
