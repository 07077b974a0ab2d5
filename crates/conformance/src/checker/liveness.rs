//! Liveness: nobody waits for long at a free lock, and every wait ends.

use std::time::Duration;

use super::holds::Hold;
use super::story::Story;
use super::violation::{Breach, Violation};

/// What part of the history is judged, and how patiently.
pub(super) struct Judged {
    pub(super) bound: Duration,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

/// A time in which nobody certainly held the lock.
#[derive(Clone, Copy)]
struct Gap {
    from_ns: u64,
    until_ns: u64,
}

impl Gap {
    fn length_ns(self) -> u64 {
        self.until_ns.saturating_sub(self.from_ns)
    }

    fn within(self, other: Gap) -> Gap {
        Gap { from_ns: self.from_ns.max(other.from_ns), until_ns: self.until_ns.min(other.until_ns) }
    }
}

pub(super) fn check(stories: &[Story], holds: &[Hold<'_>], judged: &Judged, violations: &mut Vec<Violation>) {
    let bound_ns = u64::try_from(judged.bound.as_nanos()).unwrap_or(u64::MAX);
    let gaps = long_gaps(holds, judged, bound_ns);
    for story in stories {
        let Some(invoke) = story.invoke else { continue };
        let ended_at_ns = wait_ended_at_ns(story);
        let wait = Gap { from_ns: invoke.at_ns, until_ns: ended_at_ns.unwrap_or(judged.until_ns) };
        let invoked_at_ns = invoke.at_ns;
        if let Some(free) = stuck_in(&gaps, wait, bound_ns) {
            let breach = Breach::StuckWaiter { invoked_at_ns, free_from_ns: free.from_ns };
            violations.push(story.breaks(free.until_ns, breach));
        } else if ended_at_ns.is_none() {
            violations.push(story.breaks(judged.until_ns, Breach::NeverEnded { invoked_at_ns }));
        }
    }
}

/// The gaps longer than the bound, in order of time.
fn long_gaps(holds: &[Hold<'_>], judged: &Judged, bound_ns: u64) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut free_from_ns = judged.from_ns;
    for hold in holds {
        gaps.push(Gap { from_ns: free_from_ns, until_ns: hold.grant.at_ns });
        free_from_ns = free_from_ns.max(hold.until_ns);
    }
    gaps.push(Gap { from_ns: free_from_ns, until_ns: judged.until_ns });
    gaps.retain(|gap| gap.length_ns() > bound_ns);
    gaps
}

/// The part of a gap through which the wait lasted for longer than the bound.
fn stuck_in(gaps: &[Gap], wait: Gap, bound_ns: u64) -> Option<Gap> {
    let first = gaps.partition_point(|gap| gap.until_ns <= wait.from_ns);
    let met = gaps[first..].iter().take_while(|gap| gap.from_ns < wait.until_ns);
    // Every gap is long, so one that lies wholly within the wait ends the search: three looks at most.
    met.map(|gap| gap.within(wait)).find(|free| free.length_ns() > bound_ns)
}

fn wait_ended_at_ns(story: &Story) -> Option<u64> {
    let granted_at_ns = story.grant.map(|grant| grant.at_ns);
    let left_at_ns = Some(story.disbelieves_at_ns).filter(|&at_ns| at_ns < u64::MAX);
    [granted_at_ns, story.gave_up_at_ns, left_at_ns].into_iter().flatten().min()
}
