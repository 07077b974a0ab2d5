//! Looks at the engine while somebody watches, and tells what changed: claims that join, hold, leave, are lost.

use lockkeeper_core::engine::Moment;
use lockkeeper_core::{ClaimView, LockView, Standing, Token, deadlocks};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use utoipa::ToSchema;

use crate::hold::Held;
use crate::listings::{LOCKS, LOOK_EVERY, Listings};
use crate::session::CLOCK;

/// How much of its time a claim may have left that counts as expired: looks are not exact.
const SLACK: Duration = Duration::from_millis(50);

/// How many past claims are remembered, of one lock and in all.
const HISTORY: (usize, usize) = (50, 5_000);

/// What happened to a claim.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Happened {
    #[serde(skip)]
    pub(crate) event: &'static str,
    time_ms: u64,
    pub(crate) lock: String,
    claim: String,
    who: String,
    host: String,
    pid: u32,
    demand: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

/// A claim that is no more.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Past {
    /// The claim.
    claim: String,
    /// Whose it was.
    who: String,
    /// How much it wanted.
    demand: String,
    /// Its fencing token, if it held.
    token: Option<u64>,
    /// When it was first seen, in milliseconds since 1970.
    joined_ms: u64,
    /// When it was first seen to hold.
    held_ms: Option<u64>,
    /// When it was first seen to be gone.
    left_ms: u64,
    /// Whether it ended without a release, as far as this server knows.
    lost: bool,
    /// It was a hold of this server's.
    #[serde(skip)]
    is_own: bool,
}

/// Watches the engine. Clones are the same.
#[derive(Clone)]
pub(crate) struct Watcher(Arc<Inner>);

struct Inner {
    listings: Listings,
    events: broadcast::Sender<Happened>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    running: bool,
    claims: HashMap<String, Known>,
    deadlocks: BTreeSet<String>,
    looked_at: Option<Moment>,
    history: History,
}

/// The last claims that are no more.
#[derive(Default)]
struct History {
    /// Those of each lock, the oldest first, with numbers that grow.
    by_lock: HashMap<String, VecDeque<(u64, Past)>>,
    /// The same across locks, and some that are forgotten already.
    order: VecDeque<(u64, String)>,
    next: u64,
    in_all: usize,
}

struct Known {
    lock: String,
    view: ClaimView,
    joined: SystemTime,
    /// Since when it holds, if that is known.
    held: Option<(SystemTime, Moment)>,
    /// When this server granted it, if it did: a list that began before does not have it.
    granted: Option<Moment>,
    /// The most that was left of its TTL: nearly all of it, just after a renewal.
    ttl: Option<Duration>,
}

