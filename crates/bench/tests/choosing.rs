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
    says("Which of files and SQLite is quicker depends on the run, and both take tens of microseconds");
    let outcome = outcome();
    let is_file_quicker = [&outcome.results, &outcome.delayed].map(|results| {
        let rate = |name| figure(results, "uncontended", "pairs/s", name);
        let micros = |name| figure(results, "uncontended", "p50", name) * 1e6;
        for name in ["file queue", "sqlite queue", "sqlite row"] {
            assert!((10.0..100.0).contains(&micros(name)), "{name}: {}", micros(name));
        }
        rate("file queue") > rate("sqlite queue")
    });
    assert_ne!(is_file_quicker[0], is_file_quicker[1]);
}

#[test]
fn what_it_says_of_etcd_after_a_crash_follows_from_the_figures() {
    let results = outcome().results;
    let seconds = figure(&results, "crash", "hand-over p50", "etcd queue");
    let ttl = figure(&results, "crash", "TTL", "etcd queue");
    says(&format!("when the lease ends, {ttl:.0} s at least; {seconds:.2} s were measured then"));
}

#[test]
fn what_it_says_of_waiters_follows_from_the_figures() {
    says("200 waiters together send fewer than 7 requests a second");
    says(
        "*row*, the scheme of the tutorials, polls: 12 to 15, and the hand-over takes fifty milliseconds and more",
    );
    let results = outcome().results;
    let is_pushed = |name: &str| ["queue", "session", "advisory"].iter().any(|style| name.ends_with(style));
    for (name, requests) in figures(&results, "waiting", "idle requests/s") {
        if is_pushed(&name) {
            assert!(requests < 7.0, "{name}: {requests}");
        } else if name.ends_with("row") {
            assert!((12.0..=15.0).contains(&requests.round()), "{name}: {requests}");
        }
    }
    for name in ["postgres row", "mysql row"] {
        assert!(figure(&results, "waiting", "hand-over p50", name) > 0.05, "{name}");
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
    says("Files and connections are seen to end; all others wait for the end of the TTL");
    for (name, seconds) in figures(&results, "crash", "hand-over p50") {
        let is_seen = ["file queue"].contains(&name.as_str())
            || ["session", "advisory"].iter().any(|style| name.ends_with(style));
        assert_eq!(seconds < 0.1, is_seen, "{name}: {seconds}");
    }
}
