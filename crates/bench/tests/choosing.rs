//! The pages that compare have the tables of the run that is kept beside them, and their sentences follow from its figures.

use lockkeeper_bench::command::Outcome;
use lockkeeper_bench::markdown;
use lockkeeper_bench::summary::Summary;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(docs().join(name)).unwrap()
}

fn outcome() -> Outcome {
    Outcome::load(&docs().join("bench/bench.json")).unwrap()
}

#[test]
fn the_tables_are_those_of_the_saved_run() {
    for (name, tables) in [("choosing.md", 3), ("comparing.md", 3)] {
        let page = page(name);
        let renewed = markdown::renew(&page, &outcome()).unwrap();
        assert!(
            page == renewed,
            "renew it: lockkeeper bench --from docs/bench/bench.json --markdown docs/{name}"
        );
        assert_eq!(page.matches("<!-- bench:end").count(), tables, "{name}");
    }
}

#[test]
fn the_page_can_be_read_at_once() {
    assert!(page("choosing.md").lines().count() <= 150);
}

#[test]
fn every_picture_and_page_they_link_to_is_there() {
    let mut links = 0;
    for name in ["choosing.md", "comparing.md"] {
        let page = page(name);
        for (at, _) in page.match_indices("](") {
            let link = page[at + 2..].split(')').next().unwrap();
            assert!(docs().join(link).is_file(), "{name}: {link} is missing");
            links += 1;
        }
    }
    assert!(links > 10);
}

/// Fails if the page no longer has the sentence, so that none of the checks below is about nothing.
fn says(sentence: &str) {
    let page = page("choosing.md").replace('\n', " ");
    assert!(page.contains(sentence), "the page no longer says: {sentence}");
}

/// A figure of every style in a workload, by the style's name.
fn figures(results: &[Summary], workload: &str, figure: &str) -> Vec<(String, f64)> {
    let of = results.iter().filter(|summary| summary.workload == workload && !summary.subject.is_floor);
    of.filter_map(|summary| Some((summary.subject.name.clone(), summary.get(figure)?))).collect()
}

fn figure(results: &[Summary], workload: &str, figure: &str, name: &str) -> f64 {
    let found = figures(results, workload, figure);
    found.into_iter().find(|(of, _)| of == name).unwrap_or_else(|| panic!("no {figure} of {name}")).1
}

#[test]
fn what_it_says_of_files_and_sqlite_follows_from_the_figures() {
    says("Files and SQLite take microseconds and are within a factor of three of each other");
    let outcome = outcome();
    for results in [&outcome.results, &outcome.delayed] {
        let embedded = ["file queue", "sqlite queue", "sqlite row"];
        let rates = embedded.map(|name| figure(results, "uncontended", "pairs/s", name));
        let slowest = rates.into_iter().fold(f64::MAX, f64::min);
        assert!(rates.iter().all(|rate| rate / slowest < 3.0), "{rates:?}");
        for name in embedded {
            assert!(figure(results, "uncontended", "p50", name) < 1e-3, "{name}");
        }
    }
}

#[test]
fn what_it_says_of_speed_follows_from_the_figures() {
    says("two small requests and no disk to wait for");
    says("*plain* is about as quick as *queue*, and not fair");
    says("they belong beside Redis, at more than three times the rate of ZooKeeper and etcd");
    let outcome = outcome();
    for results in [&outcome.results, &outcome.delayed] {
        let rate = |name| figure(results, "uncontended", "pairs/s", name);
        let ratio = rate("redis plain") / rate("redis queue");
        assert!((0.8..1.25).contains(&ratio), "{ratio}");
    }
    let rate = |name| figure(&outcome.results, "uncontended", "pairs/s", name);
    for quick in ["redis queue", "postgres advisory", "mysql advisory"] {
        for slow in ["zookeeper queue", "etcd queue"] {
            assert!(rate(quick) > 3.0 * rate(slow), "{quick} and {slow}");
        }
    }
}

#[test]
fn what_it_says_of_etcd_after_a_crash_follows_from_the_figures() {
    says("when the lease ends, 2 s at least, which takes etcd up to a TTL more");
    let results = outcome().results;
    let seconds = figure(&results, "crash", "hand-over p50", "etcd queue");
    let ttl = figure(&results, "crash", "TTL", "etcd queue");
    assert_eq!(ttl, 2.0);
    assert!((ttl..2.0 * ttl).contains(&seconds), "{seconds}");
}

