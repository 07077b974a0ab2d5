//! Exclusion: at any moment the weights of the certain holds fit the limit, and all agree on that limit.

use std::collections::BTreeSet;

use super::holds::{Change, Edge, Hold, edges};
use super::violation::{Breach, Holder, Violation};

/// How many of the other holders a report names. A bound, or many wrong holders would cost their square.
const NAMED: usize = 4;

pub(super) fn check(holds: &[Hold<'_>], violations: &mut Vec<Violation>) {
    let mut sweep = Sweep { holds, held: 0, current: BTreeSet::new() };
    for edge in edges(holds) {
        violations.extend(sweep.mixed_limits(&edge));
        sweep.apply(&edge);
        violations.extend(sweep.overlap(&edge));
    }
}

/// Who holds at the moment the sweep has reached.
struct Sweep<'holds> {
    holds: &'holds [Hold<'holds>],
    held: i64,
    /// Ranks, and so the oldest hold first.
    current: BTreeSet<usize>,
}

impl Sweep<'_> {
    fn apply(&mut self, edge: &Edge) {
        self.held += edge.difference();
        match edge.change {
            Change::Starts(_) => self.current.insert(edge.rank),
            Change::Ends(_) => self.current.remove(&edge.rank),
            Change::Shrinks(_) => true,
        };
    }

    fn overlap(&self, edge: &Edge) -> Option<Violation> {
        let newcomer = self.newcomer(edge)?;
        let over = self.held > i64::from(newcomer.invoke.limit);
        let breach = || Breach::Overlap {
            newcomer: newcomer.holder(),
            beside: self.others(edge.rank),
            held: self.held.unsigned_abs(),
            limit: newcomer.invoke.limit,
        };
        over.then(|| newcomer.story.breaks(edge.at_ns, breach()))
    }

    /// Law 6: the oldest one's shape rules.
    fn mixed_limits(&self, edge: &Edge) -> Option<Violation> {
        let newcomer = self.newcomer(edge)?;
        let oldest = &self.holds[*self.current.first()?];
        let differ = oldest.invoke.limit != newcomer.invoke.limit;
        let breach = || Breach::MixedLimits {
            newcomer: newcomer.holder(),
            newcomer_limit: newcomer.invoke.limit,
            oldest: oldest.holder(),
            oldest_limit: oldest.invoke.limit,
        };
        differ.then(|| newcomer.story.breaks(edge.at_ns, breach()))
    }

    fn newcomer(&self, edge: &Edge) -> Option<&Hold<'_>> {
        matches!(edge.change, Change::Starts(_)).then(|| &self.holds[edge.rank])
    }

    fn others(&self, newcomer: usize) -> Vec<Holder> {
        let others = self.current.iter().filter(|&&rank| rank != newcomer);
        others.take(NAMED).map(|&rank| self.holds[rank].holder()).collect()
    }
}
