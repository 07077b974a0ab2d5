//! A hold regains the nodes that have lost it: a restart forgets it, and an absence outlives its TTL. One that too few have
//! stays there to its end.
//! Only RedLock has nodes to regain.
//!
//! Only a claim that a majority has just renewed is let in again, so a renewal revives nothing (Law 2): whether the hold
//! goes on is decided before, without the nodes that are regained. They count from the next renewal on.

use crate::ballot::quorum;
use crate::nodes::Replies;
use crate::redlock::{Inner, call_for, fence_ms, keys, mode};
use crate::scripts;
use crate::view;
use lockkeeper_core::engine::{ClaimId, Clock, Renewal, background};
use lockkeeper_redis::parts::{integer, milliseconds};
use redis::{RedisResult, Value};
use std::sync::{Arc, PoisonError};

/// What the nodes say to a round of renewals.
pub(crate) struct Round {
    renewals: Vec<Renewal>,
    /// At how many nodes each claim is.
    pub(crate) kept: Vec<usize>,
    /// Whether somebody asks for it to be released.
    pub(crate) asked: Vec<bool>,
    /// The nodes that do not have it.
    gone: Vec<Vec<usize>>,
}

impl Round {
    pub(crate) fn of(renewals: &[Renewal]) -> Self {
        Self {
            renewals: renewals.into(),
            kept: vec![0; renewals.len()],
            asked: vec![false; renewals.len()],
            gone: vec![Vec::new(); renewals.len()],
        }
    }

    /// Counts what one node replied.
    pub(crate) fn count(&mut self, node: usize, replies: Vec<Value>) {
        let states = replies.into_iter().flat_map(|reply| reply.into_sequence().unwrap_or_default());
        let claims = self.kept.iter_mut().zip(&mut self.asked).zip(&mut self.gone);
        for (((kept, asked), gone), state) in claims.zip(states) {
            let state = integer(&state).unwrap_or(0);
            if state > 0 {
                *kept += 1
            } else {
                gone.push(node)
            }
            *asked |= state == 2;
        }
    }
}

impl Inner {
    /// Some nodes, too few, still have these claims. They keep them to the end of their time: a holder may go by the deadline
    /// that it was given before, and the nodes that have restarted since cannot know of it.
    pub(crate) fn leave_to_expire<'a>(&self, renewals: impl Iterator<Item = &'a Renewal>) {
        let now = Clock::Boot.now();
        let mut too_few = self.too_few.lock().unwrap_or_else(PoisonError::into_inner);
        too_few.retain(|_, forgotten| *forgotten > now);
        too_few.extend(renewals.map(|renewal| (renewal.claim.id, now.plus(renewal.ttl))));
    }

    pub(crate) fn is_left_to_expire(&self, id: ClaimId) -> bool {
        self.too_few.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// Listens to the rest of a round that a majority has decided, and lets its claims in where they are missing. In the
    /// background: nobody waits for it.
    pub(crate) fn regain(self: &Arc<Self>, mut round: Round, mut rest: Replies<Vec<RedisResult<Value>>>) {
        let lock = Arc::clone(self);
        background::handle().spawn(async move {
            while let Some((node, reply)) = rest.next().await {
                if let Ok(replies) = reply.and_then(|replies| replies.into_iter().collect()) {
                    round.count(node, replies);
                }
            }
            let claims = round.renewals.iter().zip(round.kept).zip(round.gone);
            for ((renewal, _), gone) in
                claims.filter(|((_, kept), gone)| lock.is_majority(*kept) && !gone.is_empty())
            {
                lock.regain_nodes(renewal, gone).await;
            }
        });
    }

    fn is_majority(&self, count: usize) -> bool {
        count >= quorum(self.nodes.len())
    }

    /// Lets a claim in at these nodes, if a majority of the others shows it.
    async fn regain_nodes(&self, renewal: &Renewal, gone: Vec<usize>) {
        let claim = &renewal.claim;
        let others = (0..self.nodes.len()).filter(|node| !gone.contains(node));
        let mut replies = self.nodes.request(others, scripts::LIST.call(&keys(claim.name.as_str())));
        let (mut found, mut largest, mut value) = (0, None, None);
        while let Some((_, reply)) = replies.next().await {
            let Some((fence, hold)) = reply.ok().and_then(|reply| view::hold_of(reply, claim.id)) else {
                continue;
            };
            found += 1;
            largest = largest.max(fence);
            value = Some(hold);
        }
        let Some(value) = value.filter(|_| self.is_majority(found)) else { return };
        let (number, owner) = largest.unwrap_or_else(|| (0, "-".into()));
        let call = call_for(&scripts::REGAIN, claim).arg(&value).arg(mode(claim));
        let call = call.arg(milliseconds(renewal.ttl)).arg(fence_ms(renewal.ttl)).arg(number).arg(&owner);
        let mut replies = self.nodes.request(gone.into_iter(), call);
        while let Some((node, reply)) = replies.next().await {
            if reply.is_ok_and(|reply| integer(&reply) == Some(1)) {
                tracing::info!(lock = claim.name.as_str(), node, "regained a server that had lost the lock");
            }
        }
    }
}
