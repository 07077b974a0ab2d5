//! The program itself: helpers, tables, JSON and refusals, on engines that need no server.

use assert_cmd::Command;
use std::time::Duration;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("lockkeeper-bench").unwrap();
    command.args(arguments).timeout(Duration::from_secs(120));
    command
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = bench(arguments).arg("--json").assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).unwrap()
}

fn get(results: &serde_json::Value, workload: &str, figure: &str) -> f64 {
    let row = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["workload"] == workload && row["subject"]["is_floor"] == false)
        .unwrap_or_else(|| panic!("no {workload} in {results}"));
    let figures = row["figures"].as_array().unwrap();
    let found = figures.iter().find(|candidate| candidate["name"] == figure);
    found.unwrap_or_else(|| panic!("no {figure} in {row}"))["median"].as_f64().unwrap()
}

#[test]
fn a_killed_holder_hands_over_and_processes_take_turns() {
    let results = json(&["--engines", "file", "--quick", "--repeat", "1", "--workloads", "crash,processes"]);
    assert_eq!(get(&results, "crash", "kills"), 7.0);
    assert!(get(&results, "crash", "hand-over p50") > 0.0);
    assert!(get(&results, "processes", "fewest turns") > 0.0);
}

#[test]
fn a_paused_holder_has_stopped_trusting_before_the_next_grant() {
    let results = json(&["--engines", "file", "--quick", "--workloads", "pause"]);
    let before = get(&results, "pause", "distrust to grant");
    assert!(before > 0.0, "the hold was still trusted when the next one was granted: {results}");
    assert!(get(&results, "pause", "resume to lost signal") > 0.0);
}

#[test]
fn waiting_and_holding_run_in_processes_of_their_own() {
    let results = json(&["--engines", "memory", "--quick", "--workloads", "waiting,holding"]);
    assert!(get(&results, "waiting", "hand-over p50") > 0.0);
    assert_eq!(get(&results, "holding", "lost"), 0.0);
}

#[test]
fn the_table_has_the_machine_the_engine_and_its_floor() {
    let output = bench(&["--engines", "file", "--quick", "--repeat", "1", "--workloads", "uncontended"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let text = String::from_utf8(output).unwrap();
    for word in ["cores", "uncontended", "file queue", "raw open+flock+close", "× own floor", "p99.9"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}

#[test]
fn a_report_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/report");
    bench(&["--engines", "memory", "--quick", "--repeat", "1", "--workloads", "uncontended,contended"])
        .arg("--report")
        .arg(&path)
        .assert()
        .success();
    for file in ["index.html", "bench.json", "throughput.svg", "latency.svg", "handover.svg"] {
        assert!(path.join(file).is_file(), "{file} is missing");
    }
}

#[test]
fn one_task_is_measured_with_both_sides_on_one_processor_unless_told_otherwise() {
    let one = ["--engines", "memory", "--quick", "--repeat", "1", "--workloads", "uncontended"];
    let results = json(&one);
    assert_eq!(results["scale"]["placement"], "together");
    assert!(get(&results, "uncontended", "pairs/s") > 0.0, "{results}");
    assert_eq!(json(&[&one[..], &["--place", "free"]].concat())["scale"]["placement"], "free");
    let output = bench(&["--place", "nowhere"]).assert().failure().get_output().stderr.clone();
    let text = String::from_utf8(output).unwrap();
    assert!(text.contains("nowhere") && text.contains("free, together, apart"), "{text}");
}

#[test]
fn a_delay_is_told_and_needs_a_server_of_the_benchs_own() {
    let one = ["--engines", "memory", "--quick", "--repeat", "1", "--workloads", "uncontended"];
    let results = json(&[&one[..], &["--delay", "250us"]].concat());
    assert_eq!(results["scale"]["delay"]["nanos"], 250_000);
    let output =
        bench(&["--url", "memory:here", "--delay", "1ms"]).assert().code(64).get_output().stderr.clone();
    assert!(String::from_utf8(output).unwrap().contains("--delay"));
}

#[test]
fn an_unknown_engine_is_refused() {
    let output = bench(&["--engines", "abacus"]).assert().code(64).get_output().stderr.clone();
    let text = String::from_utf8(output).unwrap();
    assert!(text.contains("abacus") && text.contains("memory:queue"), "{text}");
}

#[test]
fn a_running_engine_is_measured_by_its_url() {
    let results = json(&["--url", "memory:here", "--quick", "--repeat", "1", "--workloads", "uncontended"]);
    assert!(get(&results, "uncontended", "pairs/s") > 0.0);
    assert_eq!(results["results"][0]["subject"]["name"], "memory queue memory://here");
}

#[test]
fn an_overload_ends_with_the_tasks_that_made_it() {
    let results = json(&["--engines", "memory", "--quick", "--workloads", "recovery"]);
    assert!(get(&results, "recovery", "turns/s in overload") > 0.0, "{results}");
    assert!(get(&results, "recovery", "recovered after") < 60.0, "{results}");
}
