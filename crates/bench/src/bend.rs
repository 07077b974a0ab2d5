//! Where the cost of one hand-over or one held lock begins to grow with their number.

use crate::Workload;
use crate::summary::Summary;

/// A cost that should not depend on the size of its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// From a release to the next grant, by the number of those who wait.
    Waiters,
    /// Processor time to keep a lock, by the number of locks.
    Locks,
    /// From grant to grant, by the number of keepers.
    Keepers,
}

impl Growth {
    pub(crate) const ALL: &[Self] = &[Self::Waiters, Self::Locks, Self::Keepers];

    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Waiters => "hand-over, by waiters",
            Self::Locks => "processor time per lock, by locks held",
            Self::Keepers => "grant to grant, by keepers",
        }
    }

    /// The sizes of an engine's runs and what a unit of each costs, the smallest first.
    pub(crate) fn costs(self, results: &[Summary], engine: &str) -> Vec<(usize, f64)> {
        let workload = match self {
            Self::Waiters => Workload::Waiting,
            Self::Locks => Workload::Holding,
            Self::Keepers => Workload::Contended,
        };
        let mut costs: Vec<(usize, f64)> = results
            .iter()
            .filter(|summary| summary.workload == workload.name() && summary.subject.name == engine)
            .filter_map(|summary| Some((summary.size_number, self.cost(summary)?)))
            .filter(|(_, cost)| *cost > 0.0)
            .collect();
        costs.sort_by_key(|(size, _)| *size);
        costs
    }

    fn cost(self, summary: &Summary) -> Option<f64> {
        match self {
            Self::Waiters => summary.get("hand-over p50"),
            Self::Locks => Some(summary.get("CPU")? / summary.get("held")?),
            Self::Keepers => summary.get("hand-overs/s").filter(|rate| *rate > 0.0).map(|rate| 1.0 / rate),
        }
    }
}

/// The first size at which a unit costs more than twice as much as at the smallest.
pub(crate) fn bend(costs: &[(usize, f64)]) -> Option<usize> {
    let (_, least) = *costs.first()?;
    costs.iter().find(|(_, cost)| *cost > 2.0 * least).map(|(size, _)| *size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Figure, Subject, Unit};

    fn run(size: usize, rate: f64) -> Summary {
        Summary {
            workload: Workload::Contended.name().into(),
            size: size.to_string(),
            size_number: size,
            subject: Subject { name: "memory queue".into(), engine: "memory".into(), is_floor: false },
            runs: 1,
            figures: vec![Figure {
                name: "hand-overs/s".into(),
                unit: Unit::PerSecond,
                median: rate,
                low: rate,
                high: rate,
            }],
            curve: Vec::new(),
            note: None,
        }
    }

    #[test]
    fn a_curve_bends_where_a_unit_costs_twice_as_much_as_at_first() {
        let results = [run(256, 10.0), run(2, 100.0), run(32, 60.0), run(128, 40.0)];
        let costs = Growth::Keepers.costs(&results, "memory queue");
        assert_eq!(costs.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [2, 32, 128, 256]);
        assert_eq!(bend(&costs), Some(128));
        assert_eq!(bend(&costs[..2]), None);
        assert_eq!(bend(&[]), None);
    }

    #[test]
    fn a_run_without_figures_is_left_out() {
        assert!(Growth::Keepers.costs(&[run(2, 0.0)], "memory queue").is_empty());
        assert!(Growth::Waiters.costs(&[run(2, 1.0)], "memory queue").is_empty());
    }
}
