//! Metrics reach whatever recorder the application has installed, and the files for monitoring name the ones there are.

use lockkeeper_core::engine::{Builder, Memory};
use lockkeeper_core::{Error, Guard, Keeper};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The value of each metric, by name and labels; of a histogram the number of records.
#[derive(Clone, Default)]
struct Values {
    values: Arc<Mutex<BTreeMap<String, f64>>>,
    help: Arc<Mutex<BTreeMap<String, String>>>,
}

struct One {
    key: String,
    values: Values,
}

impl One {
    fn add(&self, value: f64) {
        *self.values.values.lock().unwrap().entry(self.key.clone()).or_default() += value;
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        self.add(value);
    }
    fn decrement(&self, value: f64) {
        self.add(-value);
    }
    fn set(&self, _: f64) {}
}

impl HistogramFn for One {
    fn record(&self, _: f64) {
        self.add(1.0);
    }
}

impl Values {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One { key: format!("{}{{{}}}", key.name(), labels.join(",")), values: self.clone() })
    }

    /// The value under the labels that every metric has.
    fn of(&self, name: &str) -> Option<f64> {
        self.at(&format!("lockkeeper_{name}{{engine=memory,style=queue}}"))
    }

    fn at(&self, key: &str) -> Option<f64> {
        self.values.lock().unwrap().get(key).copied()
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        self.help.lock().unwrap().insert(name.as_str().to_owned(), help.to_string());
    }
}

impl Recorder for Values {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

/// Runs the work on a paused clock. On tokio's clock all background tasks run on this runtime, so on this thread.
fn recorded<F: Future<Output = ()>>(
    settings: Builder,
    work: impl FnOnce(Keeper, Memory, Values) -> F,
) -> Values {
    let values = Values::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&values, || {
        runtime.block_on(async {
            let locks = Memory::on_tokio_clock();
            let keeper = settings.build(locks.connect()).unwrap();
            work(keeper, locks, values.clone()).await;
        });
    });
    values
}

async fn lock(keeper: &Keeper, name: &str) -> Guard {
    keeper.mutex(name).lock().await.unwrap()
}

#[test]
fn every_transition_is_counted() {
    let values = recorded(Keeper::builder(), async |keeper, locks, _| {
        let guard = lock(&keeper, "m").await;
        assert!(keeper.mutex("m").try_lock().await.unwrap().is_none());
        tokio::time::sleep(Duration::from_secs(10)).await;
        locks.cut(true);
        guard.lost().await;
    });
    assert_eq!(values.of("granted_total"), Some(1.0));
    assert_eq!(values.of("not_granted_total"), Some(1.0));
    assert_eq!(values.of("wait_seconds"), Some(2.0));
    assert_eq!(values.of("hold_seconds"), Some(1.0));
    assert!(values.of("renewals_total") >= Some(2.0));
    assert!(values.of("renewal_failures_total") >= Some(1.0));
    assert_eq!(values.of("lost_total"), Some(1.0));
}

#[test]
fn holds_and_waits_are_shown_while_they_last() {
    recorded(Keeper::builder(), async |keeper, locks, values| {
        let held_and_waiting = || (values.of("held").unwrap(), values.of("waiting").unwrap());
        assert_eq!(held_and_waiting(), (0.0, 0.0));
        let first = lock(&keeper, "m").await;
        let other = lock(&keeper, "n").await;
        assert_eq!(held_and_waiting(), (2.0, 0.0));
        let waiter = tokio::spawn({
            let keeper = keeper.clone();
            async move { lock(&keeper, "m").await }
        });
        tokio::task::yield_now().await;
        assert_eq!(held_and_waiting(), (2.0, 1.0));
        first.release().await.unwrap();
        let second = waiter.await.unwrap();
        assert_eq!(held_and_waiting(), (2.0, 0.0));
        drop(other);
        assert_eq!(held_and_waiting(), (1.0, 0.0));
        locks.cut(true);
        second.lost().await;
        assert_eq!(held_and_waiting(), (0.0, 0.0), "a lost hold is none, though its guard is still here");
        assert!(matches!(second.release().await, Err(Error::Lost { .. } | Error::Engine { .. })));
        assert_eq!(held_and_waiting(), (0.0, 0.0));
        locks.cut(false);
        let held = lock(&keeper, "n").await;
        let waiting = keeper.mutex("n");
        let waiting = tokio::time::timeout(Duration::from_secs(1), waiting.lock());
        assert!(waiting.await.is_err(), "dropped while it waits");
        assert_eq!(held_and_waiting(), (1.0, 0.0));
        keeper.close().await;
        assert_eq!(held_and_waiting(), (0.0, 0.0));
        drop(held);
    });
}

