//! Latencies, paces and the statistics over repeated runs.

use crate::scale::Limit;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Three significant digits are finer than any two runs agree.
const DIGITS: u8 = 3;

/// Many durations, in bounded memory; sent between processes as pairs of nanoseconds and counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new(DIGITS).expect("a number of digits that the histogram takes"))
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        // The histogram grows by itself; a duration of centuries, which it refuses, does not occur.
        let _ = self.0.record(nanoseconds(latency));
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: &Self) {
        // Cannot fail: this one grows as needed.
        let _ = self.0.add(&other.0);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency, in seconds, that this share of them does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e9
    }

    /// The curve: shares of the requests and the latency in seconds that they do not exceed, ever finer
    /// towards the slowest.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let mut shares: Vec<f64> = (0..9).map(|tenth| f64::from(tenth) / 10.0).collect();
        let mut rest = 0.1;
        // Beyond one over the count there is only the slowest one.
        while rest * self.count() as f64 >= 1.0 && rest > 1e-6 {
            shares.extend([1.0 - rest, 1.0 - rest / 2.0, 1.0 - rest / 5.0]);
            rest /= 10.0;
        }
        shares.into_iter().map(|share| (share, self.quantile(share))).collect()
    }
}

impl From<Vec<(u64, u64)>> for Latencies {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut all = Self::default();
        for (value, count) in pairs {
            let _ = all.0.record_n(value, count);
        }
        all
    }
}

impl From<Latencies> for Vec<(u64, u64)> {
    fn from(all: Latencies) -> Self {
        all.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Gives turns to any number of tasks until the limit is reached.
#[derive(Debug)]
pub struct Pace {
    turns_left: AtomicU64,
    started: Instant,
    time: Duration,
    last_ended: AtomicU64,
}

impl Pace {
    /// Starts now.
    pub fn start(limit: Limit) -> Self {
        Self {
            turns_left: AtomicU64::new(limit.turns),
            started: Instant::now(),
            time: limit.time,
            last_ended: AtomicU64::new(0),
        }
    }

    /// Takes a turn, if there is one left.
    pub fn take(&self) -> bool {
        self.started.elapsed() < self.time
            && self.turns_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Whether a turn that ends now still counts; those who waited beyond the end do not.
    pub fn ended_in_time(&self) -> bool {
        let elapsed = self.started.elapsed();
        self.last_ended.fetch_max(nanoseconds(elapsed.min(self.time)), Relaxed);
        elapsed <= self.time
    }

    /// From the start to the end of the last turn that counted, in seconds.
    pub fn seconds(&self) -> f64 {
        self.last_ended.load(Relaxed) as f64 / 1e9
    }
}

/// A rate; zero where nothing was measured.
pub fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The middle one, or the mean of the two in the middle; zero of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// Jain's index of fairness: 1 when all got the same, 1/n when one got everything.
pub fn jain(turns: &[u64]) -> f64 {
    let sum: f64 = turns.iter().map(|&turns| turns as f64).sum();
    let squares: f64 = turns.iter().map(|&turns| (turns as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum.powi(2) / (turns.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_a_single_winner() {
        assert!((jain(&[7, 7, 7, 7]) - 1.0).abs() < 1e-12);
        assert!((jain(&[0, 0, 0, 9]) - 0.25).abs() < 1e-12);
        assert!((jain(&[1, 3]) - 0.8).abs() < 1e-12);
        assert_eq!(jain(&[0, 0]), 1.0);
    }

    #[test]
    fn latencies_outlive_the_way_between_processes() {
        let mut latencies = Latencies::default();
        for micros in 1..=1_000 {
            latencies.record(Duration::from_micros(micros));
        }
        let text = serde_json::to_string(&latencies).unwrap();
        let read: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(read.count(), 1_000);
        for share in [0.0, 0.5, 0.99, 0.999, 1.0] {
            assert_eq!(read.quantile(share), latencies.quantile(share));
        }
        assert!((read.quantile(0.5) - 500e-6).abs() < 1e-6, "{}", read.quantile(0.5));
    }

    #[test]
    fn merged_latencies_are_those_of_both() {
        let (mut quick, mut slow) = (Latencies::default(), Latencies::default());
        quick.record(Duration::from_millis(1));
        slow.record(Duration::from_millis(100));
        quick.merge(&slow);
        assert_eq!(quick.count(), 2);
        assert!(quick.quantile(1.0) > 0.099);
    }

    #[test]
    fn a_curve_rises_and_ends_near_the_slowest() {
        let mut latencies = Latencies::default();
        for micros in 1..=2_000 {
            latencies.record(Duration::from_micros(micros));
        }
        let curve = latencies.curve();
        assert!(curve.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{curve:?}");
        assert!(curve.last().unwrap().0 > 0.999);
        assert!(Latencies::default().curve().is_empty());
    }

    #[test]
    fn a_pace_hands_out_as_many_turns_as_allowed() {
        let pace = Pace::start(Limit { turns: 3, time: Duration::from_secs(3_600) });
        let taken = (0..10).filter(|_| pace.take()).count();
        assert_eq!(taken, 3);
        let pace = Pace::start(Limit { turns: 3, time: Duration::ZERO });
        assert!(!pace.take());
        assert!(!pace.ended_in_time());
    }
}
