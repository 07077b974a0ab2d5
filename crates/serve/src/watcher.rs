//! Looks at the engine while somebody watches, and tells what changed: claims that join, hold, leave, are lost.

use lockkeeper_core::engine::Moment;
use lockkeeper_core::{ClaimView, Keeper, LockView, Standing, deadlocks};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, broadcast};
use utoipa::ToSchema;

use crate::session::CLOCK;

/// How often the engine is looked at while somebody watches.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After a change of this server's own, so that a burst of them is one look.
const LOOK_SOON: Duration = Duration::from_millis(50);

/// How many locks are looked at.
const LOCKS: usize = 2_000;

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
    /// Whether its time was nearly over when it was last seen: it was not released.
    lost: bool,
}

/// Watches the engine. Clones are the same.
#[derive(Clone)]
pub(crate) struct Watcher(Arc<Inner>);

struct Inner {
    keeper: Keeper,
    events: broadcast::Sender<Happened>,
    soon: Notify,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    running: bool,
    claims: HashMap<String, Known>,
    deadlocks: BTreeSet<String>,
    past: HashMap<String, VecDeque<Past>>,
    past_in_all: usize,
}

struct Known {
    lock: String,
    view: ClaimView,
    joined: SystemTime,
    held: Option<(SystemTime, Moment)>,
}

impl Watcher {
    pub(crate) fn new(keeper: Keeper) -> Self {
        let (events, _) = broadcast::channel(1024);
        Self(Arc::new(Inner { keeper, events, soon: Notify::new(), seen: Mutex::default() }))
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

    /// Something has changed here, so that a look is worth while, if somebody watches.
    pub(crate) fn look_soon(&self) {
        self.0.soon.notify_one();
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
            match self.0.keeper.inspect_at_most("", LOCKS).await {
                Ok(locks) => self.changes(&locks),
                Err(error) => tracing::debug!(%error, "could not look at the locks"),
            }
            tokio::select! {
                () = self.0.soon.notified() => tokio::time::sleep(LOOK_SOON).await,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    fn changes(&self, locks: &[LockView]) {
        let (now, moment) = (SystemTime::now(), CLOCK.now());
        let mut seen = self.seen();
        let mut present: HashMap<&str, (&LockView, &ClaimView)> = HashMap::new();
        for lock in locks {
            present.extend(lock.claims.iter().map(|claim| (claim.id.as_str(), (lock, claim))));
        }
        let gone: Vec<String> =
            seen.claims.keys().filter(|id| !present.contains_key(id.as_str())).cloned().collect();
        for known in gone.iter().filter_map(|id| seen.claims.remove(id)).collect::<Vec<_>>() {
            let lost = known.view.ttl_left.is_some_and(|left| left <= LOOK_EVERY * 2);
            self.tell(if lost { "lost" } else { "left" }, now, &known.lock, &known.view);
            seen.remember(known, now, lost);
        }
        for (id, (lock, claim)) in present {
            let holds = claim.standing == Standing::Holds;
            match seen.claims.get_mut(id) {
                Some(known) => {
                    if holds && known.held.is_none() {
                        known.held = Some((now, moment));
                        self.tell("holds", now, &lock.name, claim);
                    }
                    known.view = claim.clone();
                }
                None => {
                    // A holder that is seen for the first time may have held since it joined.
                    let joined = now - claim.age.unwrap_or_default();
                    let held = holds.then(|| (joined, moment.minus(claim.age.unwrap_or_default())));
                    let known = Known { lock: lock.name.clone(), view: claim.clone(), joined, held };
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

    /// How long ago a claim was first seen to hold.
    pub(crate) fn held_for(&self, claim: &str) -> Option<Duration> {
        let seen = self.seen();
        seen.claims.get(claim).and_then(|known| known.held).map(|(_, moment)| CLOCK.now().since(moment))
    }

    /// The last claims of a lock, the newest first.
    pub(crate) fn history(&self, lock: &str) -> Vec<Past> {
        self.seen().past.get(lock).map(|past| past.iter().rev().cloned().collect()).unwrap_or_default()
    }
}

impl Seen {
    fn remember(&mut self, known: Known, now: SystemTime, lost: bool) {
        let (of_lock, in_all) = HISTORY;
        if self.past_in_all >= in_all {
            self.past.clear();
            self.past_in_all = 0;
        }
        let past = self.past.entry(known.lock).or_default();
        past.push_back(Past {
            claim: known.view.id,
            who: known.view.holder.to_string(),
            demand: known.view.demand.to_string(),
            token: known.view.token.map(|token| token.0),
            joined_ms: unix_ms(known.joined),
            held_ms: known.held.map(|(held, _)| unix_ms(held)),
            left_ms: unix_ms(now),
            lost,
        });
        self.past_in_all += 1;
        if past.len() > of_lock {
            past.pop_front();
            self.past_in_all -= 1;
        }
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
