//! What the world may know: tracing events for every transition and counters through the `metrics` facade.

use crate::claim::{Claim, Token};
use crate::error::LostReason;
use std::fmt::Display;
use std::time::Duration;

/// A claim is about to be sent. The span covers everything until it is granted or given up.
pub(crate) fn claiming(claim: &Claim) -> tracing::Span {
    tracing::debug!(lock = %claim.name, claim = %claim.id, demand = %claim.demand, "claiming");
    tracing::debug_span!("acquire", lock = %claim.name, claim = %claim.id)
}

/// A claim holds.
pub(crate) fn granted(claim: &Claim, token: Token, waited: Duration, valid_for: Duration) {
    tracing::debug!(
        lock = %claim.name, claim = %claim.id, token = token.0,
        waited_ms = waited.as_millis() as u64, valid_for_ms = valid_for.as_millis() as u64, "granted"
    );
    metrics::counter!("lockkeeper_granted_total").increment(1);
    metrics::histogram!("lockkeeper_wait_seconds").record(waited);
}

/// A claim was given up without a grant.
pub(crate) fn not_granted(claim: &Claim, waited: Duration) {
    tracing::debug!(
        lock = %claim.name, claim = %claim.id, waited_ms = waited.as_millis() as u64, "gave up waiting"
    );
    metrics::counter!("lockkeeper_not_granted_total").increment(1);
    metrics::histogram!("lockkeeper_wait_seconds").record(waited);
}

/// A hold has ended, in whatever way.
pub(crate) fn released(claim: &Claim, token: Token, held: Duration) {
    tracing::debug!(
        lock = %claim.name, claim = %claim.id, token = token.0, held_ms = held.as_millis() as u64, "released"
    );
    metrics::histogram!("lockkeeper_hold_seconds").record(held);
}

/// A claim was renewed; a near miss if less than a third of its TTL was left.
pub(crate) fn renewed(claim: &Claim, left: Duration) {
    tracing::trace!(lock = %claim.name, claim = %claim.id, left_ms = left.as_millis() as u64, "renewed");
    metrics::counter!("lockkeeper_renewals_total").increment(1);
    if left < claim.ttl / 3 {
        tracing::info!(lock = %claim.name, claim = %claim.id, left_ms = left.as_millis() as u64, "a renewal came late");
        metrics::counter!("lockkeeper_near_misses_total").increment(1);
    }
}

/// A round of renewals failed; it is tried again until the deadlines pass.
pub(crate) fn renewal_failed(claims: usize, error: &dyn Display) {
    tracing::warn!(claims, %error, "renewal failed; trying again");
    metrics::counter!("lockkeeper_renewal_failures_total").increment(1);
}

/// A hold or a place in the queue was lost.
pub(crate) fn lost(claim: &Claim, reason: LostReason) {
    tracing::warn!(lock = %claim.name, claim = %claim.id, %reason, "lost");
    metrics::counter!("lockkeeper_lost_total").increment(1);
}
