//! Each claim's own story must make sense: asked once, granted once, and dead for ever once dead.

use super::story::Story;
use super::violation::{Breach, Violation};

pub(super) fn check(stories: &[Story], violations: &mut Vec<Violation>) {
    for story in stories {
        violations.extend(granted_unasked(story));
        violations.extend(granted_twice(story));
        violations.extend(granted_after_death(story));
    }
}

fn granted_unasked(story: &Story) -> Option<Violation> {
    let grant = story.grant.filter(|_| story.invoke.is_none())?;
    Some(story.breaks(grant.at_ns, Breach::GrantedUnasked))
}

fn granted_twice(story: &Story) -> Option<Violation> {
    let (first, second) = (story.grant?, story.second_grant?);
    let breach = Breach::GrantedTwice { first_token: first.token, second_token: second.token };
    Some(story.breaks(second.at_ns, breach))
}

fn granted_after_death(story: &Story) -> Option<Violation> {
    let (died_at_ns, grant) = (story.died_at_ns?, story.grant_after_death?);
    Some(story.breaks(grant.at_ns, Breach::GrantedAfterDeath { died_at_ns }))
}