#[test]
fn what_it_says_of_waiters_follows_from_the_figures() {
    says("200 waiters together send a few requests a second");
    says("polls: more requests, and a hand-over that takes more than ten times as long");
    says("a release and the next grant cost hardly more requests when many wait");
    let results = outcome().results;
    let is_pushed = |name: &str| ["queue", "session", "advisory"].iter().any(|style| name.ends_with(style));
    let requests = figures(&results, "waiting", "idle requests/s");
    for (name, count) in requests.iter().filter(|(name, _)| is_pushed(name)) {
        assert!(*count < 10.0, "{name}: {count}");
    }
    let hand_over = |name: &str| figure(&results, "waiting", "hand-over p50", name);
    for engine in ["postgres", "mysql"] {
        let of = |style: &str| figure(&results, "waiting", "idle requests/s", &format!("{engine} {style}"));
        for style in ["queue", "session", "advisory"] {
            assert!(of("row") > of(style), "{engine} {style}");
            assert!(hand_over(&format!("{engine} row")) > 10.0 * hand_over(&format!("{engine} {style}")));
        }
    }
    let per_hand_over = |name: &str| -> Vec<f64> {
        let of =
            results.iter().filter(|summary| summary.workload == "contended" && summary.subject.name == name);
        of.filter_map(|summary| summary.get("requests/hand-over")).collect()
    };
    for name in ["postgres queue", "mysql queue", "redis queue", "zookeeper queue", "etcd queue"] {
        let costs = per_hand_over(name);
        let (least, most) =
            (costs.iter().copied().fold(f64::MAX, f64::min), costs.iter().copied().fold(0.0, f64::max));
        assert!(costs.len() > 1 && most < 2.0 * least, "{name}: {costs:?}");
    }
}

#[test]
fn no_hold_is_trusted_when_the_next_one_is_granted() {
    says("lockkeeper's hold stops trusting itself before the next one is granted");
    let found = figures(&outcome().results, "pause", "distrust to grant");
    assert!(found.len() > 5);
    for (name, seconds) in found {
        assert!(seconds > 0.0, "{name}: {seconds}");
    }
}

#[test]
fn what_the_captions_say_follows_from_the_figures() {
    let results = outcome().results;
    says("Among servers, Redis and advisory locks are ahead of all that commit a write");
    let rates = figures(&results, "uncontended", "pairs/s");
    let waits_for_no_disk = ["redis queue", "redis plain", "postgres advisory", "mysql advisory"];
    let is_embedded = |name: &str| ["memory", "file", "sqlite"].iter().any(|engine| name.starts_with(engine));
    let (ahead, behind): (Vec<_>, Vec<_>) = rates
        .into_iter()
        .filter(|(name, _)| !is_embedded(name) && !name.starts_with("redlock"))
        .partition(|(name, _)| waits_for_no_disk.contains(&name.as_str()));
    assert_eq!(ahead.len(), waits_for_no_disk.len());
    for (slow, rate) in &behind {
        assert!(ahead.iter().all(|(_, quick)| quick > rate), "{slow}: {rate}");
    }
    says(
        "a fair hand-over with 200 that wait takes less than three times as long as one between 2 that contend",
    );
    for engine in ["postgres", "mysql", "redis", "zookeeper", "etcd"] {
        let name = format!("{engine} queue");
        let pair = results.iter().find(|summary| {
            (summary.workload == "contended") && summary.size_number == 2 && summary.subject.name == name
        });
        let between_two = 1.0 / pair.and_then(|summary| summary.get("hand-overs/s")).expect("two contend");
        let among_200 = figure(&results, "waiting", "hand-over p50", &name);
        assert!(among_200 < 3.0 * between_two, "{name}: {among_200} and {between_two}");
    }
    says("Files and connections are seen to end; all others wait for the end of the TTL");
    for (name, seconds) in figures(&results, "crash", "hand-over p50") {
        let is_seen = ["file queue"].contains(&name.as_str())
            || ["session", "advisory"].iter().any(|style| name.ends_with(style));
        assert_eq!(seconds < 0.1, is_seen, "{name}: {seconds}");
    }
}
