//! The order of the runs: interleaved over all subjects and repeated, so that a busy moment hits all alike.

use crate::floors::Floor;
use crate::progress::Progress;
use crate::scale::Scale;
use crate::summary::{Sample, Subject, Summary, Unit, curve, figures};
use crate::target::Target;
use crate::workload::{PAIRS, Size};
use crate::{Result, Workload};
use lockkeeper_testkit::Placement;
use std::time::Instant;

/// The name of the median latency.
const MEDIAN: &str = "p50";

/// What is to be measured.
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) scale: Scale,
    pub(crate) targets: Vec<Target>,
}

/// One subject of one workload and size, and its runs.
struct Row<'a> {
    target: &'a Target,
    floor: Option<Floor>,
    /// One per repetition; `None` where a run failed.
    samples: Vec<Option<Sample>>,
    note: Option<String>,
}

impl Plan {
    /// Runs everything.
    pub(crate) fn run(&self) -> Vec<Summary> {
        let sizes: Vec<(Workload, Size)> = self
            .workloads
            .iter()
            .flat_map(|&workload| workload.sizes(&self.scale).into_iter().map(move |size| (workload, size)))
            .collect();
        let steps = sizes
            .iter()
            .map(|(workload, _)| workload.repetitions(&self.scale) * self.rows(*workload).len())
            .sum();
        let (progress, end) = (Progress::start(steps), Instant::now() + self.scale.budget);
        sizes.into_iter().flat_map(|(workload, size)| self.run_size(workload, size, &progress, end)).collect()
    }

    /// Every floor once, just before the first engine that it belongs to.
    fn rows(&self, workload: Workload) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        let row = |target, floor, note| Row { target, floor, samples: Vec::new(), note };
        for target in &self.targets {
            let is_new = |floor: &Floor| {
                !rows.iter().any(|row| row.floor == Some(*floor) && row.target.engine == target.engine)
            };
            if let Some(floor) = target.floor.filter(|_| workload.has_floor()).filter(is_new) {
                rows.push(row(target, Some(floor), None));
            }
            if let Some(abilities) = &target.abilities {
                let note = workload.beyond(abilities).map(Into::into);
                rows.push(row(target, None, note));
            }
        }
        rows
    }

    fn run_size(&self, workload: Workload, size: Size, progress: &Progress, end: Instant) -> Vec<Summary> {
        let mut rows = self.rows(workload);
        for repetition in 0..workload.repetitions(&self.scale) {
            if repetition > 0 && Instant::now() > end {
                break;
            }
            for row in &mut rows {
                progress.doing(format!("{} {size} on {}", workload.name(), row.name()));
                self.run_row(workload, size, row);
                progress.step();
            }
        }
        compare(&mut rows);
        rows.into_iter().map(|row| row.summary(workload, size)).collect()
    }

    fn run_row(&self, workload: Workload, size: Size, row: &mut Row<'_>) {
        // Beyond this engine, or it failed before: it would only fail again.
        if row.note.is_some() {
            return;
        }
        match self.sample(workload, size, row) {
            Ok(sample) => row.samples.push(Some(sample)),
            Err(error) => {
                row.samples.push(None);
                row.note = Some(describe(&*error));
            }
        }
    }

    fn sample(&self, workload: Workload, size: Size, row: &Row<'_>) -> Result<Sample> {
        let Target { url, is_ours, .. } = row.target;
        // Somebody else's server stays where it is, and then it is of no use to move the client.
        let placement = if *is_ours { workload.placement(&self.scale) } else { Placement::Free };
        let _placed = placement
            .hold()
            .map_err(|why| format!("cannot put client and server {placement}: {why}; try --place free"))?;
        match row.floor {
            Some(floor) => workload.run_floor(floor, url, size.number, &self.scale),
            None => workload.run(url, size.number, &self.scale),
        }
    }
}

/// The error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        // Many errors repeat their cause in their own text.
        if !text.contains(&next_text) {
            text = format!("{text}: {next_text}");
        }
        cause = next.source();
    }
    text
}

impl Row<'_> {
    fn name(&self) -> String {
        self.floor.map_or_else(|| self.target.name.clone(), |floor| floor.name().into())
    }

    /// A positive number of one repetition.
    fn number(&self, repetition: usize, name: &str) -> Option<f64> {
        self.samples.get(repetition)?.as_ref()?.get(name).filter(|&number| number > 0.0)
    }

    fn summary(self, workload: Workload, size: Size) -> Summary {
        let subject =
            Subject { name: self.name(), engine: self.target.engine.clone(), is_floor: self.floor.is_some() };
        let samples: Vec<Sample> = self.samples.into_iter().flatten().collect();
        Summary {
            workload: workload.name().into(),
            size: size.to_string(),
            size_number: size.number,
            subject,
            runs: samples.len(),
            figures: figures(&samples),
            curve: curve(&samples),
            note: self.note,
        }
    }
}

