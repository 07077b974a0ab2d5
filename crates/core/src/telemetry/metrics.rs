//! The metrics of one keeper, through the `metrics` facade: every one has the labels `engine` and `style`.

use crate::engine::Abilities;
use crate::name::LockName;
use metrics::{Gauge, Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A metric, by its place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Granted,
    NotGranted,
    JoinedAgain,
    Renewals,
    NearMisses,
    RenewalFailures,
    Lost,
    WaitSeconds,
    HoldSeconds,
    Held,
    Waiting,
}

use Metric::*;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Each metric in the order of its number: kind, name and help text.
const TABLE: [(Metric, Kind, &str, &str); 11] = [
    (Granted, Kind::Counter, "lockkeeper_granted_total", "Claims that were granted."),
    (
        NotGranted,
        Kind::Counter,
        "lockkeeper_not_granted_total",
        "Tries and timed waits that ended without the lock.",
    ),
    (
        JoinedAgain,
        Kind::Counter,
        "lockkeeper_joined_again_total",
        "Waits that lost their claim and joined again at the back.",
    ),
    (Renewals, Kind::Counter, "lockkeeper_renewals_total", "Claims that were renewed."),
    (
        NearMisses,
        Kind::Counter,
        "lockkeeper_near_misses_total",
        "Renewals with less than a third of the TTL left.",
    ),
    (
        RenewalFailures,
        Kind::Counter,
        "lockkeeper_renewal_failures_total",
        "Rounds of renewals that failed and were retried.",
    ),
    (Lost, Kind::Counter, "lockkeeper_lost_total", "Holds that were lost; not leases that ended."),
    (
        WaitSeconds,
        Kind::Histogram,
        "lockkeeper_wait_seconds",
        "Time from the request to the grant, or to giving up.",
    ),
    (HoldSeconds, Kind::Histogram, "lockkeeper_hold_seconds", "Time from the grant to the end of the hold."),
    (Held, Kind::Gauge, "lockkeeper_held", "Holds at this moment."),
    (Waiting, Kind::Gauge, "lockkeeper_waiting", "Waits for a lock at this moment."),
];

const METADATA: Metadata<'static> = Metadata::new("lockkeeper", Level::INFO, Some("lockkeeper"));

/// How many names are remembered as registered; what is forgotten is registered once more, which changes nothing.
const MOST_NAMES: usize = 10_000;

/// The keys of one keeper's metrics, made once. Which recorder gets them is looked up at each event, so that one that is
/// installed after the keeper has started is found.
#[derive(Debug)]
pub(super) struct Metrics {
    keys: Vec<Key>,
    labels_locks: bool,
    /// The locks whose counters are registered, if they are labelled.
    registered: Mutex<HashSet<String>>,
}

impl Metrics {
    /// A keeper starts: describes all metrics, and registers them, so that a recorder shows counters and gauges as zero
    /// before the first event. An alert on losses needs a value to compare with.
    pub(super) fn starting(abilities: &Abilities, labels_locks: bool) -> Self {
        let labels = vec![
            Label::from_static_parts("engine", abilities.engine),
            Label::from_static_parts("style", abilities.style),
        ];
        let keys: Vec<Key> =
            TABLE.iter().map(|(_, _, name, _)| Key::from_parts(*name, labels.clone())).collect();
        with_recorder(|recorder| {
            for ((_, kind, name, help), key) in TABLE.iter().zip(&keys) {
                describe(recorder, *kind, name, help);
                match kind {
                    Kind::Counter => recorder.register_counter(key, &METADATA).increment(0),
                    Kind::Gauge => recorder.register_gauge(key, &METADATA).increment(0.0),
                    Kind::Histogram => {}
                }
            }
        });
        Self { keys, labels_locks, registered: Mutex::default() }
    }

    pub(super) fn count(&self, metric: Metric, lock: Option<&str>) {
        self.with(metric, lock, |recorder, key| recorder.register_counter(key, &METADATA).increment(1));
    }

    pub(super) fn record(&self, metric: Metric, lock: &LockName, value: Duration) {
        self.with(metric, Some(lock.as_str()), |recorder, key| {
            recorder.register_histogram(key, &METADATA).record(value);
        });
    }

    /// Counts one more in a gauge until the result is dropped. Every wait and every hold begins here, so the lock's counters
    /// are there before their first event.
    pub(super) fn one_more(&self, metric: Metric, lock: &str) -> OneMore {
        self.register(lock);
        let gauge = self.with(metric, Some(lock), |recorder, key| recorder.register_gauge(key, &METADATA));
        gauge.increment(1.0);
        OneMore(gauge)
    }

    /// Registers the labelled counters of a lock as zero.
    fn register(&self, lock: &str) {
        if !self.labels_locks {
            return;
        }
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.contains(lock) {
            return;
        }
        if registered.len() >= MOST_NAMES {
            registered.clear();
        }
        registered.insert(lock.to_owned());
        drop(registered);
        // A round of renewals is for all locks of a keeper, so its failures have no lock.
        let counters = TABLE.iter().filter(|(_, kind, ..)| matches!(kind, Kind::Counter));
        for (metric, ..) in counters.filter(|(metric, ..)| *metric != RenewalFailures) {
            self.with(*metric, Some(lock), |recorder, key| {
                recorder.register_counter(key, &METADATA).increment(0);
            });
        }
    }

    fn with<T>(&self, metric: Metric, lock: Option<&str>, then: impl FnOnce(&dyn Recorder, &Key) -> T) -> T {
        let key = &self.keys[metric as usize];
        match lock.filter(|_| self.labels_locks) {
            Some(lock) => {
                let key = key.with_extra_labels(vec![Label::new("lock", lock.to_owned())]);
                with_recorder(|recorder| then(recorder, &key))
            }
            None => with_recorder(|recorder| then(recorder, key)),
        }
    }
}

fn describe(recorder: &dyn Recorder, kind: Kind, name: &'static str, help: &'static str) {
    let name = KeyName::from_const_str(name);
    match kind {
        Kind::Counter => recorder.describe_counter(name, None, help.into()),
        Kind::Gauge => recorder.describe_gauge(name, None, help.into()),
        Kind::Histogram => recorder.describe_histogram(name, Some(Unit::Seconds), help.into()),
    }
}

/// One in a gauge. It goes from the recorder that got it, so that a gauge never falls below zero.
pub(crate) struct OneMore(Gauge);

impl fmt::Debug for OneMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneMore")
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers() {
        for (index, (metric, ..)) in TABLE.iter().enumerate() {
            assert_eq!(*metric as usize, index);
        }
    }
}
