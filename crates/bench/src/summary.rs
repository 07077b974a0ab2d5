//! What came out: samples of single runs, and their medians and spreads over the repetitions.

use crate::measure::{Latencies, median};
use serde::{Deserialize, Serialize};

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// Seconds; shown in the unit that fits.
    Seconds,
    /// A number of things.
    Count,
    /// One number divided by another.
    Ratio,
    /// Bytes.
    Bytes,
    /// A share of one processor, where 1 is a whole one.
    Processor,
}

/// One number of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// What it is, such as `pairs/s`.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// How much.
    pub value: f64,
}

/// One run of a workload: its numbers, in the order to show them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The numbers.
    pub metrics: Vec<Metric>,
    /// All the latencies, where the workload has them.
    pub latencies: Latencies,
}

impl Sample {
    /// Adds a number.
    #[must_use]
    pub fn with(mut self, name: &str, unit: Unit, value: f64) -> Self {
        self.metrics.push(Metric { name: name.into(), unit, value });
        self
    }

    /// Adds a number if there is one.
    #[must_use]
    pub fn with_some(self, name: &str, unit: Unit, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(name, unit, value),
            None => self,
        }
    }

    /// Adds latencies, and of each of the given shares (0.5, 0.99, 0.999) the latency as a number.
    #[must_use]
    pub fn with_latencies(mut self, what: &str, latencies: &Latencies, shares: &[f64]) -> Self {
        if latencies.count() == 0 {
            return self;
        }
        for &share in shares {
            let name = format!("{what}p{}", (share * 1_000.0).round() / 10.0);
            self = self.with(&name, Unit::Seconds, latencies.quantile(share));
        }
        self.latencies.merge(latencies);
        self
    }

    /// A number by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The engine and style, such as `redis queue`, or the requests of a floor.
    pub name: String,
    /// The engine alone.
    pub engine: String,
    /// Whether it is a raw floor: the driver alone, with no lockkeeper code.
    pub is_floor: bool,
}

/// One number over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// The middle one.
    pub median: f64,
    /// The smallest one.
    pub low: f64,
    /// The largest one.
    pub high: f64,
}

/// All runs of one workload, at one size, on one subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// The workload.
    pub workload: String,
    /// Its size, such as `16 keepers`.
    pub size: String,
    /// The size as a number.
    pub size_number: usize,
    /// On what.
    pub subject: Subject,
    /// How many runs came to their end.
    pub runs: usize,
    /// Medians and spreads.
    pub figures: Vec<Figure>,
    /// Shares of requests, and the latency in seconds which they do not exceed, over all runs.
    pub curve: Vec<(f64, f64)>,
    /// Why there are no figures, or fewer than asked for.
    pub note: Option<String>,
}

impl Summary {
    /// A number's median by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.median)
    }
}

/// The medians and spreads of the numbers, in the order of the first run that has them.
pub fn figures(samples: &[Sample]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for metric in samples.iter().flat_map(|sample| &sample.metrics) {
        if figures.iter().any(|figure| figure.name == metric.name) {
            continue;
        }
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.get(&metric.name)).collect();
        figures.push(Figure {
            name: metric.name.clone(),
            unit: metric.unit,
            median: median(&values),
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        });
    }
    figures
}

/// The curve over the latencies of all runs.
pub fn curve(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut all = Latencies::default();
    samples.iter().for_each(|sample| all.merge(&sample.latencies));
    all.curve()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn figures_are_medians_with_their_spread() {
        let samples: Vec<Sample> = [30.0, 10.0, 20.0]
            .iter()
            .map(|&rate| Sample::default().with("pairs/s", Unit::PerSecond, rate))
            .collect();
        let figures = figures(&samples);
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].median, figures[0].low, figures[0].high), (20.0, 10.0, 30.0));
    }

    #[test]
    fn a_number_that_some_runs_lack_is_taken_of_the_others() {
        let samples = [
            Sample::default().with("a", Unit::Count, 1.0),
            Sample::default().with("a", Unit::Count, 3.0).with_some("b", Unit::Ratio, Some(7.0)),
        ];
        let figures = figures(&samples);
        assert_eq!(figures.iter().map(|figure| figure.median).collect::<Vec<_>>(), [2.0, 7.0]);
    }

    #[test]
    fn latencies_become_named_quantiles() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_millis(2));
        let sample = Sample::default().with_latencies("wait ", &latencies, &[0.5, 0.99, 0.999]);
        let names: Vec<&str> = sample.metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["wait p50", "wait p99", "wait p99.9"]);
        let none = Sample::default().with_latencies("", &Latencies::default(), &[0.5]);
        assert!(none.metrics.is_empty());
    }
}
