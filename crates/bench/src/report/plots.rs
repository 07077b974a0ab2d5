//! Which figures are drawn, and how.

use super::bars::{self, Bar};
use super::lines::{self, Line};
use super::words::Words;
use crate::summary::{Summary, Unit};
use crate::{Result, Workload};
use plotters::style::RGBColor;

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);

const THROUGHPUT: Words = Words {
    title: "Locks and releases per second",
    unit: "pairs/s",
    caption: "One keeper, one lock, nobody else. Longer is better, and each gridline is ten times the one before. Pale: the raw \
              floor, the same requests on the driver alone. The thin line is the spread over the repetitions.",
};
const LATENCY: Words = Words {
    title: "How long a lock and its release take",
    unit: "time for a pair",
    caption: "Lower is better. Read: 99 % of the pairs took no longer than the line's height above '99 %'.",
};
const HANDOVER: Words = Words {
    title: "How long a fair hand-over takes while others wait",
    unit: "time for one",
    caption: "Lower is better, and level is best: a hand-over should not depend on how many wait. The styles queue, which serve in \
              order. With 2 to 128 contenders, the mean time from grant to grant; with more, the median time from the call of \
              release to the return of the next one's lock.",
};
const CRASH: Words = Words {
    title: "How long until the next one holds after the holder was killed",
    unit: "time from the kill to the grant",
    caption: "Shorter is better: the median, with the quickest run's and the slowest's. Engines which cannot see a dead process \
              wait until the TTL ends; the table says which TTL.",
};

/// One picture with its words.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// The name of its file, without the ending.
    pub(crate) file: &'static str,
    pub(crate) words: Words,
    pub(crate) svg: String,
}

/// Those for which there are figures.
pub(crate) fn all(results: &[Summary]) -> Result<Vec<Plot>> {
    let plots = [
        Plot { file: "throughput", words: THROUGHPUT, svg: throughput(results)? },
        Plot { file: "latency", words: LATENCY, svg: latency(results)? },
        Plot { file: "handover", words: HANDOVER, svg: handover(results)? },
        Plot { file: "crash", words: CRASH, svg: crash(results)? },
    ];
    Ok(plots.into_iter().filter(|plot| !plot.svg.is_empty()).collect())
}

fn of(results: &[Summary], workload: Workload) -> impl Iterator<Item = &Summary> {
    results.iter().filter(move |summary| summary.workload == workload.name())
}

fn throughput(results: &[Summary]) -> Result<String> {
    let bars: Vec<Bar> = of(results, Workload::Uncontended)
        .filter_map(|summary| {
            let figure = summary.figures.iter().find(|figure| figure.name == "pairs/s")?;
            Some(Bar {
                label: summary.subject.name.clone(),
                value: figure.median,
                low: figure.low,
                high: figure.high,
                is_floor: summary.subject.is_floor,
            })
        })
        .collect();
    Ok(bars::draw(THROUGHPUT, &bars, Unit::PerSecond, BLUE)?.unwrap_or_default())
}

/// The spread of a crash is that of the kills within one run.
fn crash(results: &[Summary]) -> Result<String> {
    let bars: Vec<Bar> = of(results, Workload::Crash)
        .filter_map(|summary| {
            let low = summary.curve.first()?.1;
            let (median, high) = (summary.get("hand-over p50")?, summary.get("hand-over p100")?);
            Some(Bar { label: summary.subject.name.clone(), value: median, low, high, is_floor: false })
        })
        .collect();
    Ok(bars::draw(CRASH, &bars, Unit::Seconds, ORANGE)?.unwrap_or_default())
}

/// Across: one over the share that is slower, so that 90 %, 99 % and 99.9 % stand at equal distances.
fn latency(results: &[Summary]) -> Result<String> {
    let lines: Vec<Line> = of(results, Workload::Uncontended)
        .filter(|summary| !summary.subject.is_floor && !summary.curve.is_empty())
        .map(|summary| Line {
            label: summary.subject.name.clone(),
            group: summary.subject.engine.clone(),
            points: summary.curve.iter().map(|(share, seconds)| (1.0 / (1.0 - share), *seconds)).collect(),
        })
        .collect();
    let ticks = [(1.0, "0 %"), (2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1_000.0, "99.9 %")];
    let ticks: Vec<(f64, String)> = ticks.into_iter().map(|(at, text)| (at, text.into())).collect();
    Ok(lines::draw(LATENCY, &lines, &ticks, "share of the pairs that took no longer", Unit::Seconds)?
        .unwrap_or_default())
}

fn handover(results: &[Summary]) -> Result<String> {
    let mut lines: Vec<Line> = Vec::new();
    let contended = of(results, Workload::Contended).filter_map(|summary| {
        let rate = summary.get("hand-overs/s").filter(|rate| *rate > 0.0)?;
        Some((summary, 1.0 / rate))
    });
    let waiting =
        of(results, Workload::Waiting).filter_map(|summary| Some((summary, summary.get("hand-over p50")?)));
    let mut ticks: Vec<usize> = Vec::new();
    let is_fair = |(summary, _): &(&Summary, f64)| summary.subject.name.ends_with(" queue");
    for (summary, seconds) in contended.chain(waiting).filter(is_fair) {
        let label = &summary.subject.name;
        let point = (summary.size_number as f64, seconds);
        match lines.iter_mut().find(|line| line.label == *label) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                label: label.clone(),
                group: summary.subject.engine.clone(),
                points: vec![point],
            }),
        }
        ticks.push(summary.size_number);
    }
    ticks.sort_unstable();
    ticks.dedup();
    let ticks: Vec<(f64, String)> = ticks.into_iter().map(|size| (size as f64, size.to_string())).collect();
    Ok(lines::draw(HANDOVER, &lines, &ticks, "keepers or waiters on one lock", Unit::Seconds)?
        .unwrap_or_default())
}