impl Watcher {
    pub(crate) fn new(listings: Listings) -> Self {
        let (events, _) = broadcast::channel(1024);
        Self(Arc::new(Inner { listings, events, seen: Mutex::default() }))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events from now on. The engine is looked at as long as somebody has them.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Happened> {
        let receiver = self.0.events.subscribe();
        if !std::mem::replace(&mut self.seen().running, true) {
            tokio::spawn(self.clone().run());
        }
        receiver
    }

    async fn run(self) {
        loop {
            {
                let mut seen = self.seen();
                if self.0.events.receiver_count() == 0 {
                    seen.running = false;
                    seen.claims.clear();
                    return;
                }
            }
            let asked = CLOCK.now();
            let looked = match self.0.listings.all(asked).await {
                Ok((locks, began)) => {
                    self.changes(&locks, began);
                    began
                }
                Err(problem) => {
                    tracing::debug!(error = problem.detail, "could not look at the locks");
                    asked
                }
            };
            CLOCK.sleep_until(looked.plus(LOOK_EVERY)).await;
        }
    }

    fn changes(&self, locks: &[LockView], began: Moment) {
        let (now, moment) = (SystemTime::now(), CLOCK.now());
        let mut seen = self.seen();
        let mut present: HashMap<&str, (&LockView, &ClaimView)> = HashMap::new();
        for lock in locks {
            present.extend(lock.claims.iter().map(|claim| (claim.id.as_str(), (lock, claim))));
        }
        let names: HashSet<&str> = locks.iter().map(|lock| lock.name.as_str()).collect();
        let is_whole = locks.len() < LOCKS;
        let elapsed = seen.looked_at.replace(moment).map_or(Duration::ZERO, |before| moment.since(before));
        let gone: Vec<String> = seen
            .claims
            .iter()
            .filter(|(id, known)| !present.contains_key(id.as_str()) && !known.is_granted_since(began))
            .map(|(id, _)| id.clone())
            .collect();
        for known in gone.iter().filter_map(|id| seen.claims.remove(id)).collect::<Vec<_>>() {
            // A lock that is not in a full list may be in use nevertheless.
            if is_whole || names.contains(known.lock.as_str()) {
                let lost = known.has_expired(elapsed);
                self.tell(if lost { "lost" } else { "left" }, now, &known.lock, &known.view);
                seen.history.add(known.lock.clone(), known.past(now, lost));
            }
        }
        for (id, (lock, claim)) in present {
            let holds = claim.standing == Standing::Holds;
            // In a look that began before a hold of this server's was over.
            let was_own = seen.history.has_own(&lock.name, id);
            let granted = claim.held_for.map(|held_for| (now - held_for, moment.minus(held_for)));
            match seen.claims.get_mut(id) {
                Some(known) if known.is_granted_since(began) => {}
                Some(known) => {
                    let is_new = holds && known.view.standing != Standing::Holds;
                    known.held = granted.or(known.held).or(is_new.then_some((now, moment)));
                    known.ttl = known.ttl.max(claim.ttl_left);
                    known.view = claim.clone();
                    if is_new {
                        self.tell("holds", now, &lock.name, claim);
                    }
                }
                None if was_own => {}
                None => {
                    let known = Known {
                        lock: lock.name.clone(),
                        view: claim.clone(),
                        joined: now - claim.age.unwrap_or_default(),
                        held: granted,
                        granted: None,
                        ttl: claim.ttl_left,
                    };
                    seen.claims.insert(id.to_owned(), known);
                    self.tell(if holds { "holds" } else { "waits" }, now, &lock.name, claim);
                }
            }
        }
        let circles = deadlocks(locks);
        let texts: BTreeSet<String> = circles
            .iter()
            .map(|circle| circle.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            .collect();
        for (circle, text) in circles.iter().zip(&texts) {
            if !seen.deadlocks.contains(text)
                && let Some(first) = circle.first()
            {
                self.tell("deadlock", now, first.lock, first.claim);
            }
        }
        seen.deadlocks = texts;
    }

    fn tell(&self, event: &'static str, now: SystemTime, lock: &str, claim: &ClaimView) {
        let _ = self.0.events.send(Happened {
            event,
            time_ms: unix_ms(now),
            lock: lock.to_owned(),
            claim: claim.id.clone(),
            who: claim.holder.text.clone(),
            host: claim.holder.host.clone(),
            pid: claim.holder.pid,
            demand: claim.demand.to_string(),
            token: claim.token.map(|token| token.0),
        });
    }

    /// A hold of this server's own begins: those who watch are told at once, however short it is.
    pub(crate) fn is_granted(&self, held: &Held) {
        let mut seen = self.seen();
        if !seen.running {
            return;
        }
        let (now, moment) = (SystemTime::now(), CLOCK.now());
        for token in &held.tokens {
            let holder = held.session.holder.clone();
            let view = ClaimView::new(&token.claim, Standing::Holds, held.demand(), holder)
                .token(Some(Token(token.token)));
            let before = seen.claims.remove(&token.claim);
            if before.as_ref().is_none_or(|known| known.view.standing != Standing::Holds) {
                self.tell("holds", now, &token.name, &view);
            }
            let known = Known {
                lock: token.name.clone(),
                view,
                joined: before.map_or(held.times.0, |known| known.joined),
                held: Some((now, moment)),
                granted: Some(moment),
                ttl: None,
            };
            seen.claims.insert(token.claim.clone(), known);
        }
    }

    /// A hold of this server's own is over: how is known exactly, whether or not somebody watches.
    pub(crate) fn is_over(&self, held: &Held) {
        let (now, lost) = (SystemTime::now(), held.is_lost());
        let mut seen = self.seen();
        for token in &held.tokens {
            if let Some(known) = seen.claims.remove(&token.claim) {
                self.tell(if lost { "lost" } else { "left" }, now, &known.lock, &known.view);
            }
            let past = Past {
                claim: token.claim.clone(),
                who: held.session.holder.to_string(),
                demand: held.mode(),
                token: Some(token.token),
                joined_ms: unix_ms(held.times.0),
                held_ms: Some(unix_ms(held.times.1)),
                left_ms: unix_ms(now),
                lost,
                is_own: true,
            };
            seen.history.add(token.name.clone(), past);
        }
    }

    /// How long ago a claim was first seen to hold.
    pub(crate) fn held_for(&self, claim: &str) -> Option<Duration> {
        let seen = self.seen();
        seen.claims.get(claim).and_then(|known| known.held).map(|(_, moment)| CLOCK.now().since(moment))
    }

    /// The last claims of a lock, the newest first.
    pub(crate) fn history(&self, lock: &str) -> Vec<Past> {
        let seen = self.seen();
        let past = seen.history.by_lock.get(lock).into_iter().flatten();
        past.rev().map(|(_, past)| past.clone()).collect()
    }
}

impl Known {
    /// Whether this server granted it after this moment.
    fn is_granted_since(&self, moment: Moment) -> bool {
        self.granted.is_some_and(|granted| granted >= moment)
    }

    /// Whether it has probably expired since it was last seen, this long ago: its renewals were late, and its time was over.
    fn has_expired(&self, elapsed: Duration) -> bool {
        let (Some(left), Some(ttl)) = (self.view.ttl_left, self.ttl) else { return false };
        left <= elapsed + SLACK && left <= ttl / 2
    }

    fn past(self, now: SystemTime, lost: bool) -> Past {
        let holds = self.view.standing == Standing::Holds;
        // Of a holder that was never seen to wait, and whose grant the engine does not know, its join is the most that is known.
        let held = self.held.map(|(held, _)| held).or(holds.then_some(self.joined));
        Past {
            claim: self.view.id,
            who: self.view.holder.to_string(),
            demand: self.view.demand.to_string(),
            token: self.view.token.map(|token| token.0),
            joined_ms: unix_ms(self.joined),
            held_ms: held.map(unix_ms),
            left_ms: unix_ms(now),
            lost,
            is_own: false,
        }
    }
}

impl History {
    fn has_own(&self, lock: &str, claim: &str) -> bool {
        let past = self.by_lock.get(lock).into_iter().flatten();
        past.rev().any(|(_, past)| past.is_own && past.claim == claim)
    }

    fn add(&mut self, lock: String, past: Past) {
        let (of_lock, in_all) = HISTORY;
        let number = self.next;
        self.next += 1;
        let of_this = self.by_lock.entry(lock.clone()).or_default();
        of_this.push_back((number, past));
        self.order.push_back((number, lock));
        self.in_all += 1;
        if of_this.len() > of_lock {
            of_this.pop_front();
            self.in_all -= 1;
        }
        while self.in_all > in_all
            && let Some((number, lock)) = self.order.pop_front()
        {
            if let Some(of_this) = self.by_lock.get_mut(&lock)
                && of_this.front().is_some_and(|(oldest, _)| *oldest == number)
            {
                of_this.pop_front();
                self.in_all -= 1;
                if of_this.is_empty() {
                    self.by_lock.remove(&lock);
                }
            }
        }
        if self.order.len() > 2 * in_all {
            let by_lock = &self.by_lock;
            self.order.retain(|(number, lock)| {
                by_lock.get(lock).and_then(|past| past.front()).is_some_and(|(oldest, _)| oldest <= number)
            });
        }
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::{Demand, Holder, Keeper};

    fn view(ttl_left: Option<Duration>) -> ClaimView {
        let holder = Holder { text: "a".into(), host: "b".into(), pid: 1 };
        ClaimView::new("1", Standing::Holds, Demand::Exclusive, holder)
            .token(Some(Token(1)))
            .ttl_left(ttl_left)
    }

    fn known(ttl_left: Duration, ttl: Duration) -> Known {
        let joined = SystemTime::UNIX_EPOCH;
        Known {
            lock: "a".into(),
            view: view(Some(ttl_left)),
            joined,
            held: None,
            granted: None,
            ttl: Some(ttl),
        }
    }

    #[test]
    fn a_claim_has_expired_if_its_renewals_were_late_and_its_time_is_over() {
        let [ms300, s9] = [Duration::from_millis(300), Duration::from_secs(9)];
        for (left, ttl, is_lost) in [
            (ms300, ms300, false),
            (ms300 / 3, ms300, true),
            (s9, s9, false),
            (s9 / 3, s9, false),
            (LOOK_EVERY / 2, s9, true),
        ] {
            assert_eq!(known(left, ttl).has_expired(LOOK_EVERY), is_lost, "{left:?} of {ttl:?}");
        }
    }

    #[test]
    fn a_full_history_forgets_the_oldest_and_a_busy_lock_no_other() {
        let mut history = History::default();
        let mut add =
            |lock: String| history.add(lock, known(LOOK_EVERY, LOOK_EVERY).past(SystemTime::now(), false));
        add("quiet".into());
        for _ in 0..3 * HISTORY.1 {
            add("busy".into());
        }
        let (busy, quiet) = (history.by_lock["busy"].len(), history.by_lock["quiet"].len());
        assert_eq!((busy, quiet, history.in_all), (HISTORY.0, 1, HISTORY.0 + 1));
        assert!(history.order.len() <= 2 * HISTORY.1 + 1);
        let mut add =
            |lock: String| history.add(lock, known(LOOK_EVERY, LOOK_EVERY).past(SystemTime::now(), false));
        for number in 0..HISTORY.1 - 1 {
            add(format!("{number}"));
        }
        assert_eq!(history.in_all, HISTORY.1);
        assert!(!history.by_lock.contains_key("quiet") && history.by_lock.contains_key("0"));
    }

    #[test]
    fn a_full_list_of_locks_says_nothing_about_the_others() {
        let keeper = Keeper::builder().build(lockkeeper_core::engine::Memory::engine()).unwrap();
        let watcher = Watcher::new(Listings::new(keeper));
        let lock = |name: String| {
            let mut claim = view(None);
            claim.id.clone_from(&name);
            LockView::new(name, vec![claim])
        };
        let mut events = watcher.0.events.subscribe();
        let mut happened = || -> Vec<(&str, String)> {
            std::iter::from_fn(|| events.try_recv().ok())
                .map(|happened| (happened.event, happened.lock))
                .collect()
        };
        watcher.changes(&[lock("z".into())], CLOCK.now());
        assert_eq!(happened(), [("holds", "z".to_owned())]);
        let full: Vec<LockView> = (0..LOCKS).map(|number| lock(number.to_string())).collect();
        watcher.changes(&full, CLOCK.now());
        // The channel has no room for all of it, so the history shows whether it was taken for a departure.
        assert!(watcher.history("z").is_empty());
        watcher.changes(&full[1..], CLOCK.now());
        assert_eq!(watcher.history("0").len(), 1);
    }
}
