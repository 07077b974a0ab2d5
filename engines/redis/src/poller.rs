//! One poller for each lock: of all claims that wait here for one lock in a race, only the first polls the server.
//! Only Redis has holders that send no message.

use lockkeeper_core::engine::{ClaimId, Clock, LockName};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A poller that is this late is one whose future nobody polls; the next one takes over.
const OVERDUE: Duration = Duration::from_secs(5);

/// The claims that wait in this process, lock by lock.
#[derive(Debug, Default)]
pub struct Pollers(Mutex<HashMap<LockName, Waiting>>);

#[derive(Debug)]
struct Waiting {
    claims: VecDeque<(ClaimId, Arc<Notify>)>,
    overdue_at: Instant,
}

/// A claim among those that wait for its lock. Dropped, it lets the next one poll.
#[derive(Debug)]
pub struct Poller<'a> {
    pollers: &'a Pollers,
    name: &'a LockName,
    id: ClaimId,
    called: Arc<Notify>,
}

impl Pollers {
    fn map(&self) -> MutexGuard<'_, HashMap<LockName, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a claim behind those that wait already.
    pub fn enter<'a>(&'a self, name: &'a LockName, id: ClaimId) -> Poller<'a> {
        let called = Arc::new(Notify::new());
        let mut map = self.map();
        let waiting = map
            .entry(name.clone())
            .or_insert_with(|| Waiting { claims: VecDeque::new(), overdue_at: Instant::now() + OVERDUE });
        waiting.claims.push_back((id, Arc::clone(&called)));
        Poller { pollers: self, name, id, called }
    }

    /// Messages may have been missed: the first claim of every lock polls now.
    pub fn poll_now(&self) {
        for waiting in self.map().values() {
            if let Some((_, called)) = waiting.claims.front() {
                called.notify_one();
            }
        }
    }
}

impl Poller<'_> {
    /// Resolves when this claim is the one that polls.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn first(&self) {
        while let Some(overdue_at) = self.try_first() {
            let limit = overdue_at.saturating_duration_since(Instant::now());
            let _ = Clock::Boot.timeout(limit, self.called.notified()).await;
        }
    }

    /// `None` if this claim is the first, else when the one that is must have polled.
    fn try_first(&self) -> Option<Instant> {
        let mut map = self.pollers.map();
        let waiting = map.get_mut(self.name)?;
        let is_first = waiting.claims.front().is_some_and(|(id, _)| *id == self.id);
        if !is_first && Instant::now() < waiting.overdue_at {
            return Some(waiting.overdue_at);
        }
        if !is_first {
            waiting.claims.retain(|(id, _)| *id != self.id);
            waiting.claims.push_front((self.id, Arc::clone(&self.called)));
        }
        waiting.overdue_at = Instant::now() + OVERDUE;
        None
    }

    /// Says that this claim, the first, will poll again after that pause.
    pub fn polls_after(&self, pause: Duration) {
        if let Some(waiting) = self.pollers.map().get_mut(self.name) {
            waiting.overdue_at = Instant::now() + pause + OVERDUE;
        }
    }

    /// The server did not reply to this claim, the first: each of the others finds out for itself now, for its wait has a limit of its
    /// own.
    pub fn failed(&self) {
        let waiting = self.pollers.map().remove(self.name);
        for (_, called) in waiting.into_iter().flat_map(|waiting| waiting.claims) {
            called.notify_one();
        }
    }

    /// Resolves when this claim should poll before its pause is over.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn called(&self) {
        self.called.notified().await;
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        let mut map = self.pollers.map();
        let Some(waiting) = map.get_mut(self.name) else { return };
        let was_first = waiting.claims.front().is_some_and(|(id, _)| *id == self.id);
        waiting.claims.retain(|(id, _)| *id != self.id);
        match waiting.claims.front() {
            Some((_, next)) if was_first => next.notify_one(),
            Some(_) => {}
            None => drop(map.remove(self.name)),
        }
    }
}

/// The claims that want a message when their lock is free.
#[derive(Debug, Default)]
pub struct Wakes(Mutex<HashMap<ClaimId, Arc<Notify>>>);

