//! Tokens: never twice, and growing wherever the history proves which grant came first.

use std::collections::BTreeMap;

use super::holds::Hold;
use super::story::Story;
use super::tools::LargestFromWeight;
use super::violation::{Breach, TokenRule, Violation};

pub(super) fn check(stories: &[Story], holds: &[Hold<'_>], violations: &mut Vec<Violation>) {
    let mut grants: Vec<Hold<'_>> = stories.iter().filter_map(Hold::granted).collect();
    grants.sort_by_key(|grant| (grant.grant.at_ns, grant.story.owner.claim));
    duplicates(&grants, violations);

    // Both rules may accuse the same grant; one report is enough.
    let mut backward = BTreeMap::new();
    for (earlier, later, rule) in held_before(holds).chain(replied_before(&grants)) {
        backward.entry(later.story.owner.claim).or_insert_with(|| {
            let breach = Breach::TokenWentBack { earlier: earlier.holder(), later: later.holder(), rule };
            later.story.breaks(later.grant.at_ns, breach)
        });
    }
    violations.extend(backward.into_values());
}

fn duplicates(grants: &[Hold<'_>], violations: &mut Vec<Violation>) {
    let mut by_token: Vec<&Hold<'_>> = grants.iter().collect();
    // Stable: among equal tokens the earliest grant comes first.
    by_token.sort_by_key(|grant| grant.grant.token);
    for same in by_token.chunk_by(|one, next| one.grant.token == next.grant.token) {
        violations.extend(same[1..].iter().map(|again| {
            let breach = Breach::DuplicateToken { first: same[0].holder(), second: again.holder() };
            again.story.breaks(again.grant.at_ns, breach)
        }));
    }
}

type Backward<'holds> = (&'holds Hold<'holds>, &'holds Hold<'holds>, TokenRule);

/// Of two holds that exclude each other, the one believed to end first was granted first.
fn held_before<'holds>(holds: &'holds [Hold<'holds>]) -> impl Iterator<Item = Backward<'holds>> {
    let mut by_end: Vec<usize> = (0..holds.len()).collect();
    by_end.sort_by_key(|&rank| (holds[rank].until_ns, rank));
    let mut ended = by_end.into_iter().peekable();
    let mut largest = LargestFromWeight::default();
    holds.iter().filter_map(move |later| {
        while let Some(rank) = ended.next_if(|&rank| holds[rank].until_ns <= later.grant.at_ns) {
            largest.insert(holds[rank].invoke.weight, (holds[rank].grant.token, rank));
        }
        let limit = u64::from(later.invoke.limit) + 1;
        let (token, rank) = largest.from(limit.saturating_sub(later.invoke.weight.into()))?;
        (token > later.grant.token).then_some((&holds[rank], later, TokenRule::HeldBefore))
    })
}

/// A grant whose reply arrived before another claim was even sent came first, whatever their weights.
fn replied_before<'holds>(grants: &'holds [Hold<'holds>]) -> impl Iterator<Item = Backward<'holds>> {
    let mut by_invoke: Vec<usize> = (0..grants.len()).collect();
    by_invoke.sort_by_key(|&rank| (grants[rank].invoke.at_ns, rank));
    let mut replied = (0..grants.len()).peekable();
    let mut largest: Option<(u64, usize)> = None;
    by_invoke.into_iter().filter_map(move |rank| {
        let later = &grants[rank];
        while let Some(earlier) = replied.next_if(|&earlier| grants[earlier].grant.at_ns < later.invoke.at_ns)
        {
            largest = largest.max(Some((grants[earlier].grant.token, earlier)));
        }
        let (token, earlier) = largest?;
        (token > later.grant.token).then_some((&grants[earlier], later, TokenRule::RepliedBefore))
    })
}
