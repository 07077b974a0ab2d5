//! Few joins of a lock at a time: only etcd orders the queue by the requests as they come, so that thousands of joins would
//! stand before the leave that all of them wait for.
//!
//! A server that is slower than its clients would else be sent every join again before it came to reply, and the more so the
//! slower it is: it would never recover. What waits here has cost the server nothing, and takes its turn in order.

use lockkeeper_core::engine::{Claim, LockName};
use lockkeeper_core::{Demand, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Joins of a mutex or writer under way: one holds at a time, so that more would be no quicker.
const EXCLUSIVE: usize = 16;

/// Joins of readers or permits under way, of which many may hold.
const SHARED: usize = 64;

/// The locks that one keeper joins now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<Gates>>);

type Gates = HashMap<(LockName, bool), Arc<Gate>>;

#[derive(Debug)]
struct Gate {
    turns: Arc<Semaphore>,
    /// Raised when a join has failed, which those that wait would do, too.
    failures: watch::Sender<u64>,
}

/// Leave to join; dropping it lets the next one join.
#[derive(Debug)]
pub(crate) struct Turn {
    key: (LockName, bool),
    turns: Turns,
    gate: Option<Arc<Gate>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    fn gates(&self) -> MutexGuard<'_, Gates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the claim's turn, or until a join of the same lock has failed: the caller's would fail as well.
    ///
    /// Cancel safety: the next one has the turn.
    pub(crate) async fn next(&self, claim: &Claim) -> Result<Turn> {
        let key = key(claim);
        let gate = Arc::clone(self.gates().entry(key.clone()).or_insert_with(|| {
            let turns = Arc::new(Semaphore::new(if key.1 { EXCLUSIVE } else { SHARED }));
            Arc::new(Gate { turns, failures: watch::Sender::new(0) })
        }));
        let mut failures = gate.failures.subscribe();
        let turns = Arc::clone(&gate.turns);
        let mut turn = Turn { key, turns: self.clone(), gate: Some(gate), permit: None };
        turn.permit = tokio::select! {
            biased;
            permit = turns.acquire_owned() => permit.ok(),
            _ = failures.changed() => {
                return Err(Error::temporary("etcd", "join the queue", "a join of the same lock has just failed"));
            }
        };
        Ok(turn)
    }

    /// A join had no reply: those that wait need not find that out one after the other.
    pub(crate) fn failed(&self, claim: &Claim) {
        if let Some(gate) = self.gates().get(&key(claim)) {
            gate.failures.send_modify(|count| *count += 1);
        }
    }
}

fn key(claim: &Claim) -> (LockName, bool) {
    (claim.name.clone(), claim.demand == Demand::Exclusive)
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permit.take();
        let mut gates = self.turns.gates();
        self.gate.take();
        if gates.get(&self.key).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use lockkeeper_core::Holder;
    use lockkeeper_core::engine::ClaimId;
    use std::time::Duration;

    fn a_claim(name: &str, demand: Demand) -> Claim {
        Claim {
            id: ClaimId::random(),
            name: LockName::from_engine(name),
            demand,
            holder: Arc::new(Holder::here("test")),
            keeper: ClaimId(7),
            ttl: Duration::from_secs(10),
        }
    }

    #[tokio::test]
    async fn few_join_at_a_time_and_the_next_one_when_one_has_its_reply() {
        let (turns, claim) = (Turns::default(), a_claim("a", Demand::Exclusive));
        let mut under_way = Vec::new();
        for _ in 0..EXCLUSIVE {
            under_way.push(turns.next(&claim).await.unwrap());
        }
        let mut next = Box::pin(turns.next(&claim));
        assert!(next.as_mut().now_or_never().is_none());
        assert!(turns.next(&a_claim("b", Demand::Exclusive)).now_or_never().is_some(), "another lock");
        assert!(turns.next(&a_claim("a", Demand::Shared)).now_or_never().is_some(), "readers");
        under_way.pop();
        let next = next.now_or_never().unwrap().unwrap();
        drop((next, under_way));
        assert!(turns.gates().is_empty(), "nothing is remembered of an idle lock");
    }

    #[tokio::test]
    async fn those_that_wait_learn_of_a_failure_together() {
        let (turns, claim) = (Turns::default(), a_claim("a", Demand::Exclusive));
        let mut under_way = Vec::new();
        for _ in 0..EXCLUSIVE {
            under_way.push(turns.next(&claim).await.unwrap());
        }
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(turns.next(&claim))).collect();
        assert!(waiting.iter_mut().all(|next| next.as_mut().now_or_never().is_none()));
        turns.failed(&claim);
        for next in waiting {
            assert!(next.now_or_never().unwrap().unwrap_err().is_temporary());
        }
    }
}