/// A claim that wants a message. Dropped, it wants none any more.
#[derive(Debug)]
pub struct Wake<'a> {
    wakes: &'a Wakes,
    id: ClaimId,
    message: Arc<Notify>,
}

impl Wakes {
    fn map(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a claim.
    pub fn enter(&self, id: ClaimId) -> Wake<'_> {
        let message = Arc::new(Notify::new());
        self.map().insert(id, Arc::clone(&message));
        Wake { wakes: self, id, message }
    }

    /// Wakes a claim; says whether it is here.
    pub fn notify(&self, id: ClaimId) -> bool {
        let message = self.map().get(&id).cloned();
        if let Some(message) = &message {
            message.notify_one();
        }
        message.is_some()
    }
}

impl Wake<'_> {
    /// Resolves when the message has come.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn message(&self) {
        self.message.notified().await;
    }
}

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.wakes.map().remove(&self.id);
    }
}

/// How long a poller sleeps between two looks.
#[derive(Debug, Default)]
pub struct Pace {
    holder: Vec<u8>,
    pause: Duration,
}

/// Another client sends no message when it leaves: the first pause until a look, and the longest.
const FOREIGN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl Pace {
    /// While a lockkeeper holds, which sends a message: about a third of the TTL, in case it is lost.
    pub fn with_ours(&mut self, ttl: Duration) -> Duration {
        jitter((ttl / 3).max(FOREIGN.1))
    }

    /// While another client holds: short at first, and growing as long as the same one holds.
    pub fn with_foreign(&mut self, holder: &[u8]) -> Duration {
        self.pause = if self.holder == holder { (self.pause * 3 / 2).min(FOREIGN.1) } else { FOREIGN.0 };
        self.holder.clear();
        self.holder.extend_from_slice(holder);
        jitter(self.pause)
    }
}

/// At random, so that many keepers do not come together.
fn jitter(pause: Duration) -> Duration {
    use rand::RngExt as _;
    pause.mul_f64(rand::rng().random_range(0.5..1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn the_pause_for_another_client_grows_to_a_second_and_starts_anew_with_the_next_holder() {
        let mut pace = Pace::default();
        assert!(pace.with_foreign(b"one") <= FOREIGN.0);
        for _ in 0..30 {
            assert!(pace.with_foreign(b"one") <= FOREIGN.1);
        }
        assert!(pace.with_foreign(b"one") >= FOREIGN.1 / 2);
        assert!(pace.with_foreign(b"other") <= FOREIGN.0);
        assert!(pace.with_ours(Duration::from_secs(30)) >= Duration::from_secs(5));
    }

    #[tokio::test]
    async fn one_polls_and_the_next_takes_over() {
        let (pollers, name) = (Pollers::default(), LockName::from_engine("lock"));
        let first = pollers.enter(&name, ClaimId(1));
        let second = pollers.enter(&name, ClaimId(2));
        let third = pollers.enter(&name, ClaimId(3));
        assert!(first.first().now_or_never().is_some());
        assert!(second.first().now_or_never().is_none());
        drop(first);
        assert!(second.first().now_or_never().is_some());
        assert!(third.first().now_or_never().is_none());
        // Nobody polls the second any more.
        pollers.map().values_mut().for_each(|waiting| waiting.overdue_at = Instant::now());
        assert!(third.first().now_or_never().is_some());
        drop((second, third));
        assert!(pollers.map().is_empty());
    }

    #[tokio::test]
    async fn all_poll_when_the_first_had_no_reply() {
        let (pollers, name) = (Pollers::default(), LockName::from_engine("lock"));
        let [first, second, third] = [1, 2, 3].map(|id| pollers.enter(&name, ClaimId(id)));
        let mut waits = [&second, &third].map(|poller| Box::pin(poller.first()));
        assert!(waits.iter_mut().all(|wait| wait.as_mut().now_or_never().is_none()));
        first.failed();
        assert!(waits.iter_mut().all(|wait| wait.as_mut().now_or_never().is_some()));
        let next = pollers.enter(&name, ClaimId(4));
        assert!(next.first().now_or_never().is_some());
        drop(waits);
        drop((first, second, third));
        assert!(next.first().now_or_never().is_some(), "they are not those of the next one");
    }
}
