//! Tables for a Markdown page, put between its marks: `<!-- faults:matrix -->` up to `<!-- faults:end -->`.
//!
//! A mark names `run` (when, and the sums), `matrix` (a row for each fault, a column for each engine), `breaks` (how long
//! each documented one takes to happen, and for how long there were two holders), `engines` (what each one went through),
//! `mixed` (long runs, added up) or `surprises`.

use crate::fault::Fault;
use crate::outcome::Outcome;
use crate::record::{Record, cells};
use crate::{Error, Result};
use std::collections::BTreeMap;

const BEGIN: &str = "<!-- faults:";
const CLOSE: &str = " -->\n";
const END: &str = "<!-- faults:end -->";

/// What a reader must know of runs whose servers had no disk.
const IN_MEMORY: &str = " The servers kept their data in a file system in memory, which survives kill -9 as a disk does; \
                         power cuts are not tested.";

/// The columns of the matrix: an engine, and the first words of its subjects.
const ENGINES: [&str; 8] = ["file", "sqlite", "postgres", "mysql", "redis", "redlock", "zookeeper", "etcd"];

/// The page with its tables as these records have them.
pub(crate) fn renew(page: &str, records: &[Record]) -> Result<String> {
    let mut renewed = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let unfinished = || Error::new("a mark '<!-- faults:… -->' on the page has no end");
        let (name, after) = after.split_once(CLOSE).ok_or_else(unfinished)?;
        let (_, after) = after.split_once(END).ok_or_else(unfinished)?;
        renewed += &format!("{before}{BEGIN}{name}{CLOSE}{}{END}", table(name, records)?);
        rest = after;
    }
    Ok(renewed + rest)
}

fn table(name: &str, records: &[Record]) -> Result<String> {
    match name {
        "run" => Ok(run(records)),
        "matrix" => Ok(matrix(records)),
        "breaks" => Ok(breaks(records)),
        "engines" => Ok(engines(records)),
        "mixed" => Ok(mixed(records)),
        "surprises" => Ok(surprises(records)),
        other => Err(Error::new(format!("there is no table {other:?}"))),
    }
}

fn engine(subject: &str) -> &str {
    subject.split([':', ',']).next().unwrap_or(subject)
}

/// The last record of each cell, and of mixed runs all.
fn latest(records: &[Record]) -> BTreeMap<String, &Record> {
    records
        .iter()
        .filter(|record| record.fault != Fault::Mixed)
        .map(|record| (record.name(), record))
        .collect()
}

fn run(records: &[Record]) -> String {
    let latest = latest(records);
    let of_all = |sum: fn(&Record) -> u64| grouped(records.iter().map(sum).sum());
    let all = cells().into_iter().filter(|(_, fault, _)| *fault != Fault::Mixed).count();
    let surprises = latest.values().filter(|record| record.surprise.is_some()).count();
    let Some((first, last)) = records.first().zip(records.last()) else {
        return format!("None of {all} cells was run yet.\n");
    };
    format!(
        "{} of {all} cells, **{}**, run {} (commit {}) to {} ({}). In all {} runs: {} faults, {} holds, {} waits given up, \
         {} accesses whose token was checked, of which {} were refused.{}\n",
        latest.len(),
        plural(surprises),
        first.date,
        first.commit,
        last.date,
        last.commit,
        records.len(),
        of_all(|record| record.strikes),
        of_all(|record| record.holds),
        of_all(|record| record.cancelled),
        of_all(|record| record.checked),
        of_all(|record| record.refused),
        if records.iter().any(|record| record.in_memory) { IN_MEMORY } else { "" },
    )
}

fn matrix(records: &[Record]) -> String {
    let latest = latest(records);
    let stated = cells();
    let faults = Fault::ALL.into_iter().filter(|fault| *fault != Fault::Mixed);
    let (run, missing): (Vec<_>, Vec<_>) =
        faults.partition(|fault| latest.values().any(|record| record.fault == *fault));
    let missing: Vec<String> = missing.iter().map(|fault| format!("`{fault}`")).collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!("\nNot run yet: {}.\n", missing.join(", ")) };
    if run.is_empty() {
        return missing;
    }
    let mut text = row(std::iter::once("fault".to_owned()).chain(ENGINES.map(str::to_owned)));
    text += &row((0..=ENGINES.len()).map(|_| "---".to_owned()));
    for fault in run {
        let of_engine = |name: &str| {
            let here = stated.iter().filter(|(subject, of, _)| *of == fault && engine(subject) == name);
            let here: Vec<_> = here
                .map(|(subject, _, outcome)| (latest.get(&crate::record::cell_name(subject, fault)), outcome))
                .collect();
            cell(&here)
        };
        text += &row(std::iter::once(format!("`{fault}`")).chain(ENGINES.map(of_engine)));
    }
    text + &missing
}

