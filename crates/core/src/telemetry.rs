//! Telemetry: tracing events for every transition, and counters through the `metrics` facade.

use crate::claim::{Claim, Token};
use crate::error::LostReason;
use std::fmt::Display;
use std::time::Duration;

/// A keeper starts: describes all metrics, and registers the counters, so that a recorder shows them as zero before
/// the first event. An alert on losses needs a value to compare with.
#[cfg(feature = "metrics")]
pub(crate) fn starting() {
    const COUNTERS: [(&str, &str); 7] = [
        ("lockkeeper_granted_total", "Claims that were granted."),
        ("lockkeeper_not_granted_total", "Tries and timed waits that ended without the lock."),
        ("lockkeeper_joined_again_total", "Waits that lost their claim and joined again at the back."),
        ("lockkeeper_renewals_total", "Claims that were renewed."),
        ("lockkeeper_near_misses_total", "Renewals with less than a third of the TTL left."),
        ("lockkeeper_renewal_failures_total", "Rounds of renewals that failed and were retried."),
        ("lockkeeper_lost_total", "Holds that were lost; not leases that ended."),
    ];
    for (name, meaning) in COUNTERS {
        metrics::describe_counter!(name, meaning);
        metrics::counter!(name).increment(0);
    }
    let wait = "Time from the request to the grant, or to giving up.";
    metrics::describe_histogram!("lockkeeper_wait_seconds", metrics::Unit::Seconds, wait);
    let hold = "Time from the grant to the end of the hold.";
    metrics::describe_histogram!("lockkeeper_hold_seconds", metrics::Unit::Seconds, hold);
}

#[cfg(feature = "metrics")]
fn count(counter: &'static str) {
    metrics::counter!(counter).increment(1);
}

#[cfg(feature = "metrics")]
fn record(histogram: &'static str, value: Duration) {
    metrics::histogram!(histogram).record(value);
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn starting() {}

#[cfg(not(feature = "metrics"))]
fn count(_counter: &'static str) {}

#[cfg(not(feature = "metrics"))]
fn record(_histogram: &'static str, _value: Duration) {}

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
    count("lockkeeper_granted_total");
    record("lockkeeper_wait_seconds", waited);
}

/// A claim was given up without a grant.
pub(crate) fn not_granted(claim: &Claim, waited: Duration) {
    tracing::debug!(
        lock = %claim.name, claim = %claim.id, waited_ms = waited.as_millis() as u64, "gave up waiting"
    );
    count("lockkeeper_not_granted_total");
    record("lockkeeper_wait_seconds", waited);
}

/// A wait goes on with a new claim, at the back of the queue.
pub(crate) fn joins_again(lock: &str, error: &dyn Display) {
    tracing::warn!(lock, %error, "the wait lost its claim; joining again at the back of the queue");
    count("lockkeeper_joined_again_total");
}

/// A hold has ended, in whatever way.
pub(crate) fn released(claim: &Claim, token: Token, held: Duration) {
    tracing::debug!(
        lock = %claim.name, claim = %claim.id, token = token.0, held_ms = held.as_millis() as u64, "released"
    );
    record("lockkeeper_hold_seconds", held);
}

/// A claim was renewed; a near miss if less than a third of its TTL was left, unless its lease ends then by plan.
pub(crate) fn renewed(claim: &Claim, left: Duration, lease_ends: bool) {
    tracing::trace!(lock = %claim.name, claim = %claim.id, left_ms = left.as_millis() as u64, "renewed");
    count("lockkeeper_renewals_total");
    if left < claim.ttl / 3 && !lease_ends {
        tracing::info!(lock = %claim.name, claim = %claim.id, left_ms = left.as_millis() as u64, "a renewal came late");
        count("lockkeeper_near_misses_total");
    }
}

/// A round of renewals failed; it is tried again until the deadlines pass.
pub(crate) fn renewal_failed(claims: usize, error: &dyn Display) {
    tracing::warn!(claims, %error, "renewal failed; trying again");
    count("lockkeeper_renewal_failures_total");
}

/// A hold was lost, or its lease ended.
pub(crate) fn lost(claim: &Claim, reason: LostReason) {
    if reason == LostReason::LeaseEnded {
        tracing::debug!(lock = %claim.name, claim = %claim.id, "lease ended");
        return;
    }
    tracing::warn!(lock = %claim.name, claim = %claim.id, %reason, "lost");
    count("lockkeeper_lost_total");
}
