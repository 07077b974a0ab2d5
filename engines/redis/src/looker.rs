//! One looker for each lock: of all who wait here for one lock, only the first asks the server.

use lockkeeper_core::{ClaimId, LockName, NameMap};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A looker that is so late is one whose future nobody polls; the next one takes over.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// Who waits in this process, lock by lock.
#[derive(Debug, Default)]
pub struct Lookers(Mutex<NameMap<Line>>);

#[derive(Debug)]
struct Line {
    waiting: VecDeque<(ClaimId, Arc<Notify>)>,
    forgotten_at: Instant,
}

/// A claim's seat in its lock's line. Dropped, it lets the next one look.
#[derive(Debug)]
pub struct Seat<'a> {
    lookers: &'a Lookers,
    name: &'a LockName,
    id: ClaimId,
    turn: Arc<Notify>,
}

impl Lookers {
    fn lines(&self) -> MutexGuard<'_, NameMap<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sits down at the end of the line.
    pub fn sit<'a>(&'a self, name: &'a LockName, id: ClaimId) -> Seat<'a> {
        let turn = Arc::new(Notify::new());
        let mut lines = self.lines();
        let line = lines
            .entry(name.clone())
            .or_insert_with(|| Line { waiting: VecDeque::new(), forgotten_at: Instant::now() + FORGOTTEN });
        line.waiting.push_back((id, Arc::clone(&turn)));
        Seat { lookers: self, name, id, turn }
    }

    /// Messages may have been missed: everybody in front looks now.
    pub fn look_now(&self) {
        for line in self.lines().values() {
            if let Some((_, turn)) = line.waiting.front() {
                turn.notify_one();
            }
        }
    }
}

impl Seat<'_> {
    /// Resolves when it is this claim's part to look.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn in_front(&self) {
        while let Some(forgotten_at) = self.try_front() {
            let _ = tokio::time::timeout_at(forgotten_at, self.turn.notified()).await;
        }
    }

    /// `None` if this one is in front, else when the one in front must have looked.
    fn try_front(&self) -> Option<Instant> {
        let mut lines = self.lookers.lines();
        let line = lines.get_mut(self.name)?;
        let in_front = line.waiting.front().is_some_and(|(id, _)| *id == self.id);
        if !in_front && Instant::now() < line.forgotten_at {
            return Some(line.forgotten_at);
        }
        if !in_front {
            line.waiting.retain(|(id, _)| *id != self.id);
            line.waiting.push_front((self.id, Arc::clone(&self.turn)));
        }
        line.forgotten_at = Instant::now() + FORGOTTEN;
        None
    }

    /// Says that this one, in front, will look again after that pause.
    pub fn looks_after(&self, pause: Duration) {
        if let Some(line) = self.lookers.lines().get_mut(self.name) {
            line.forgotten_at = Instant::now() + pause + FORGOTTEN;
        }
    }

    /// Resolves when this claim should look before its pause is over.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn called(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut lines = self.lookers.lines();
        let Some(line) = lines.get_mut(self.name) else { return };
        let was_in_front = line.waiting.front().is_some_and(|(id, _)| *id == self.id);
        line.waiting.retain(|(id, _)| *id != self.id);
        match line.waiting.front() {
            Some((_, next)) if was_in_front => next.notify_one(),
            Some(_) => {}
            None => drop(lines.remove(self.name)),
        }
    }
}

/// How long a looker sleeps between two looks that nobody asked for.
#[derive(Debug, Default)]
pub struct Patience {
    holder: Vec<u8>,
    pause: Duration,
}

/// Another client does not tell us that it has left: the first pause until we look by ourselves, and the longest.
const FOREIGN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl Patience {
    /// While one of us holds, who will tell: about a third of the TTL, in case the message is lost.
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
        let mut patience = Patience::default();
        assert!(patience.with_foreign(b"one") <= FOREIGN.0);
        for _ in 0..30 {
            assert!(patience.with_foreign(b"one") <= FOREIGN.1);
        }
        assert!(patience.with_foreign(b"one") >= FOREIGN.1 / 2);
        assert!(patience.with_foreign(b"other") <= FOREIGN.0);
        assert!(patience.with_ours(Duration::from_secs(30)) >= Duration::from_secs(5));
    }

    #[tokio::test]
    async fn one_looks_and_the_next_takes_its_part() {
        let (lookers, name) = (Lookers::default(), LockName::from_engine("lock"));
        let first = lookers.sit(&name, ClaimId(1));
        let second = lookers.sit(&name, ClaimId(2));
        let third = lookers.sit(&name, ClaimId(3));
        assert!(first.in_front().now_or_never().is_some());
        assert!(second.in_front().now_or_never().is_none());
        drop(first);
        assert!(second.in_front().now_or_never().is_some());
        assert!(third.in_front().now_or_never().is_none());
        // Nobody polls the second any more.
        lookers.lines().values_mut().for_each(|line| line.forgotten_at = Instant::now());
        assert!(third.in_front().now_or_never().is_some());
        drop((second, third));
        assert!(lookers.lines().is_empty());
    }
}
