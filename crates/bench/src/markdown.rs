//! Tables for a Markdown page, put between its marks: `<!-- bench:uncontended -->` up to `<!-- bench:end -->`.
//!
//! A mark names a workload, `machine` (where it ran), `overview` (a row per engine, a column per question),
//! `bends` (where the cost of a curve begins to grow), `families` (databases, cache, ZooKeeper and etcd, each with its quickest
//! and its fair style), `peers-` and a workload (beside other libraries) or `delayed-` and a workload (over a network).

use crate::bend::{Growth, bend};
use crate::command::Outcome;
use crate::summary::Summary;
use crate::table::{columns, digits, show};
use crate::{Result, Usage, Workload};

const BEGIN: &str = "<!-- bench:";
const CLOSE: &str = " -->\n";
const END: &str = "<!-- bench:end -->";

/// The page with its tables as this outcome has them.
///
/// # Errors
/// When a mark has no end or names nothing that there is.
pub fn renew(page: &str, outcome: &Outcome) -> Result<String> {
    let mut renewed = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let unfinished = || Usage("a mark '<!-- bench:… -->' on the page has no end".into());
        let (name, after) = after.split_once(CLOSE).ok_or_else(unfinished)?;
        let (_, after) = after.split_once(END).ok_or_else(unfinished)?;
        let table = content(name, outcome)?;
        renewed += &format!("{before}{BEGIN}{name}{CLOSE}{table}{END}");
        rest = after;
    }
    Ok(renewed + rest)
}

fn content(name: &str, outcome: &Outcome) -> Result<String> {
    let is_known = |name: &str| Workload::all().iter().any(|workload| workload.name() == name);
    let of = |results: &[Summary], name: &str| -> Vec<Summary> {
        results.iter().filter(|summary| summary.workload == name).cloned().collect()
    };
    match name {
        "machine" => Ok(machine(outcome)),
        "overview" => Ok(overview(&outcome.results, &engines(&outcome.results))),
        "bends" => Ok(bends(&outcome.results)),
        "families" => Ok(overview(&outcome.results, &families(&outcome.results))),
        name if is_known(name) => Ok(table(&of(&outcome.results, name))),
        name => {
            let others = [("peers-", &outcome.peers), ("delayed-", &outcome.delayed)];
            let found =
                others.into_iter().find_map(|(prefix, results)| Some((name.strip_prefix(prefix)?, results)));
            let (workload, results) = found.filter(|(workload, _)| is_known(workload)).ok_or_else(|| {
                Usage(format!("a mark on the page asks for '{name}', which the bench has not"))
            })?;
            Ok(table(&of(results, workload)))
        }
    }
}

fn machine(outcome: &Outcome) -> String {
    let repetitions = outcome.scale.repetitions;
    format!(
        "{}. lockkeeper {}, {repetitions} repetitions, measured in {:.0} s.{}{}\n",
        outcome.machine.line(),
        outcome.version,
        outcome.seconds,
        outcome.scale.network(),
        outcome.machine.caveat()
    )
}

/// Medians; the report beside has the spreads.
fn table(summaries: &[Summary]) -> String {
    if summaries.is_empty() {
        return "Not measured.\n".into();
    }
    let columns = columns(summaries);
    let has_sizes = summaries.iter().any(|summary| !summary.size.is_empty());
    let mut header = vec!["engine".to_string()];
    header.extend(has_sizes.then(|| "size".to_string()));
    header.extend(columns.iter().map(|column| (*column).to_string()));
    let mut text = head(&header, 1 + usize::from(has_sizes));
    for summary in summaries {
        let name = cell(&summary.subject.name);
        let mut cells = vec![if summary.subject.is_floor { format!("*{name}*") } else { name }];
        cells.extend(has_sizes.then(|| summary.size.clone()));
        cells.extend(columns.iter().map(|column| figure(summary, column)));
        if let (Some(note), true) = (&summary.note, summary.figures.is_empty()) {
            let first = 1 + usize::from(has_sizes);
            cells[first] = cell(note.lines().next().unwrap_or_default());
        }
        text += &row(&cells);
    }
    text
}

