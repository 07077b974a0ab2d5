//! Finds processes that wait for each other, in what an engine shows of its locks.

use crate::views::{ClaimView, LockView};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One process of a circle: it waits for a lock that the next one keeps from it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits<'a> {
    /// The claim that waits.
    pub claim: &'a ClaimView,
    /// The lock it waits for.
    pub lock: &'a str,
    /// A claim ahead of it, the next process's.
    pub behind: &'a ClaimView,
}

impl fmt::Display for Waits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {} behind {}", self.claim.holder, self.lock, self.behind.holder)
    }
}

/// The circles of processes that wait for each other, each process in at most one; nobody in them goes on
/// unless a wait is given up, a lease ends or a claim is evicted.
///
/// It is judged by processes, for that is what an engine knows. What runs within `lockkeeper run` counts as that process, which
/// holds its locks until the command ends. A process that waits in one task and would
/// release in another is taken for one that waits, so a circle is a strong hint, not a proof. A process that
/// waits for itself is not shown: that may be two tasks taking turns.
pub fn deadlocks(locks: &[LockView]) -> Vec<Vec<Waits<'_>>> {
    let mut stuck = waits(locks);
    // A process that waits for one that can go on will go on too: what remains waits for each other.
    loop {
        let names: BTreeSet<Process<'_>> = stuck.keys().copied().collect();
        for waits in stuck.values_mut() {
            waits.retain(|wait| wait.iter().all(|w| names.contains(&process(w.behind))));
        }
        stuck.retain(|_, waits| !waits.is_empty());
        if stuck.len() == names.len() {
            break;
        }
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for start in stuck.keys() {
        let circle = walk(*start, &stuck, &mut seen);
        if !circle.is_empty() {
            found.push(circle);
        }
    }
    found
}

type Process<'a> = (&'a str, u32);

fn process(claim: &ClaimView) -> Process<'_> {
    (claim.holder.machine(), claim.holder.run().unwrap_or(claim.holder.pid))
}

/// Of each process its waits: for each waiting claim, those it stands behind, of which one must leave first.
fn waits(locks: &[LockView]) -> BTreeMap<Process<'_>, Vec<Vec<Waits<'_>>>> {
    let mut found: BTreeMap<Process<'_>, Vec<Vec<Waits<'_>>>> = BTreeMap::new();
    for lock in locks {
        // Of another client's claim no process is known, so none can be found to be the same.
        for (index, claim) in lock.claims.iter().enumerate().filter(|(_, claim)| !claim.foreign) {
            let behind = lock.waits_for(index).into_iter().map(|ahead| &lock.claims[ahead]);
            let wait: Vec<Waits<'_>> =
                behind.map(|behind| Waits { claim, lock: &lock.name, behind }).collect();
            if !wait.is_empty() && wait.iter().all(|w| process(w.behind) != process(claim)) {
                found.entry(process(claim)).or_default().push(wait);
            }
        }
    }
    found
}

