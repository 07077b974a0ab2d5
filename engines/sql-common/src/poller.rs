//! Waiting where the server sends no messages and a claim is not in a queue: one look serves all who wait in a keeper.

use crate::pace::Pace;
use lockkeeper_core::engine::{Clock, LockName};
use lockkeeper_core::{Error, Result};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// Those who wait for their turn, lock by lock.
type Waiting = HashMap<LockName, VecDeque<oneshot::Sender<Result<()>>>>;

/// Who waits in this keeper, lock by lock.
#[derive(Debug, Default)]
pub struct Poller {
    waiting: Mutex<Waiting>,
    somebody: Notify,
    pace: Pace,
    closed: AtomicBool,
}

impl Poller {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the lock was seen free and it is this one's turn to try, or when it all ends.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// That of a look that failed: a wait must learn that the server does not reply.
    pub async fn turn(&self, name: &LockName) -> Result<()> {
        let (sender, turn) = oneshot::channel();
        self.waiting().entry(name.clone()).or_default().push_back(sender);
        if self.closed.load(SeqCst) {
            return Ok(());
        }
        self.somebody.notify_one();
        turn.await.unwrap_or(Ok(()))
    }

    /// Resolves when a look is due, with the locks to look at: some thirteen times a second in this process as long as
    /// somebody waits, at random moments so that many keepers do not come together. `None` when it was closed.
    pub async fn due(&self) -> Option<Vec<LockName>> {
        loop {
            self.pace.count(true);
            Clock::Boot.sleep(self.pace.pause()).await;
            let names = self.names();
            self.pace.count(!names.is_empty());
            if self.closed.load(SeqCst) {
                return None;
            }
            if !names.is_empty() {
                return Some(names);
            }
            self.somebody.notified().await;
        }
    }

    /// The locks that somebody still waits for.
    fn names(&self) -> Vec<LockName> {
        let mut waiting = self.waiting();
        waiting.retain(|_, line| {
            line.retain(|turn| !turn.is_closed());
            !line.is_empty()
        });
        waiting.keys().cloned().collect()
    }

    /// A look at these locks found that some are held: of those who wait for one of the others, the first may try.
    pub fn looked(&self, at: &[LockName], held: &HashSet<LockName>) {
        let mut waiting = self.waiting();
        for name in at.iter().filter(|name| !held.contains(*name)) {
            let Some(line) = waiting.get_mut(name) else { continue };
            while line.pop_front().is_some_and(|turn| turn.send(Ok(())).is_err()) {}
        }
    }

    /// A look at these locks failed: all who wait for one of them learn it.
    pub fn failed(&self, at: &[LockName], error: &Error) {
        let mut waiting = self.waiting();
        for turn in at.iter().filter_map(|name| waiting.remove(name)).flatten() {
            let _ = turn.send(Err(error.copy()));
        }
    }

    /// Ends every wait.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.waiting().clear();
        self.somebody.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn one_of_those_who_wait_for_a_free_lock_may_try() {
        let poller = Poller::default();
        let [free, held] = ["free", "held"].map(LockName::from_engine);
        let mut waits = [&free, &free, &free, &held].map(|name| Box::pin(poller.turn(name)));
        for wait in &mut waits {
            assert!(wait.as_mut().now_or_never().is_none());
        }
        let [gone, first, second, other] = waits;
        drop(gone);
        let at = poller.due().await.unwrap();
        assert_eq!(at.len(), 2);
        poller.looked(&at, &HashSet::from([held.clone()]));
        first.await.unwrap();
        let mut waits = [second, other];
        assert!(waits.iter_mut().all(|wait| wait.as_mut().now_or_never().is_none()));
        poller.close();
        let [second, other] = waits;
        second.await.unwrap();
        other.await.unwrap();
        assert!(poller.due().await.is_none());
    }

    #[tokio::test]
    async fn all_who_wait_learn_that_a_look_failed() {
        let poller = Poller::default();
        let [one, other] = ["one", "other"].map(LockName::from_engine);
        let mut waits = [&one, &one, &other].map(|name| Box::pin(poller.turn(name)));
        for wait in &mut waits {
            assert!(wait.as_mut().now_or_never().is_none());
        }
        poller.failed(std::slice::from_ref(&one), &Error::temporary("sql", "look", "it is down"));
        let [first, second, mut third] = waits;
        assert!(first.await.is_err_and(|error| error.is_temporary()));
        assert!(second.await.is_err_and(|error| error.is_temporary()));
        assert!(third.as_mut().now_or_never().is_none(), "nobody looked for it");
    }
}