/// What an overview asks of each engine: a heading, the workload, the size it prefers, and the figure.
const QUESTIONS: &[(&str, Workload, usize, &str)] = &[
    ("alone, pairs/s", Workload::Uncontended, 1, "pairs/s"),
    ("of the floor", Workload::Uncontended, 1, "× own floor"),
    ("64 locks, pairs/s", Workload::Spread, 64, "pairs/s"),
    ("16 contend, hand-overs/s", Workload::Contended, 16, "hand-overs/s"),
    ("fairness (Jain)", Workload::Contended, 16, "Jain"),
    ("requests per hand-over", Workload::Contended, 16, "requests/hand-over"),
    ("many wait, requests/s", Workload::Waiting, usize::MAX, "idle requests/s"),
    ("release to next holder", Workload::Waiting, usize::MAX, "hand-over p50"),
    ("holder killed, next holds", Workload::Crash, 1, "hand-over p50"),
    ("with a TTL of", Workload::Crash, 1, "TTL"),
];

/// The engines and styles, each with the words to call it.
fn engines(results: &[Summary]) -> Vec<(&str, String)> {
    let mut engines: Vec<(&str, String)> = Vec::new();
    for summary in results.iter().filter(|summary| !summary.subject.is_floor) {
        let name = summary.subject.name.as_str();
        if !engines.iter().any(|(known, _)| *known == name) {
            engines.push((name, cell(name)));
        }
    }
    engines
}

/// What the usual comparison calls them.
const FAMILIES: &[(&str, &[&str])] = &[
    ("database", &["postgres", "mysql"]),
    ("cache", &["redis"]),
    ("ZooKeeper", &["zookeeper"]),
    ("etcd", &["etcd"]),
];

/// Of each family the quickest style of all, and the quickest fair one.
fn families(results: &[Summary]) -> Vec<(&str, String)> {
    let mut chosen = Vec::new();
    for (family, engines) in FAMILIES {
        let alone = || {
            let uncontended = |summary: &&Summary| summary.workload == Workload::Uncontended.name();
            let rate = |summary: &Summary| summary.get("pairs/s").unwrap_or_default();
            let mut alone: Vec<&Summary> = results.iter().filter(uncontended).collect();
            alone.retain(|row| engines.contains(&row.subject.engine.as_str()) && !row.subject.is_floor);
            alone.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
            alone.into_iter().map(|summary| summary.subject.name.as_str())
        };
        let (quickest, fair) = (alone().next(), alone().find(|name| name.contains("queue")));
        for name in quickest.into_iter().chain(fair.filter(|fair| Some(*fair) != quickest)) {
            chosen.push((name, format!("{family}: {}", cell(name))));
        }
    }
    chosen
}

/// A row per engine, and for each workload with several sizes how much more a unit of it costs at the largest one.
fn bends(results: &[Summary]) -> String {
    let header: Vec<String> = ["engine"]
        .into_iter()
        .chain(Growth::ALL.iter().map(|growth| growth.heading()))
        .map(Into::into)
        .collect();
    let mut text = head(&header, 1);
    for (engine, words) in engines(results) {
        let cells = Growth::ALL.iter().map(|growth| {
            let costs = growth.costs(results, engine);
            let (Some(first), Some(last)) = (costs.first(), costs.last()) else { return String::new() };
            let times = digits(last.1 / first.1);
            match bend(&costs) {
                Some(size) => format!("× {times} at {}, from {size}", last.0),
                None => format!("× {times} at {}", last.0),
            }
        });
        text += &row(&[words].into_iter().chain(cells).collect::<Vec<String>>());
    }
    text
}

fn overview(results: &[Summary], engines: &[(&str, String)]) -> String {
    let header: Vec<String> =
        ["engine"].into_iter().chain(QUESTIONS.iter().map(|question| question.0)).map(Into::into).collect();
    let mut text = head(&header, 1);
    for (engine, words) in engines {
        let mut cells = vec![words.clone()];
        for &(_, workload, size, name) in QUESTIONS {
            let asked = results.iter().filter(|summary| {
                summary.workload == workload.name()
                    && summary.subject.name == *engine
                    && !summary.subject.is_floor
            });
            let nearest = asked.min_by_key(|summary| summary.size_number.abs_diff(size));
            cells.push(nearest.map(|summary| figure(summary, name)).unwrap_or_default());
        }
        text += &row(&cells);
    }
    text
}