#[test]
fn locks_are_labels_only_on_request() {
    let values = recorded(Keeper::builder().label_locks(true), async |keeper, _, _| {
        drop(lock(&keeper, "orders/42").await);
    });
    let of = |name: &str| {
        values.at(&format!("lockkeeper_{name}{{engine=memory,style=queue,lock=lockkeeper/orders/42}}"))
    };
    assert_eq!(of("granted_total"), Some(1.0));
    assert_eq!(values.of("granted_total"), Some(0.0), "the series without a lock stays");
    for counter in ["lost_total", "near_misses_total", "not_granted_total", "joined_again_total"] {
        assert_eq!(of(counter), Some(0.0), "an alert on {counter} needs a value from before the first event");
    }
    assert_eq!(of("renewal_failures_total"), None, "a round is for all locks");
}

/// The texts of the events, up to what explains them.
fn events() -> Vec<&'static str> {
    let calls = include_str!("../src/telemetry.rs").split("tracing::").skip(1);
    let macros =
        calls.filter(|call| ["trace!", "debug!", "info!", "warn!"].iter().any(|m| call.starts_with(m)));
    let texts = macros.map(|call| {
        let call = call.split(");").next().unwrap();
        let text = call[..call.rfind('"').unwrap()].rsplit('"').next().unwrap();
        text.split(':').next().unwrap()
    });
    texts.collect()
}

#[test]
fn the_page_has_every_event() {
    let (page, events) = (document("telemetry.md"), events());
    assert!(events.len() >= 12 && events.contains(&"lease ended"), "{events:?}");
    let missing: Vec<_> = events.iter().filter(|event| !page.contains(&format!("| `{event}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_metric_has_a_help_text_and_is_zero_from_the_start() {
    let values = recorded(Keeper::builder(), async |_, _, _| {});
    let help = values.help.lock().unwrap();
    assert_eq!(help.len(), 11);
    for (name, help) in help.iter() {
        assert!(help.ends_with('.'), "{name}: {help}");
        if !name.ends_with("_seconds") {
            assert_eq!(values.of(name.strip_prefix("lockkeeper_").unwrap()), Some(0.0), "{name}");
        }
    }
}

#[test]
fn a_lease_that_ends_by_plan_is_no_loss_and_no_near_miss() {
    let values = recorded(Keeper::builder(), async |keeper, _, _| {
        let guard = keeper.mutex("m").lease(Duration::from_secs(11)).lock().await.unwrap();
        guard.lost().await;
    });
    assert!(values.of("renewals_total") >= Some(3.0), "one of them just before the end");
    assert_eq!(values.of("near_misses_total"), Some(0.0));
    assert_eq!(values.of("lost_total"), Some(0.0));
    assert_eq!(values.of("held"), Some(0.0));
}

/// The metrics that a text names, without what Prometheus appends to a histogram's name.
fn named(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("lockkeeper_").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        base.unwrap_or(name).to_owned()
    });
    names.collect()
}

fn document(path: &str) -> String {
    let path = format!("{}/../../docs/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_files_for_monitoring_name_metrics_that_there_are() {
    let values = recorded(Keeper::builder(), async |_, _, _| {});
    let known: BTreeSet<String> = values.help.lock().unwrap().keys().cloned().collect();
    assert_eq!(named(&document("telemetry.md")), known, "the table has every metric");
    for file in ["monitoring/alerts.yml", "monitoring/grafana.json"] {
        let unknown: Vec<_> = named(&document(file)).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&document("monitoring/grafana.json")).unwrap();
    let queries = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        assert!(panel["title"].is_string(), "{panel}");
        panel["targets"].as_array().unwrap()
    });
    let shown: BTreeSet<String> = queries.flat_map(|query| named(query["expr"].as_str().unwrap())).collect();
    assert_eq!(shown, known, "the dashboard shows every metric");
}
