//! The tables of the page: all workloads of a peer in one row, put between the marks `<!-- peers:NAME -->` and `<!-- peers:end -->`.

use crate::catalog::{MEASURED, Peer};
use crate::contest::RATIO;
use crate::workload::MAIN;
use lockkeeper_bench::command::Outcome;
use lockkeeper_bench::summary::{Figure, Summary, Unit};
use lockkeeper_bench::table::show;
use lockkeeper_bench::{Result, Workload};

/// A ratio below this is a peer's lead.
const AHEAD: f64 = 0.95;

/// Puts a text between the marks of this name.
pub fn renew(page: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- peers:{name} -->\n"), "<!-- peers:end -->");
    let (before, rest) = page.split_once(&begin).ok_or_else(|| format!("the page has no mark {begin}"))?;
    let (_, after) = rest.split_once(end).ok_or("the mark has no end")?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

/// Where and how it was measured, and a row for each peer.
pub fn table(outcome: &Outcome) -> String {
    let repetitions = outcome.scale.repetitions;
    let mut text = format!(
        "{}. lockkeeper {}, {repetitions} interleaved repetitions, {:.0} s.{}{}\n\n",
        outcome.machine.line(),
        outcome.version,
        outcome.seconds,
        outcome.scale.network(),
        outcome.machine.caveat()
    );
    text += "| peer | beside | one lock | 64 locks | 16 contenders | requests per hand-over | 200 idle waiters, requests/s \
             | hand-over to one of them | after `kill -9` |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for peer in MEASURED {
        let Some(rival) = peer.rival else { continue };
        let row = Row { outcome, peer, rival };
        if outcome.results.iter().any(|summary| summary.subject.name == peer.name) {
            text += &row.show();
        }
    }
    text
}

struct Row<'a> {
    outcome: &'a Outcome,
    peer: &'a Peer,
    rival: &'a str,
}

impl Row<'_> {
    fn show(&self) -> String {
        let ratios = MAIN.map(|(workload, ..)| self.ratio(workload));
        let [one, locks, contenders, hand_over, kill] = &ratios;
        let requests = self.both(Workload::Contended, "requests/hand-over");
        let idle = self.both(Workload::Waiting, "idle requests/s");
        let (name, rival) = (self.peer.name, self.rival);
        let killed = self.both(Workload::Crash, "next holds after");
        let kill = if killed.is_empty() { kill.clone() } else { format!("{kill}, {killed}") };
        format!(
            "| {name} | {rival} | {one} | {locks} | {contenders} | {requests} | {idle} | {hand_over} | {kill} |\n"
        )
    }

    fn summary(&self, workload: Workload, name: &str) -> Option<&Summary> {
        let of = |summary: &&Summary| summary.workload == workload.name() && summary.subject.name == name;
        self.outcome.results.iter().find(of)
    }

    /// The median of the ratios with their spread; what failed says so.
    fn ratio(&self, workload: Workload) -> String {
        let Some(summary) = self.summary(workload, self.peer.name) else { return String::new() };
        match figure(summary, RATIO) {
            Some(ratio) => with_spread(ratio),
            None => summary.note.as_deref().map_or("–".into(), |note| note.replace('|', "/")),
        }
    }

    /// Theirs, and ours beside.
    fn both(&self, workload: Workload, name: &str) -> String {
        let ours = self.summary(workload, &format!("lockkeeper {}", self.rival));
        let value = |summary: Option<&Summary>| Some(figure(summary?, name)?.median);
        let unit = |summary: Option<&Summary>| Some(figure(summary?, name)?.unit);
        let theirs = self.summary(workload, self.peer.name);
        let words = |value: Option<f64>| {
            value.map_or("–".into(), |value| show(unit(theirs).unwrap_or(Unit::Ratio), value))
        };
        match (value(theirs), value(ours)) {
            (None, None) => String::new(),
            (theirs, ours) => format!("{} : {}", words(theirs), words(ours)),
        }
    }
}

fn figure<'a>(summary: &'a Summary, name: &str) -> Option<&'a Figure> {
    summary.figures.iter().find(|figure| figure.name == name)
}

fn with_spread(ratio: &Figure) -> String {
    let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(|ratio| show(Unit::Ratio, ratio));
    let median = if ratio.median < AHEAD { format!("**{median}**") } else { median };
    format!("{median} ({low}–{high})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_changes() {
        let page = "a\n<!-- peers:one -->\nold\n<!-- peers:end -->\nb\n";
        assert_eq!(renew(page, "one", "new\n").unwrap(), page.replace("old", "new"));
        assert!(renew(page, "two", "").is_err());
    }

    #[test]
    fn a_ratio_has_its_spread_and_a_lead_is_bold() {
        let ratio = |median| Figure { name: RATIO.into(), unit: Unit::Ratio, median, low: 0.5, high: 3.0 };
        assert_eq!(with_spread(&ratio(2.0)), "2.00 (0.50–3.00)");
        assert_eq!(with_spread(&ratio(0.8)), "**0.80** (0.50–3.00)");
    }
}