fn figure(summary: &Summary, name: &str) -> String {
    let figure = summary.figures.iter().find(|figure| figure.name == name);
    figure.map(|figure| show(figure.unit, figure.median)).unwrap_or_default()
}

fn head(cells: &[String], left: usize) -> String {
    let rule: Vec<String> =
        (0..cells.len()).map(|at| if at < left { "---" } else { "---:" }.into()).collect();
    row(cells) + &row(&rule)
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Text that cannot end its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::scale::Scale;
    use crate::summary::{Figure, Subject, Unit};

    fn outcome() -> Outcome {
        let summary = |name: &str, workload: Workload, figure: &str, unit| Summary {
            workload: workload.name().into(),
            size: String::new(),
            size_number: 1,
            subject: Subject { name: name.into(), engine: name.into(), is_floor: name.starts_with("raw") },
            runs: 1,
            figures: vec![Figure { name: figure.into(), unit, median: 2.5, low: 1.0, high: 3.0 }],
            curve: Vec::new(),
            note: None,
        };
        Outcome {
            version: "1.2.3".into(),
            machine: Machine::here(),
            scale: Scale::tiny(),
            seconds: 1.0,
            results: vec![
                summary("raw a|b", Workload::Uncontended, "pairs/s", Unit::PerSecond),
                summary("file queue", Workload::Uncontended, "pairs/s", Unit::PerSecond),
                summary("file queue", Workload::Crash, "hand-over p50", Unit::Seconds),
            ],
            peers: vec![summary("somebody's lock", Workload::Spread, "pairs/s", Unit::PerSecond)],
            delayed: vec![summary("a far lock", Workload::Spread, "pairs/s", Unit::PerSecond)],
        }
    }

    #[test]
    fn what_stands_between_marks_is_renewed_and_the_rest_stays() {
        let page = "# A\n<!-- bench:uncontended -->\nold\n<!-- bench:end -->\nB\n\
                    <!-- bench:peers-spread -->\n<!-- bench:end -->\n\
                    <!-- bench:delayed-spread -->\n<!-- bench:end -->\n";
        let renewed = renew(page, &outcome()).unwrap();
        assert!(renewed.starts_with("# A\n") && renewed.contains("<!-- bench:end -->\nB\n"), "{renewed}");
        assert!(renewed.contains("| *raw a\\|b* | 2.50 |\n| file queue | 2.50 |\n"), "{renewed}");
        assert!(renewed.contains("somebody's lock") && !renewed.contains("old"), "{renewed}");
        assert_eq!(renewed.matches("| a far lock | 2.50 |").count(), 1, "{renewed}");
        assert_eq!(renew(&renewed, &outcome()).unwrap(), renewed, "a second time changes nothing");
    }

    #[test]
    fn the_overview_has_a_row_per_engine() {
        let results = outcome().results;
        let text = overview(&results, &engines(&results));
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.ends_with("| file queue | 2.50 |  |  |  |  |  |  |  | 2.50 s |  |\n"), "{text}");
    }

    #[test]
    fn of_each_family_the_quickest_and_the_fair_style_are_shown() {
        let mut results = outcome().results;
        let mut row = results[1].clone();
        for (name, rate) in
            [("mysql row", 3.0), ("postgres queue", 4.0), ("postgres advisory", 9.0), ("etcd queue", 1.0)]
        {
            row.subject.name = name.into();
            row.subject.engine = name.split(' ').next().unwrap().into();
            row.figures[0].median = rate;
            results.push(row.clone());
        }
        let families: Vec<String> = families(&results).into_iter().map(|(_, words)| words).collect();
        assert_eq!(families, ["database: postgres advisory", "database: postgres queue", "etcd: etcd queue"]);
    }

    #[test]
    fn bad_marks_are_refused() {
        for page in ["<!-- bench:crash -->\nno end", "<!-- bench:abacus -->\n<!-- bench:end -->"] {
            assert!(renew(page, &outcome()).unwrap_err().is::<Usage>(), "{page}");
        }
    }
}
