//! The rule, tried on every small queue and on random large ones.

use super::*;
use proptest::prelude::*;

/// Every queue of up to six claims with weights 1 to `limit`, for limits 1 to 4.
fn every_queue(mut look: impl FnMut(&[u64], u64)) {
    fn grow(queue: &mut Vec<u64>, limit: u64, look: &mut dyn FnMut(&[u64], u64)) {
        look(queue, limit);
        if queue.len() < 6 {
            for weight in 1..=limit {
                queue.push(weight);
                grow(queue, limit, look);
                queue.pop();
            }
        }
    }
    for limit in 1..=4 {
        grow(&mut Vec::new(), limit, &mut look);
    }
}

fn sum(weights: &[u64]) -> u64 {
    weights.iter().sum()
}

#[test]
fn holders_are_exactly_the_claims_that_fit() {
    every_queue(|queue, limit| {
        let held = holders(queue, limit);
        for (index, weight) in queue.iter().enumerate() {
            assert_eq!(fits(sum(&queue[..index]), *weight, limit), index < held, "{queue:?} of {limit}");
        }
        assert!(sum(&queue[..held]) <= limit, "over the limit: {queue:?} of {limit}");
    });
}

#[test]
fn a_grant_is_stable_when_any_other_leaves() {
    every_queue(|queue, limit| {
        let held = holders(queue, limit);
        for gone in 0..queue.len() {
            let mut left = queue.to_vec();
            left.remove(gone);
            let still = holders(&left, limit);
            assert!(still + usize::from(gone < held) >= held, "{queue:?} of {limit} without {gone}");
        }
    });
}

#[test]
fn somebody_always_holds() {
    every_queue(|queue, limit| assert!(queue.is_empty() || holders(queue, limit) > 0));
}

/// Claims leave in any order: as long as every blocker stands the claim does not fit.
#[test]
fn nothing_changes_until_a_blocker_leaves() {
    every_queue(|queue, limit| {
        let Some((mine, ahead)) = queue.split_last() else { return };
        let watched = blockers(ahead, *mine, limit);
        assert_eq!(watched.is_empty(), fits(sum(ahead), *mine, limit), "{queue:?} of {limit}");
        let standing: u64 = watched.iter().map(|index| ahead[*index]).sum();
        assert!(watched.is_empty() || !fits(standing, *mine, limit), "{queue:?} of {limit}: {watched:?}");
    });
}

/// No watch is idle: the claim fits if one blocker and everybody who is not a blocker leave.
#[test]
fn every_blocker_matters() {
    every_queue(|queue, limit| {
        let Some((mine, ahead)) = queue.split_last() else { return };
        let watched = blockers(ahead, *mine, limit);
        let standing: u64 = watched.iter().map(|index| ahead[*index]).sum();
        for index in &watched {
            assert!(fits(standing - ahead[*index], *mine, limit), "{queue:?} of {limit}: {watched:?}");
        }
    });
}

#[test]
fn a_writer_and_a_mutex_watch_one_claim_and_a_reader_the_nearest_writer() {
    let writer = crate::claim::SHARED_LIMIT;
    assert_eq!(blockers(&[writer, 1, 1], writer, writer), [2]);
    assert_eq!(blockers(&[writer, writer], writer, writer), [1]);
    assert_eq!(blockers(&[writer, writer, 1, 1], 1, writer), [1]);
    assert_eq!(blockers(&[1, 1], 1, writer), [0usize; 0]);
}

#[test]
fn a_semaphore_waiter_watches_at_most_as_many_as_there_are_permits() {
    every_queue(|queue, limit| {
        let Some((mine, ahead)) = queue.split_last() else { return };
        assert!(blockers(ahead, *mine, limit).len() as u64 <= limit);
    });
}

proptest! {
    /// Play a whole life: claims leave in a random order; a claim that looks again only when one of its
    /// blockers leaves is never left sleeping while it fits.
    #[test]
    fn waking_only_on_blockers_loses_no_wake_up(
        limit in 1u64..=8,
        raw in prop::collection::vec(1u64..=8, 1..40),
        order in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        let mut queue: Vec<(usize, u64)> = raw.iter().map(|w| (*w).min(limit)).enumerate().collect();
        let watched_by = |queue: &[(usize, u64)], at: usize| -> Vec<usize> {
            let ahead: Vec<u64> = queue[..at].iter().map(|c| c.1).collect();
            blockers(&ahead, queue[at].1, limit).into_iter().map(|i| queue[i].0).collect()
        };
        let mut watching: std::collections::HashMap<usize, Vec<usize>> =
            (0..queue.len()).map(|at| (queue[at].0, watched_by(&queue, at))).collect();
        for pick in order {
            if queue.is_empty() { break; }
            let (gone, _) = queue.remove(pick.index(queue.len()));
            watching.remove(&gone);
            for at in 0..queue.len() {
                let me = queue[at].0;
                if watching[&me].contains(&gone) {
                    let again = watched_by(&queue, at);
                    watching.insert(me, again);
                }
                let ahead: u64 = queue[..at].iter().map(|c| c.1).sum();
                prop_assert_eq!(watching[&me].is_empty(), fits(ahead, queue[at].1, limit));
            }
        }
    }
}