/// Adds to every engine's run its ratio to the floor's run of the same repetition, and to that of Redis, which
/// is what most would use instead. Where other programs take the processor away, the ratio of the medians (how
/// often our pair fits into the floor's time, or the other way round) is steadier than that of the rates.
fn compare(rows: &mut [Row<'_>]) {
    let redis = rows.iter().position(|row| row.floor == Some(Floor::Redis));
    for index in 0..rows.len() {
        let target = rows[index].target;
        if rows[index].floor.is_some() {
            continue;
        }
        let own = rows.iter().position(|row| {
            row.floor.is_some() && row.floor == target.floor && row.target.engine == target.engine
        });
        let redis = redis.filter(|redis| own != Some(*redis));
        for (name, floor) in [("× own floor", own), ("× Redis floor", redis)] {
            let Some(floor) = floor else { continue };
            for repetition in 0..rows[index].samples.len() {
                let of = |row: usize, name| rows[row].number(repetition, name);
                let rate = of(index, PAIRS).zip(of(floor, PAIRS)).map(|(ours, floor)| ours / floor);
                let median = of(index, MEDIAN).zip(of(floor, MEDIAN)).map(|(ours, floor)| floor / ours);
                if let Some(Some(sample)) = rows[index].samples.get_mut(repetition) {
                    *sample = std::mem::take(sample).with_some(name, Unit::Ratio, rate).with_some(
                        &format!("{name}, p50"),
                        Unit::Ratio,
                        median,
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Servers;
    use crate::target::{Wish, start};

    fn memory(workloads: &[Workload]) -> Vec<Summary> {
        let targets = start(&[Wish::parse("memory")], &mut Servers::default()).unwrap();
        Plan { workloads: workloads.to_vec(), scale: Scale::tiny(), targets }.run()
    }

    #[test]
    fn every_turn_of_an_uncontended_run_is_measured() {
        let summaries = memory(&[Workload::Uncontended]);
        assert_eq!(summaries.len(), 1);
        assert_eq!((summaries[0].note.as_deref(), summaries[0].runs), (None, 2));
        assert!(summaries[0].get(PAIRS).unwrap() > 0.0);
        assert!(summaries[0].get("p99.9").unwrap() >= summaries[0].get("p50").unwrap());
    }

    #[test]
    fn contenders_share_the_turns() {
        let summaries = memory(&[Workload::Contended]);
        let (fewest, most) = (summaries[0].get("fewest turns"), summaries[0].get("most turns"));
        assert!(fewest.unwrap() > 0.0 && most.unwrap() <= 60.0, "{summaries:?}");
        assert!(summaries[0].get("Jain").unwrap() > 0.3);
    }

    #[test]
    fn tasks_on_their_own_locks_and_on_shared_ones_are_measured() {
        for summary in memory(&[Workload::Spread, Workload::ReadMostly, Workload::Semaphore]) {
            assert_eq!((summary.note.as_deref(), summary.runs), (None, 2), "{}", summary.workload);
            assert!(summary.figures[0].median > 0.0, "{}", summary.workload);
        }
    }

    #[test]
    fn waiting_and_holding_are_measured() {
        let scale = Scale::tiny();
        let waiting = Workload::Waiting.run_here("memory:bench", 5, &scale).unwrap();
        assert_eq!(waiting.latencies.count(), 5);
        let holding = Workload::Holding.run_here("memory:bench", 20, &scale).unwrap();
        assert_eq!(holding.get("lost"), Some(0.0));
    }

    #[test]
    fn what_an_engine_cannot_do_is_said() {
        let summaries = memory(&[Workload::Crash, Workload::Processes, Workload::Pause]);
        for summary in summaries {
            assert_eq!(
                summary.note.as_deref(),
                Some("its locks live in one process"),
                "{}",
                summary.workload
            );
            assert_eq!(summary.runs, 0);
        }
    }

    #[test]
    fn nothing_is_repeated_when_the_time_is_over() {
        let targets = start(&[Wish::parse("memory")], &mut Servers::default()).unwrap();
        let scale = Scale { budget: std::time::Duration::ZERO, ..Scale::tiny() };
        let summaries = Plan { workloads: vec![Workload::Uncontended], scale, targets }.run();
        assert_eq!((summaries[0].runs, summaries[0].note.as_deref()), (1, None));
    }

    #[test]
    fn a_failed_run_is_noted_and_the_rest_goes_on() {
        let mut targets = start(&[Wish::parse("memory")], &mut Servers::default()).unwrap();
        targets[0].url = "memory:bench?unknown_option=1".into();
        let plan =
            Plan { workloads: vec![Workload::Uncontended, Workload::Spread], scale: Scale::tiny(), targets };
        let summaries = plan.run();
        assert_eq!(summaries.len(), 2);
        assert!(summaries.iter().all(|summary| summary.note.as_deref().unwrap().contains("unknown_option")));
    }

    #[test]
    fn ratios_are_taken_within_the_same_repetition() {
        let targets = start(&[Wish::parse("memory")], &mut Servers::default()).unwrap();
        let mut target = targets[0].clone();
        target.floor = Some(Floor::Redis);
        let samples = |rates: [f64; 2]| {
            rates.map(|rate| Some(Sample::default().with(PAIRS, Unit::PerSecond, rate))).to_vec()
        };
        let row = |floor, rates| Row { target: &target, floor, samples: samples(rates), note: None };
        let mut rows = [row(Some(Floor::Redis), [10.0, 100.0]), row(None, [5.0, 50.0])];
        compare(&mut rows);
        let ratios: Vec<Option<f64>> =
            rows[1].samples.iter().map(|sample| sample.as_ref().unwrap().get("× own floor")).collect();
        assert_eq!(ratios, [Some(0.5), Some(0.5)]);
        assert_eq!(rows[0].samples[0].as_ref().unwrap().metrics.len(), 1);
    }
}
