//! Certain holds: the times in which a client had every right to believe that it held.

use super::story::{Grant, Invoke, Shrink, Story};
use super::violation::Holder;

/// From the grant's reply to the end of belief, the end excluded.
pub(super) struct Hold<'story> {
    pub(super) story: &'story Story,
    pub(super) invoke: Invoke,
    pub(super) grant: Grant,
    pub(super) until_ns: u64,
}

/// The certain holds of one lock, by start (and by claim where starts are equal).
///
/// A grant whose reply came after its deadline is none: nobody ever believed it. An acquire with an unknown
/// outcome is none either: it may explain a gap in the tokens or a busy time, and can break nothing.
pub(super) fn certain(stories: &[Story]) -> Vec<Hold<'_>> {
    let mut holds: Vec<Hold<'_>> = stories.iter().filter_map(Hold::granted).collect();
    holds.retain(|hold| hold.grant.at_ns < hold.until_ns);
    holds.sort_by_key(|hold| (hold.grant.at_ns, hold.story.owner.claim));
    holds
}

impl<'story> Hold<'story> {
    /// The hold of a claim that asked and was granted, however short.
    pub(super) fn granted(story: &'story Story) -> Option<Hold<'story>> {
        let (invoke, grant) = (story.invoke?, story.grant?);
        Some(Hold { story, invoke, grant, until_ns: story.belief_ends_at_ns() })
    }

    /// Whether the two can never hold at once.
    ///
    /// Only for such pairs do replies tell the engine's order: two readers that the engine grants together may
    /// learn of it in either order, however far apart.
    pub(super) fn conflicts_with(&self, weight: u32) -> bool {
        u64::from(self.invoke.weight) + u64::from(weight) > u64::from(self.invoke.limit)
    }

    /// How it shrank, until its start and after it.
    fn shrinks(&self) -> (&[Shrink], &[Shrink]) {
        let shrinks = &self.story.shrinks;
        shrinks.split_at(shrinks.partition_point(|shrink| shrink.at_ns <= self.grant.at_ns))
    }

    pub(super) fn holder(&self) -> Holder {
        Holder {
            owner: self.story.owner,
            token: self.grant.token,
            weight: self.invoke.weight,
            from_ns: self.grant.at_ns,
            until_ns: self.until_ns,
        }
    }
}

/// A moment at which the held weight changes.
pub(super) struct Edge {
    pub(super) at_ns: u64,
    pub(super) change: Change,
    /// Which hold, as an index into the sorted holds.
    pub(super) rank: usize,
}

/// How the held weight changes. At equal times what shrinks comes first: a hold excludes its own end.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Shrinks(u32),
    Ends(u32),
    Starts(u32),
}

impl Edge {
    /// The change of the held weight.
    pub(super) fn difference(&self) -> i64 {
        match self.change {
            Change::Starts(weight) => i64::from(weight),
            Change::Shrinks(weight) | Change::Ends(weight) => -i64::from(weight),
        }
    }
}

/// Every start, shrink and end of the holds, in order of time.
pub(super) fn edges(holds: &[Hold<'_>]) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(holds.len() * 2);
    for (rank, hold) in holds.iter().enumerate() {
        let (early, late) = hold.shrinks();
        let mut weight = early.iter().map(|shrink| shrink.weight).fold(hold.invoke.weight, u32::min);
        edges.push(Edge { at_ns: hold.grant.at_ns, change: Change::Starts(weight), rank });
        for shrink in late.iter().filter(|shrink| shrink.at_ns < hold.until_ns) {
            if shrink.weight < weight {
                edges.push(Edge {
                    at_ns: shrink.at_ns,
                    change: Change::Shrinks(weight - shrink.weight),
                    rank,
                });
                weight = shrink.weight;
            }
        }
        edges.push(Edge { at_ns: hold.until_ns, change: Change::Ends(weight), rank });
    }
    edges.sort_unstable_by_key(|edge| (edge.at_ns, order_of(edge.change), edge.rank));
    edges
}

fn order_of(change: Change) -> u8 {
    match change {
        Change::Shrinks(_) => 0,
        Change::Ends(_) => 1,
        Change::Starts(_) => 2,
    }
}
