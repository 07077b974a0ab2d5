//! A look at a lock's children: what stands ahead of a claim, whom it waits for, which shape rules.

use crate::keys::{NodeName, Sequence};
use lockkeeper_core::{Ahead, Demand, Shape, grant};

/// What a claim sees of its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) ahead: Ahead,
    /// The names of the nodes whose going may let it in; empty if it fits.
    pub(crate) blockers: Vec<String>,
    /// The oldest live claim's shape, its own if it is the oldest (Law 6).
    pub(crate) ruling: Shape,
}

impl Look {
    /// Looks from a place in the queue, ours and foreign claims alike.
    pub(crate) fn from_place(children: &[String], place: Sequence, demand: Demand) -> Self {
        let mut ahead: Vec<(NodeName, &String)> = children
            .iter()
            .filter_map(|child| Some((NodeName::parse(child)?, child)))
            .filter(|(node, _)| node.sequence.is_before(place))
            .collect();
        ahead.sort_by(|(one, _), (other, _)| one.sequence.order(other.sequence));
        let weights: Vec<u64> = ahead.iter().map(|(node, _)| weight_for(node.demand, demand)).collect();
        let blockers = grant::blockers(&weights, demand.weight(), demand.limit());
        Self {
            ahead: Ahead(weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight))),
            blockers: blockers.into_iter().map(|index| ahead[index].1.clone()).collect(),
            ruling: ahead.first().map_or(demand.shape(), |(node, _)| node.demand.shape()),
        }
    }
}

/// What another claim weighs in this one's eyes. One of another shape will be refused and go; until then
/// it is in the way.
fn weight_for(other: Demand, mine: Demand) -> u64 {
    if other.shape() == mine.shape() { other.weight() } else { mine.limit() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Naming;
    use lockkeeper_core::ClaimId;

    fn child(demand: Demand, sequence: i32) -> String {
        format!("{}{}", Naming::Curator.prefix(ClaimId::random(), demand), Sequence(sequence))
    }

    #[test]
    fn a_writer_waits_for_its_predecessor_and_a_reader_for_the_last_writer() {
        let children = [
            child(Demand::Shared, 12),
            child(Demand::Exclusive, 11),
            child(Demand::Exclusive, 10),
            "orders".to_owned(),
        ];
        let writer = Look::from_place(&children, Sequence(13), Demand::Exclusive);
        assert_eq!(writer.blockers, [children[0].clone()]);
        let reader = Look::from_place(&children, Sequence(13), Demand::Shared);
        assert_eq!(reader.blockers, [children[1].clone()]);
        let first = Look::from_place(&children, Sequence(10), Demand::Exclusive);
        assert_eq!((first.ahead, first.blockers.len()), (Ahead(0), 0));
    }

    #[test]
    fn foreign_claims_count_and_order_survives_the_wrap() {
        let children = [
            "0123456789abcdef0123456789abcdef__lock__2147483647".to_owned(),
            child(Demand::Shared, i32::MIN),
        ];
        let look = Look::from_place(&children, Sequence(i32::MIN + 1), Demand::Shared);
        assert_eq!(look.blockers, [children[0].clone()]);
        assert_eq!(look.ahead, Ahead(lockkeeper_core::SHARED_LIMIT + 1));
    }

    #[test]
    fn the_oldest_claims_shape_rules_and_a_stranger_is_in_the_way() {
        let (two, mine) = (Demand::Permits { want: 1, of: 2 }, Demand::Permits { want: 1, of: 3 });
        let children = [child(two, 1)];
        let look = Look::from_place(&children, Sequence(2), mine);
        assert_eq!(look.ruling, Shape::Permits { of: 2 });
        assert_eq!(look.blockers.len(), 1);
        assert_eq!(Look::from_place(&children, Sequence(1), two).ruling, Shape::Permits { of: 2 });
    }
}
