//! `lockkeeper bench` measures, reports and shows what was saved; on engines that need no server.

#![cfg(feature = "bench")]

mod support;

use serde_json::Value;
use support::Place;

const LITTLE: [&str; 5] = ["bench", "--quick", "--repeat", "1", "--workloads"];

fn bench(place: &Place, more: &[&str]) -> String {
    let output = place.output(LITTLE.iter().chain(more));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn subjects(json: &str) -> Vec<String> {
    let outcome: Value = serde_json::from_str(json).unwrap();
    let rows = outcome["results"].as_array().unwrap();
    rows.iter().map(|row| row["subject"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn engines_are_started_and_helpers_are_this_binary_again() {
    let place = Place::new();
    let table = bench(&place, &["uncontended,crash", "--engines", "memory,file"]);
    for word in ["memory queue", "file queue", "raw open+flock+close", "× own floor", "kills"] {
        assert!(table.contains(word), "{word} is missing in\n{table}");
    }
}

#[test]
fn the_engine_of_the_environment_is_measured_unless_others_are_named() {
    let place = Place::new();
    let here = subjects(&bench(&place, &["uncontended", "--json"]));
    assert!(here.iter().any(|name| name.starts_with("file queue file:/")), "{here:?}");
    let named = subjects(&bench(&place, &["uncontended", "--json", "--engines", "memory"]));
    assert_eq!(named, ["memory queue"]);
}

#[test]
fn a_saved_run_is_shown_again_as_table_report_and_markdown() {
    let place = Place::new();
    let json = bench(&place, &["uncontended", "--engines", "memory", "--json"]);
    std::fs::write(place.path("saved.json"), json).unwrap();
    std::fs::write(place.path("page.md"), "# Here\n<!-- bench:uncontended -->\n<!-- bench:end -->\n")
        .unwrap();
    let output = place.output([
        "bench",
        "--from",
        "saved.json",
        "--peers",
        "saved.json",
        "--report",
        "report",
        "--markdown",
        "page.md",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.matches("memory queue").count(), 2, "ours and, here, the peers: {table}");
    assert!(place.path("report/index.html").is_file() && place.path("report/throughput.svg").is_file());
    let page = std::fs::read_to_string(place.path("page.md")).unwrap();
    assert!(page.contains("| memory queue |"), "{page}");
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::new();
    for (arguments, word) in [
        (vec!["bench", "--engines", "abacus"], "abacus"),
        (vec!["bench", "--from", "nothing.json"], "nothing.json"),
        (vec!["bench", "--ttl", "5s"], "TTL"),
        (vec!["bench", "--from", "a.json", "--quick"], "--quick"),
    ] {
        let (status, said) = place.status(&arguments);
        assert_eq!(status, 64, "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}
