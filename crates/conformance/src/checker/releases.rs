//! Release by owner: 'released' is said once, to the owner, and never for a claim the lock has moved on from.
//!
//! A release may come after the lost signal or the deadline and still truly say 'released': clients stop
//! believing a margin before the engine stops granting, so the engine may still have had the claim. What it can
//! never truly say so after is the grant of a successor that excludes the claim: by then the engine had
//! let it go, and whatever was removed was somebody else's.

use super::holds::Hold;
use super::story::Story;
use super::tools::LargestSince;
use super::violation::{Breach, Violation};

pub(super) fn check(stories: &[Story], holds: &[Hold<'_>], violations: &mut Vec<Violation>) {
    for story in stories {
        violations.extend(by_strangers(story));
        violations.extend(again(story));
        violations.extend(unheld(story));
    }
    after_successors(stories, holds, violations);
}

fn by_strangers(story: &Story) -> impl Iterator<Item = Violation> {
    let strangers = story.released.iter().filter(|release| release.client != story.owner.client);
    strangers
        .map(|release| story.breaks(release.at_ns, Breach::ReleasedByStranger { stranger: release.client }))
}

fn again(story: &Story) -> impl Iterator<Item = Violation> {
    let first_at_ns = story.released.first().map_or(0, |first| first.at_ns);
    let later = story.released.iter().skip(1);
    later.map(move |release| story.breaks(release.at_ns, Breach::ReleasedTwice { first_at_ns }))
}

fn unheld(story: &Story) -> Option<Violation> {
    // A claim that left the queue, or whose outcome nobody knows, is rightly released without a grant.
    let may_be_released = story.grant.is_some() || story.gave_up_at_ns.is_some();
    let release = story.released.first().filter(|_| !may_be_released)?;
    Some(story.breaks(release.at_ns, Breach::ReleasedUnheld))
}

fn after_successors(stories: &[Story], holds: &[Hold<'_>], violations: &mut Vec<Violation>) {
    let mut stale: Vec<(u64, Hold<'_>)> = stories.iter().filter_map(stale_release).collect();
    stale.sort_by_key(|(invoked_at_ns, hold)| (*invoked_at_ns, hold.story.owner.claim));
    let mut granted = holds.iter().enumerate().peekable();
    let mut heaviest = LargestSince::default();
    for (invoked_at_ns, hold) in stale {
        while let Some((rank, next)) = granted.next_if(|(_, next)| next.grant.at_ns < invoked_at_ns) {
            heaviest.push(next.grant.at_ns, (next.invoke.weight, rank));
        }
        let Some((_, (weight, rank))) = heaviest.since(hold.grant.at_ns + 1) else { continue };
        if hold.conflicts_with(weight) {
            let (stale, successor) = (hold.holder(), holds[rank].holder());
            let breach = Breach::ReleasedAfterSuccessor { invoked_at_ns, stale, successor };
            violations.push(hold.story.breaks(hold.story.released[0].at_ns, breach));
        }
    }
}

/// A release the owner sent after it had stopped to believe, and that was answered with 'released'.
fn stale_release(story: &Story) -> Option<(u64, Hold<'_>)> {
    let mut hold = Hold::granted(story)?;
    let invoked_at_ns = story.release_invoked_at_ns?;
    let by_owner = story.released.iter().any(|release| release.client == story.owner.client);
    // What it shrank to is what the successor had to fit beside.
    let smallest = story.shrinks.iter().map(|shrink| shrink.weight).min();
    hold.invoke.weight = smallest.map_or(hold.invoke.weight, |smallest| smallest.min(hold.invoke.weight));
    (by_owner && hold.until_ns < invoked_at_ns).then_some((invoked_at_ns, hold))
}
