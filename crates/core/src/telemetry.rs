//! Telemetry: tracing events for every transition, and metrics through the `metrics` facade.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "telemetry/none.rs"]
mod metrics;

pub(crate) use metrics::OneMore;

use crate::claim::{Claim, Token};
use crate::engine::Abilities;
use crate::error::LostReason;
use metrics::{Metric, Metrics};
use std::fmt::Display;
use std::time::Duration;

/// What one keeper reports.
#[derive(Debug)]
pub(crate) struct Telemetry(Metrics);

/// A claim is about to be sent. The span covers everything until it is granted or given up.
pub(crate) fn claiming(claim: &Claim) -> tracing::Span {
    tracing::debug!(lock = %claim.name, claim = %claim.id, demand = %claim.demand, "claiming");
    tracing::debug_span!("acquire", lock = %claim.name, claim = %claim.id)
}

/// Somebody asks for a claim to be released.
pub(crate) fn asked(claim: &Claim) {
    tracing::info!(lock = %claim.name, claim = %claim.id, "release requested");
}

impl Telemetry {
    /// A keeper starts. The label `lock` is for few locks: each of them is a series of its own.
    pub(crate) fn starting(abilities: &Abilities, labels_locks: bool) -> Self {
        Self(Metrics::starting(abilities, labels_locks))
    }

    /// A wait begins; it ends when the result is dropped.
    pub(crate) fn waiting(&self, lock: &str) -> OneMore {
        self.0.one_more(Metric::Waiting, lock)
    }

    /// A hold begins; it ends when the result is dropped.
    pub(crate) fn held(&self, claim: &Claim) -> OneMore {
        self.0.one_more(Metric::Held, claim.name.as_str())
    }

    /// A claim holds.
    pub(crate) fn granted(&self, claim: &Claim, token: Token, waited: Duration, valid_for: Duration) {
        tracing::debug!(
            lock = %claim.name, claim = %claim.id, token = token.0,
            waited_ms = waited.as_millis() as u64, valid_for_ms = valid_for.as_millis() as u64, "granted"
        );
        self.0.count(Metric::Granted, Some(claim.name.as_str()));
        self.0.record(Metric::WaitSeconds, &claim.name, waited);
    }

    /// A claim was given up without a grant.
    pub(crate) fn not_granted(&self, claim: &Claim, waited: Duration) {
        tracing::debug!(
            lock = %claim.name, claim = %claim.id, waited_ms = waited.as_millis() as u64, "gave up waiting"
        );
        self.0.count(Metric::NotGranted, Some(claim.name.as_str()));
        self.0.record(Metric::WaitSeconds, &claim.name, waited);
    }

    /// A claim waits, or was refused, and this keeper itself has the hold.
    pub(crate) fn held_here(&self, claim: &Claim, held: &Claim, by_this_task: bool) {
        if by_this_task {
            tracing::warn!(
                lock = %claim.name, claim = %claim.id, held_by = %held.id,
                "this task holds the lock already: it waits for itself unless another task releases it; \
                 see Keeper::owner for a lock that may be entered again"
            );
        } else {
            tracing::debug!(
                lock = %claim.name, claim = %claim.id, held_by = %held.id, "another task of this keeper holds the lock"
            );
        }
    }

    /// A wait goes on with a new claim, at the back of the queue.
    pub(crate) fn joins_again(&self, lock: &str, error: &dyn Display) {
        tracing::warn!(lock, %error, "the wait lost its claim; joining again at the back of the queue");
        self.0.count(Metric::JoinedAgain, Some(lock));
    }

    /// A hold has ended, in whatever way.
    pub(crate) fn released(&self, claim: &Claim, token: Token, held: Duration) {
        tracing::debug!(
            lock = %claim.name, claim = %claim.id, token = token.0, held_ms = held.as_millis() as u64, "released"
        );
        self.0.record(Metric::HoldSeconds, &claim.name, held);
    }

    /// A claim was renewed; a near miss if less than a third of its TTL was left, unless its lease ends then by plan.
    pub(crate) fn renewed(&self, claim: &Claim, left: Duration, lease_ends: bool) {
        tracing::trace!(lock = %claim.name, claim = %claim.id, left_ms = left.as_millis() as u64, "renewed");
        self.0.count(Metric::Renewals, Some(claim.name.as_str()));
        if left < claim.ttl / 3 && !lease_ends {
            tracing::info!(lock = %claim.name, claim = %claim.id, left_ms = left.as_millis() as u64, "a renewal came late");
            self.0.count(Metric::NearMisses, Some(claim.name.as_str()));
        }
    }

    /// A round of renewals failed; it is tried again until the deadlines pass.
    pub(crate) fn renewal_failed(&self, claims: usize, error: &dyn Display) {
        tracing::warn!(claims, %error, "renewal failed; trying again");
        self.0.count(Metric::RenewalFailures, None);
    }

    /// A hold was lost, or its lease ended.
    pub(crate) fn lost(&self, claim: &Claim, reason: LostReason) {
        if reason == LostReason::LeaseEnded {
            tracing::debug!(lock = %claim.name, claim = %claim.id, "lease ended");
            return;
        }
        tracing::warn!(lock = %claim.name, claim = %claim.id, %reason, "lost");
        self.0.count(Metric::Lost, Some(claim.name.as_str()));
    }
}
