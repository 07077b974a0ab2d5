//! Counters and histograms reach whatever recorder the application has installed.

use lockkeeper_core::Keeper;
use lockkeeper_core::engine::Memory;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Counts how often each name was recorded.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

struct One {
    name: String,
    counts: Counts,
}

impl One {
    fn add(&self, value: u64) {
        *self.counts.0.lock().unwrap().entry(self.name.clone()).or_default() += value;
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value);
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for One {
    fn record(&self, _: f64) {
        self.add(1);
    }
}

impl Counts {
    fn one(&self, key: &Key) -> Arc<One> {
        Arc::new(One { name: key.name().to_owned(), counts: self.clone() })
    }

    fn of(&self, name: &str) -> u64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(format!("help {}", name.as_str()), 1);
    }
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(format!("help {}", name.as_str()), 1);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

#[test]
fn every_transition_is_counted() {
    let counts = Counts::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // On tokio's clock all background tasks run on this runtime, so on this thread.
    metrics::with_local_recorder(&counts, || {
        runtime.block_on(async {
            let locks = Memory::on_tokio_clock();
            let keeper = Keeper::builder().build(locks.connect()).unwrap();
            let guard = keeper.mutex("m").lock().await.unwrap();
            assert!(keeper.mutex("m").try_lock().await.unwrap().is_none());
            tokio::time::sleep(Duration::from_secs(10)).await;
            locks.cut(true);
            guard.lost().await;
        });
    });
    assert_eq!(counts.of("lockkeeper_granted_total"), 1);
    assert_eq!(counts.of("lockkeeper_not_granted_total"), 1);
    assert_eq!(counts.of("lockkeeper_wait_seconds"), 2);
    assert_eq!(counts.of("lockkeeper_hold_seconds"), 1);
    assert!(counts.of("lockkeeper_renewals_total") >= 2);
    assert!(counts.of("lockkeeper_renewal_failures_total") >= 1);
    assert_eq!(counts.of("lockkeeper_lost_total"), 1);
}

const COUNTERS: [&str; 6] = [
    "lockkeeper_granted_total",
    "lockkeeper_not_granted_total",
    "lockkeeper_renewals_total",
    "lockkeeper_near_misses_total",
    "lockkeeper_renewal_failures_total",
    "lockkeeper_lost_total",
];

#[test]
fn every_metric_has_a_help_text_and_counters_are_zero_from_the_start() {
    let counts = Counts::default();
    metrics::with_local_recorder(&counts, || Keeper::builder().build(Memory::engine()).unwrap());
    let seen = counts.0.lock().unwrap();
    for name in COUNTERS {
        assert_eq!(seen.get(name), Some(&0), "{name}");
        assert!(seen.contains_key(&format!("help {name}")), "{name}");
    }
    for name in ["lockkeeper_wait_seconds", "lockkeeper_hold_seconds"] {
        assert!(seen.contains_key(&format!("help {name}")), "{name}");
    }
}

#[test]
fn a_lease_that_ends_by_plan_is_no_loss_and_no_near_miss() {
    let counts = Counts::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&counts, || {
        runtime.block_on(async {
            let locks = Memory::on_tokio_clock();
            let keeper = Keeper::builder().build(locks.connect()).unwrap();
            let lease = Duration::from_secs(11);
            let guard = keeper.mutex("m").lease(lease).lock().await.unwrap();
            guard.lost().await;
        });
    });
    assert!(counts.of("lockkeeper_renewals_total") >= 3, "one of them just before the end");
    assert_eq!(counts.of("lockkeeper_near_misses_total"), 0);
    assert_eq!(counts.of("lockkeeper_lost_total"), 0);
}