/// How long the runs took that showed a documented break, by fault and break.
fn breaks(records: &[Record]) -> String {
    let latest = latest(records);
    let mut text = row(["fault", "break", "cells", "longest run", "longest overlap"].map(str::to_owned));
    text += &row(["---"; 5].map(str::to_owned));
    for fault in Fault::ALL {
        let mut by_break: BTreeMap<String, Vec<Option<&Record>>> = BTreeMap::new();
        for (subject, _, outcome) in cells().into_iter().filter(|(_, of, _)| *of == fault) {
            let Some(stated) = outcome.documented() else { continue };
            let record = latest.get(&crate::record::cell_name(subject, fault));
            let shown = record.copied().filter(|record| record.surprise.is_none());
            by_break.entry(stated.to_string()).or_default().push(shown);
        }
        for (name, runs) in by_break {
            let shown = || runs.iter().flatten();
            let longest = shown().map(|record| record.seconds).max();
            let overlap = shown().map(|record| record.overlap_ms).filter(|ms| *ms > 0).max();
            text += &row([
                format!("`{fault}`"),
                name,
                format!("{} of {}", shown().count(), runs.len()),
                longest.map_or("–".to_owned(), |seconds| format!("{seconds} s")),
                overlap.map_or("–".to_owned(), |ms| format!("{:.2} s", ms as f64 / 1000.0)),
            ]);
        }
    }
    text
}

/// One engine under one fault, all its styles and topologies together.
fn cell(runs: &[(Option<&&Record>, &Outcome)]) -> String {
    let done: Vec<_> =
        runs.iter().filter_map(|(record, outcome)| record.map(|record| (*record, *outcome))).collect();
    if runs.is_empty() {
        return "–".into();
    }
    if done.is_empty() {
        return "not run".into();
    }
    let mut parts = Vec::new();
    let surprises = done.iter().filter(|(record, _)| record.surprise.is_some()).count();
    if surprises > 0 {
        parts.push(format!("**{}**", plural(surprises)));
    }
    let good = || done.iter().filter(|(record, _)| record.surprise.is_none());
    let safe = good().filter(|(_, outcome)| outcome.documented().is_none());
    let waited: Vec<u64> = safe.map(|(record, _)| record.waited_ms).collect();
    if let Some(longest) = waited.iter().max() {
        parts.push(format!("safe, {:.1} s", *longest as f64 / 1000.0));
    }
    let is_possible = |(_, outcome): &&(&Record, &Outcome)| matches!(outcome, Outcome::MayBreak(_));
    let documented = || good().filter(|(_, outcome)| outcome.documented().is_some());
    let breaks = documented().filter(|run| !is_possible(run)).count();
    if breaks > 0 {
        parts.push(if waited.is_empty() { "break".into() } else { format!("break in {breaks}") });
    }
    if documented().any(|run| is_possible(&run)) {
        parts.push("break possible".into());
    }
    if done.len() < runs.len() {
        parts.push(format!("{} of {}", done.len(), runs.len()));
    }
    parts.join("; ")
}

fn engines(records: &[Record]) -> String {
    let header = [
        "engine",
        "runs",
        "faults",
        "holds",
        "lost, and told",
        "waits given up",
        "checked accesses",
        "refused",
        "lost updates with tokens",
        "without",
    ];
    let mut text = row(header.map(str::to_owned)) + &row(header.map(|_| "---".to_owned()));
    for name in ENGINES {
        let of: Vec<&Record> = records.iter().filter(|record| engine(&record.subject) == name).collect();
        let sum = |of_record: fn(&Record) -> u64| grouped(of.iter().map(|record| of_record(record)).sum());
        let lost = of
            .iter()
            .filter(|record| record.findings.iter().any(|text| text.contains("although tokens")))
            .count();
        text += &row([
            name.to_owned(),
            of.len().to_string(),
            sum(|record| record.strikes),
            sum(|record| record.holds),
            sum(|record| record.lost),
            sum(|record| record.cancelled),
            sum(|record| record.checked),
            sum(|record| record.refused),
            lost.to_string(),
            sum(|record| record.lost_unfenced),
        ]);
    }
    text
}

fn mixed(records: &[Record]) -> String {
    let header = ["subject", "minutes", "faults", "holds", "checked accesses", "longest wait", "surprises"];
    let mut text = row(header.map(str::to_owned)) + &row(header.map(|_| "---".to_owned()));
    let mut by_subject: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.fault == Fault::Mixed) {
        by_subject.entry(&record.subject).or_default().push(record);
    }
    by_subject.insert("all", records.iter().filter(|record| record.fault == Fault::Mixed).collect());
    for (subject, of) in by_subject {
        let sum = |of_record: fn(&Record) -> u64| grouped(of.iter().map(|record| of_record(record)).sum());
        let longest = of.iter().map(|record| record.waited_ms).max().unwrap_or_default();
        text += &row([
            subject.to_owned(),
            format!("{:.1}", of.iter().map(|record| record.seconds).sum::<u64>() as f64 / 60.0),
            sum(|record| record.strikes),
            sum(|record| record.holds),
            sum(|record| record.checked),
            format!("{:.1} s", longest as f64 / 1000.0),
            of.iter().filter(|record| record.surprise.is_some()).count().to_string(),
        ]);
    }
    text
}

