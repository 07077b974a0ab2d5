//! A text in front of every key (`?prefix=/`): only in etcd do other clients' names begin with a slash, which ours cannot.

use crate::queue::Etcd;
use lockkeeper_core::engine::{
    Ahead, Attached, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Place, Queue, Renewal,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use std::sync::Arc;
use std::time::Duration;

/// The queue, whose locks have other names than the caller gives.
pub(crate) struct Prefixed {
    pub(crate) prefix: String,
    pub(crate) queue: Etcd,
}

/// Refuses a prefix with which the keys of two locks could be the same, or no client's.
pub(crate) fn check(prefix: &str) -> Result<()> {
    let inner = prefix.strip_prefix('/').unwrap_or(prefix);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if matches!(prefix, "" | "/") || LockName::new(inner).is_ok() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "bad parameter prefix={prefix}: expected a path that may begin and end with '/', such as '/' or '/locks/'"
    )))
}

impl Prefixed {
    fn name(&self, name: &LockName) -> LockName {
        LockName::from_engine(&format!("{}{name}", self.prefix))
    }

    fn claim(&self, claim: &Claim) -> Claim {
        Claim { name: self.name(&claim.name), ..claim.clone() }
    }

    fn renewal(&self, renewal: &Renewal) -> Renewal {
        let mut renewal = renewal.clone();
        renewal.claim = Arc::new(self.claim(&renewal.claim));
        renewal
    }
}

impl Queue for Prefixed {
    fn abilities(&self) -> Abilities {
        self.queue.abilities()
    }

    fn clock(&self) -> Clock {
        self.queue.clock()
    }

    fn ttl(&self, wanted: Duration) -> Duration {
        self.queue.ttl(wanted)
    }

    async fn turn(&self, claim: &Claim) -> Result<impl Send> {
        self.queue.parts.turns.next(&self.claim(claim)).await
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        self.queue.join(&self.claim(claim)).await
    }

    async fn changed(&self, claim: &Claim, place: Place, seen: Ahead) -> Result<Ahead> {
        self.queue.changed(&self.claim(claim), place, seen).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let renewals: Vec<Renewal> = renewals.iter().map(|renewal| self.renewal(renewal)).collect();
        self.queue.keep(&renewals).await
    }

    async fn attach(&self, renewal: &Renewal, token: Token) -> Result<Option<Attached>> {
        self.queue.attach(&self.renewal(renewal), token).await
    }

    fn detached(&self, claim: &Claim) {
        self.queue.detached(&self.claim(claim));
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.queue.leave(&self.claim(claim)).await
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        self.queue.shrink(&self.claim(claim), to).await
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let mut locks = self.queue.list(&format!("{}{prefix}", self.prefix), at_most).await?;
        for lock in &mut locks {
            lock.name.drain(..self.prefix.len());
        }
        Ok(locks)
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.queue.evict(&self.name(name), id).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.queue.ask(&self.name(name), id).await
    }

    async fn close(&self) {
        self.queue.close().await;
    }
}
