//! First come, first served: a claim that had its place before another one asked is not made to wait for it.
//!
//! In a queue the holders are a prefix of it. So when a claim that asked later certainly holds, the one ahead of
//! it holds too, even if the news has not reached it; and then its weight must fit beside what is certainly
//! held. Where it does not fit, it was overtaken. Two readers that learn of their grants in the other order are
//! thus left in peace, and a small want of permits that slips past a large one is not.

use super::holds::{Edge, Hold, edges};
use super::tools::LargestSince;
use super::violation::{Breach, Violation};

pub(super) fn check(holds: &[Hold<'_>], violations: &mut Vec<Violation>) {
    let edges = edges(holds);
    let mut moments = edges.chunk_by(|one, next| one.at_ns == next.at_ns).peekable();
    let mut held = 0;
    let mut most_held = LargestSince::default();
    let overtakers = Overtakers::among(holds);
    // Waiters that gave up, died or never learned their outcome have no certain hold, and so are not asked.
    for waiter in holds {
        while let Some(moment) = moments.next_if(|moment| moment[0].at_ns < waiter.grant.at_ns) {
            held += moment.iter().map(Edge::difference).sum::<i64>();
            most_held.push(moment[0].at_ns, held);
        }
        let Some((queued_at_ns, overtaker)) = overtakers.first_past(waiter) else { continue };
        let Some((at_ns, held)) = most_held.since(overtaker.grant.at_ns) else { continue };
        if held + i64::from(waiter.invoke.weight) > i64::from(waiter.invoke.limit) {
            let breach = Breach::Overtaken {
                overtaken: waiter.holder(),
                queued_at_ns,
                by: overtaker.holder(),
                by_invoked_at_ns: overtaker.invoke.at_ns,
                held: held.unsigned_abs(),
                limit: waiter.invoke.limit,
            };
            violations.push(waiter.story.breaks(at_ns, breach));
        }
    }
}

/// Finds the earliest grant among all claims that asked after a given moment.
struct Overtakers<'holds> {
    holds: &'holds [Hold<'holds>],
    /// When each claim asked, in order.
    invoked_at_ns: Vec<u64>,
    /// At each index: the lowest rank among the claims that asked then or later.
    lowest_rank: Vec<usize>,
}

impl<'holds> Overtakers<'holds> {
    fn among(holds: &'holds [Hold<'holds>]) -> Overtakers<'holds> {
        let mut by_invoke: Vec<usize> = (0..holds.len()).collect();
        by_invoke.sort_by_key(|&rank| holds[rank].invoke.at_ns);
        let invoked_at_ns = by_invoke.iter().map(|&rank| holds[rank].invoke.at_ns).collect();
        let mut lowest_rank = by_invoke;
        for index in (1..lowest_rank.len()).rev() {
            lowest_rank[index - 1] = lowest_rank[index - 1].min(lowest_rank[index]);
        }
        Overtakers { holds, invoked_at_ns, lowest_rank }
    }

    /// The first claim that asked after the waiter had its place, and was granted before it.
    fn first_past(&self, waiter: &Hold<'_>) -> Option<(u64, &'holds Hold<'holds>)> {
        let queued_at_ns = waiter.story.queued_at_ns?;
        let later = self.invoked_at_ns.partition_point(|&invoked_at_ns| invoked_at_ns <= queued_at_ns);
        let overtaker = &self.holds[*self.lowest_rank.get(later)?];
        (overtaker.grant.at_ns < waiter.grant.at_ns).then_some((queued_at_ns, overtaker))
    }
}