/// Follows the waits from one process until one comes again; empty if all that was found before.
fn walk<'a>(
    start: Process<'a>,
    stuck: &BTreeMap<Process<'a>, Vec<Vec<Waits<'a>>>>,
    seen: &mut BTreeSet<Process<'a>>,
) -> Vec<Waits<'a>> {
    let mut path: Vec<Waits<'a>> = Vec::new();
    let mut now = start;
    while seen.insert(now) {
        let Some(step) = stuck.get(&now).into_iter().flatten().flatten().next() else { return Vec::new() };
        now = process(step.behind);
        path.push(step.clone());
    }
    match path.iter().position(|w| process(w.claim) == now) {
        Some(first) => path.split_off(first),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, Holder, Standing};

    fn claim(pid: u32, demand: Demand) -> ClaimView {
        ClaimView::new(
            pid.to_string(),
            Standing::Waits,
            demand,
            Holder { text: format!("p{pid}"), host: "h".into(), pid },
        )
    }

    fn lock(name: &str, pids: &[u32]) -> LockView {
        LockView::from_queue(name, pids.iter().map(|pid| claim(*pid, Demand::Exclusive)).collect())
    }

    fn circles(locks: &[LockView]) -> Vec<Vec<u32>> {
        deadlocks(locks).iter().map(|circle| circle.iter().map(|w| w.claim.holder.pid).collect()).collect()
    }

    #[test]
    fn two_that_wait_for_each_other() {
        let locks = [lock("a", &[1, 2]), lock("b", &[2, 1])];
        assert_eq!(circles(&locks), [[1, 2]]);
        assert_eq!(deadlocks(&locks)[0][0].to_string(), "p1 (h, pid 1) waits for b behind p2 (h, pid 2)");
    }

    #[test]
    fn what_a_run_runs_belongs_to_it() {
        let inside = |run: u32, pid| {
            let holder = Holder { host: format!("h in run {run}"), ..claim(pid, Demand::Exclusive).holder };
            ClaimView { holder, ..claim(pid, Demand::Exclusive) }
        };
        let outer = |pid| claim(pid, Demand::Exclusive);
        let a = LockView::from_queue("a", vec![outer(1), inside(2, 20)]);
        let b = LockView::from_queue("b", vec![outer(2), inside(1, 10)]);
        assert_eq!(circles(&[a, b]), [[10, 20]]);
        let taking_turns = LockView::from_queue("b", vec![inside(1, 10), inside(1, 11)]);
        assert!(circles(&[LockView::from_queue("a", vec![outer(1)]), taking_turns]).is_empty());
    }

    #[test]
    fn a_queue_is_no_circle() {
        assert!(circles(&[lock("a", &[1, 2, 3]), lock("b", &[1, 3])]).is_empty());
    }

    #[test]
    fn three_in_a_circle_and_those_behind_are_not_named() {
        let locks = [lock("a", &[1, 3, 9]), lock("b", &[2, 1]), lock("c", &[3, 2])];
        assert_eq!(circles(&locks), [[1, 2, 3]]);
    }

    #[test]
    fn two_circles_are_two() {
        let locks = [lock("a", &[1, 2]), lock("b", &[2, 1]), lock("c", &[3, 4]), lock("d", &[4, 3])];
        assert_eq!(circles(&locks), [[1, 2], [3, 4]]);
    }

    #[test]
    fn tasks_of_one_process_that_take_turns_are_no_circle() {
        assert!(circles(&[lock("a", &[1, 1])]).is_empty());
    }

    #[test]
    fn other_clients_are_not_taken_for_one_process() {
        let foreign = || claim(0, Demand::Exclusive).foreign(true);
        let mine = || claim(1, Demand::Exclusive);
        let (a, b) = (vec![foreign(), mine()], vec![mine(), foreign()]);
        assert!(circles(&[LockView::from_queue("a", a), LockView::from_queue("b", b)]).is_empty());
    }

    #[test]
    fn one_permit_that_comes_back_is_enough() {
        let permit = Demand::Permits { want: 1, of: 2 };
        // 2 waits for a permit that 1 or 3 keeps; 1 waits for 2, but 3 waits for nobody.
        let semaphore = LockView::from_queue("s", [1, 3, 2].map(|pid| claim(pid, permit)).into());
        assert!(circles(&[semaphore.clone(), lock("a", &[2, 1])]).is_empty());
        assert_eq!(circles(&[semaphore, lock("a", &[2, 1]), lock("b", &[2, 3])]), [[2, 3]]);
    }

    #[test]
    fn readers_and_a_writer() {
        let readers = [1, 2].map(|pid| claim(pid, Demand::Shared));
        let a = LockView::from_queue("a", readers.into());
        assert!(circles(&[a]).is_empty());
        let a = LockView::from_queue("a", vec![claim(1, Demand::Shared), claim(2, Demand::Exclusive)]);
        assert_eq!(circles(&[a, lock("b", &[2, 1])]), [[1, 2]]);
    }
}
