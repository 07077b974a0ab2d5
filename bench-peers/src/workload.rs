//! What is measured, how much of it, and what comes out of a run.

use crate::loops::Turns;
use lockkeeper_bench::Workload;
use lockkeeper_bench::measure::{Latencies, jain, per_second};
use lockkeeper_bench::scale::{Limit, Scale};
use lockkeeper_bench::summary::{Sample, Unit};
use std::time::Duration;

/// Of each workload the number that is compared, and whether more of it is better.
pub const MAIN: [(Workload, &str, bool); 5] = [
    (Workload::Uncontended, "pairs/s", true),
    (Workload::Spread, "pairs/s", true),
    (Workload::Contended, "hand-overs/s", true),
    (Workload::Waiting, "hand-over p50", false),
    (Workload::Crash, "next holds after", false),
];

/// How much is measured.
pub struct Setup {
    pub repetitions: usize,
    pub limit: Limit,
    pub locks: usize,
    pub contenders: usize,
    pub waiters: usize,
    pub hand_overs: u64,
    pub idle: Duration,
    /// Of all locks but those whose holder is killed.
    pub ttl: Duration,
    pub short_ttl: Duration,
    pub patience: Duration,
    pub scale: Scale,
}

impl Setup {
    pub fn new(scale: Scale) -> Self {
        Self {
            repetitions: scale.repetitions,
            limit: scale.limit,
            locks: 64,
            contenders: 16,
            waiters: 200,
            hand_overs: 50,
            idle: Duration::from_secs(1),
            ttl: Duration::from_secs(10),
            // etcd grants no shorter lease.
            short_ttl: Duration::from_secs(2),
            patience: Duration::from_secs(90),
            scale,
        }
    }

    /// How clients meet, and how many there are.
    pub fn shape(&self, workload: Workload) -> (&'static str, usize) {
        match workload {
            Workload::Spread => ("spread", self.locks),
            Workload::Contended => ("contended", self.contenders),
            _ => ("alone", 1),
        }
    }

    /// The size in words and as a number.
    pub fn size(&self, workload: Workload) -> (String, usize) {
        match workload {
            Workload::Spread => (format!("{} locks", self.locks), self.locks),
            Workload::Contended => (format!("{} clients", self.contenders), self.contenders),
            Workload::Waiting => (format!("{} waiters", self.waiters), self.waiters),
            _ => (String::new(), 1),
        }
    }
}

/// The figures of turns.
pub fn sample(workload: Workload, contenders: &[Turns], requests: Option<f64>) -> Sample {
    let sum = |of: fn(&Turns) -> u64| contenders.iter().map(of).sum::<u64>();
    let seconds = contenders.iter().map(|turns| turns.seconds).fold(0.0, f64::max);
    let counts: Vec<u64> = contenders.iter().map(|turns| turns.waits.count()).collect();
    let mut waits = Latencies::default();
    contenders.iter().for_each(|turns| waits.merge(&turns.waits));
    if workload != Workload::Contended {
        let each = requests.map(|requests| requests / sum(|turns| turns.all).max(1) as f64);
        return Sample::default()
            .with("pairs/s", Unit::PerSecond, per_second(waits.count(), seconds))
            .with_latencies("", &waits, &[0.5, 0.99])
            .with_some("requests/pair", Unit::Ratio, each);
    }
    let each = requests.map(|requests| requests / sum(|turns| turns.all_hand_overs).max(1) as f64);
    Sample::default()
        .with("hand-overs/s", Unit::PerSecond, per_second(sum(|turns| turns.hand_overs), seconds))
        .with("turns/s", Unit::PerSecond, per_second(waits.count(), seconds))
        .with_latencies("turn ", &waits, &[0.5, 0.99])
        .with("fewest turns", Unit::Count, counts.iter().copied().min().unwrap_or_default() as f64)
        .with("most turns", Unit::Count, counts.iter().copied().max().unwrap_or_default() as f64)
        .with("Jain", Unit::Ratio, jain(&counts))
        .with_some("requests/hand-over", Unit::Ratio, each)
}
