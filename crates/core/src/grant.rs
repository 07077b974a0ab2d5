//! The rule: a claim holds when what stands ahead of it leaves room. Pure functions, no engine.

/// Whether a claim of `weight` fits behind `ahead` in a lock of `limit`.
///
/// From this one line follows the rest: holders are always a prefix of the queue; a grant is stable until
/// the claim leaves, so it need not be stored; writers do not starve.
///
/// ```
/// use lockkeeper_core::grant::fits;
/// assert!(fits(0, 4, 4)); // a mutex with nobody ahead
/// assert!(!fits(1, 4, 4)); // a writer behind one reader
/// assert!(fits(3, 1, 4)); // a reader behind three others
/// ```
pub fn fits(ahead: u64, weight: u64, limit: u64) -> bool {
    ahead.saturating_add(weight) <= limit
}

/// How many claims at the head of a queue hold: the longest prefix whose weights fit.
///
/// ```
/// use lockkeeper_core::grant::holders;
/// assert_eq!(holders(&[1, 1, 4, 1], 4), 2); // two readers hold, the writer and all behind it wait
/// ```
pub fn holders(weights: &[u64], limit: u64) -> usize {
    let mut ahead = 0u64;
    weights
        .iter()
        .take_while(|weight| {
            let holds = fits(ahead, **weight, limit);
            ahead = ahead.saturating_add(**weight);
            holds
        })
        .count()
}

/// Whom a claim waits for: the nearest claims ahead whose summed weight exceeds `limit - mine`, without
/// those that are too light to matter.
///
/// `ahead` lists the weights ahead in queue order (nearest last). The result is indices into it, nearest
/// first; empty if the claim fits. **Nothing can change for the claim until one of them leaves**, for while
/// all of them stand, their sum alone is too much. So watching just these is enough, and it wakes nobody
/// else: one watch for a mutex or a writer, one for a reader (the nearest writer outweighs everything), at most
/// `of` for a semaphore.
///
/// (Watching only the claim `index - max`, as some recipes do, is wrong for more than one permit: with a, b,
/// c, me and two permits, me watches b; a and c leave; nobody wakes me.)
///
/// ```
/// use lockkeeper_core::grant::blockers;
/// assert_eq!(blockers(&[4, 4, 4], 4, 4), [2]); // a mutex watches its predecessor
/// assert_eq!(blockers(&[1, 4, 1, 1], 1, 4), [1]); // a reader watches the nearest writer
/// assert_eq!(blockers(&[1, 1, 1], 1, 2), [2, 1]); // two permits: the two nearest
/// ```
pub fn blockers(ahead: &[u64], mine: u64, limit: u64) -> Vec<usize> {
    let room = limit.saturating_sub(mine);
    let mut found = Vec::new();
    let mut sum = 0u64;
    for (index, weight) in ahead.iter().enumerate().rev() {
        found.push(index);
        sum = sum.saturating_add(*weight);
        if sum > room {
            return drop_the_light(found, ahead, sum, room);
        }
    }
    Vec::new()
}

/// Leaves out blockers that do not matter: while the heaviest ones alone exceed the room, nothing changes
/// when a light one leaves. So a reader behind other readers and a writer watches the writer only.
fn drop_the_light(found: Vec<usize>, ahead: &[u64], sum: u64, room: u64) -> Vec<usize> {
    let mut sum = sum;
    let mut kept = Vec::with_capacity(found.len());
    for index in found {
        let without = sum - ahead[index];
        if without > room {
            sum = without;
        } else {
            kept.push(index);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
