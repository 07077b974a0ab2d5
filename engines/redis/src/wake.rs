//! Who waits in this process, and how a message finds it.

use lockkeeper_core::{Claim, ClaimId, ClaimMap, ClaimSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is known of a claim that has not been granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It waits. If somebody ahead may be dead by then, it looks by itself.
    Waits {
        look_at: Option<Instant>,
    },
    Holds,
    Gone,
}

/// One claim on its way or in the queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) claim: Claim,
    /// Down which lane its join went.
    pub(crate) near: bool,
    standing: Mutex<Standing>,
    turn: Notify,
}

impl Waiter {
    pub(crate) fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grant and an end are final: a late look must not take them back.
    pub(crate) fn tell(&self, news: Standing) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*standing, Standing::Waits { .. }) {
            *standing = news;
            drop(standing);
            self.turn.notify_one();
        }
    }

    /// Resolves when there are news.
    pub(crate) async fn told(&self) {
        self.turn.notified().await;
    }
}

/// The claims of this engine that are on their way or wait. A claim is entered before its join is sent, so that
/// no message can be too early, and taken out when it is granted or leaves.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<ClaimMap<Arc<Waiter>>>);

impl Waiters {
    fn map(&self) -> MutexGuard<'_, ClaimMap<Arc<Waiter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, claim: &Claim, near: bool) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            claim: claim.clone(),
            near,
            standing: Mutex::new(Standing::Waits { look_at: None }),
            turn: Notify::new(),
        });
        self.map().insert(claim.id, Arc::clone(&waiter));
        waiter
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Arc<Waiter>> {
        self.map().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: ClaimId) -> Option<Arc<Waiter>> {
        self.map().remove(&id)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Waiter>> {
        self.map().values().cloned().collect()
    }

    /// Tells a claim; says whether it is here.
    pub(crate) fn tell(&self, id: ClaimId, news: Standing) -> bool {
        let waiter = self.get(id);
        if let Some(waiter) = &waiter {
            waiter.tell(news);
        }
        waiter.is_some()
    }
}

/// The attempts on their way down the near lane. If one is given up, its leave must follow it there, for on another lane it
/// could overtake it.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<ClaimSet>);

impl Flights {
    fn set(&self) -> MutexGuard<'_, ClaimSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, id: ClaimId) {
        self.set().insert(id);
    }

    pub(crate) fn remove(&self, id: ClaimId) -> bool {
        self.set().remove(&id)
    }
}

/// What a script says of a claim: 0 dead, 1 waits, 2 holds; and in how many milliseconds to look again, if ever.
pub(crate) fn standing(number: i64, look_in_ms: i64) -> Standing {
    match number {
        0 => Standing::Gone,
        1 => Standing::Waits {
            look_at: u64::try_from(look_in_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms)),
        },
        _ => Standing::Holds,
    }
}