fn surprises(records: &[Record]) -> String {
    let latest = latest(records);
    let mixed = records.iter().filter(|record| record.fault == Fault::Mixed);
    let found = latest.values().copied().chain(mixed);
    let lines: Vec<String> = found
        .filter_map(|record| Some((record, record.surprise.as_ref()?)))
        .map(|(record, text)| {
            format!("- {}, seed {}, stated {}: {text}\n", record.name(), record.seed, record.stated)
        })
        .collect();
    if lines.is_empty() { "None.\n".into() } else { lines.concat() }
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("| {} |\n", cells.into_iter().collect::<Vec<_>>().join(" | "))
}

fn plural(surprises: usize) -> String {
    if surprises == 1 { "1 surprise".into() } else { format!("{surprises} surprises") }
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results;
    use std::path::Path;

    fn record(subject: &str, fault: &str, surprise: Option<&str>) -> Record {
        let surprise = surprise.map_or("null".to_owned(), |text| format!("{text:?}"));
        serde_json::from_str(&format!(
            "{{\"subject\":{subject:?},\"fault\":{fault:?},\"stated\":\"safe\",\"surprise\":{surprise},\"findings\":[],\"seed\":7,\
             \"strikes\":2,\"holds\":1000,\"lost\":1,\"cancelled\":3,\"checked\":1234567,\"refused\":1,\"unfenced\":9,\
             \"lost_unfenced\":1,\"overlap_ms\":1234,\"waited_ms\":2100,\"seconds\":60,\"date\":\"2023-11-14\",\"commit\":\"abc1234\"}}"
        ))
        .expect("a record")
    }

    #[test]
    fn tables_are_put_between_their_marks() {
        let page = "before\n<!-- faults:run -->\nstale text\n<!-- faults:end -->\nafter";
        let records = [record("redis", "cut", None), record("redis:plain", "cut", Some("two held"))];
        let renewed = renew(page, &records).expect("a page");
        assert!(
            renewed.starts_with("before") && renewed.ends_with("after") && !renewed.contains("stale text"),
            "{renewed}"
        );
        assert!(
            renewed.contains("**1 surprise**")
                && renewed.contains("2023-11-14")
                && renewed.contains("2,469,134"),
            "{renewed}"
        );
        assert!(renew("<!-- faults:flood -->\n<!-- faults:end -->", &records).is_err());
    }

    #[test]
    fn a_row_has_every_engine_under_a_fault() {
        let records = [record("redis", "cut", None), record("redis:plain", "cut", Some("two held"))];
        let matrix = matrix(&records);
        let cut = matrix.lines().find(|line| line.starts_with("| `cut` ")).expect("a row");
        assert!(cut.contains("| **1 surprise**; safe, 2.1 s; 2 of 5 |") && cut.contains("| – |"), "{cut}");
        assert!(surprises(&records).contains("redis:plain / cut, seed 7"));
        assert!(mixed(&[record("etcd", "mixed", None)]).contains("| etcd | 1.0 | 2 |"));
        assert!(mixed(&[]).contains("| all | 0.0 | 0 |"));
    }

    #[test]
    fn a_fault_has_a_row_once_it_was_run() {
        let matrix = matrix(&[record("redis", "cut", None)]);
        assert!(matrix.contains("\n| `cut` |") && !matrix.contains("| `tear` |"), "{matrix}");
        assert!(matrix.contains("\nNot run yet: `pause`, `pause-short`,"), "{matrix}");
        assert!(run(&[]).starts_with("None of "));
        for fault in Fault::ALL {
            let matrix = super::matrix(&[record("redis", &fault.to_string(), None)]);
            assert_eq!(matrix.contains(&format!("\n| `{fault}` |")), fault != Fault::Mixed, "{matrix}");
        }
    }

    #[test]
    fn every_break_has_the_time_of_its_longest_run() {
        let breaks =
            breaks(&[record("redis", "clock-turns", None), record("redlock", "clock-back", Some("none"))]);
        assert!(breaks.contains("| `clock-turns` | two holders | 1 of 10 | 60 s | 1.23 s |"), "{breaks}");
        assert!(breaks.contains("| `clock-back` | dead claims are kept | 0 of 10 | – | – |"), "{breaks}");
    }

    #[test]
    fn the_page_has_the_tables_of_the_results() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let page = std::fs::read_to_string(docs.join("proof.md")).expect("the page");
        let records = results::read(&docs.join("faults.jsonl")).expect("the results");
        let renewed = renew(&page, &records).expect("a page with marks");
        let stale = page.lines().zip(renewed.lines()).find(|(old, new)| old != new);
        assert!(page == renewed, "run scripts/faults --page docs/proof.md: {stale:?}");
    }
}
