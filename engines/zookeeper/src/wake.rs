//! Waiting: a look at what is ahead of a claim, a watch on its blockers, and another look when one of them has gone.

use crate::claims::Node;
use crate::error::{RequestError, code};
use crate::keys::{NodeName, Sequence};
use crate::queue::ZooKeeperQueue;
use crate::session::Session;
use crate::shared::Wake;
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{Ahead, Claim, Clock, grant};
use lockkeeper_core::{Demand, Result};
use std::time::Duration;

/// A watch is not lost by the protocol; this is the poll beneath it all the same (Law 10).
const SLOW_POLL: Duration = Duration::from_secs(60);

/// How a wait for nodes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// One of them has changed or gone.
    Changed,
    /// Nothing has been seen for long.
    Poll,
    /// The session is over.
    Over,
}

/// Waits until one of these nodes changes or goes; at once if one is gone.
pub(crate) async fn wait_for(
    session: &Session,
    paths: &[String],
    limit: Duration,
) -> Result<Woken, RequestError> {
    let wake = Wake::default();
    let mut requests = session.requests();
    let replies: Vec<_> = paths.iter().map(|path| requests.watch(path, &wake)).collect();
    requests.send();
    for reply in replies {
        match reply.within(limit).await {
            Ok(_) => {}
            Err(RequestError::Refused(code::NO_NODE)) => return Ok(Woken::Changed),
            Err(error) => return Err(error),
        }
    }
    tokio::select! {
        () = wake.notified() => Ok(Woken::Changed),
        () = session.over() => Ok(Woken::Over),
        () = Clock::Boot.sleep(SLOW_POLL) => Ok(Woken::Poll),
    }
}

impl ZooKeeperQueue {
    /// A look that must also find the claim itself.
    pub(crate) async fn look(&self, session: &Session, claim: &Claim, node: &Node) -> Result<Look> {
        let (directory, sequence) = node.place().ok_or_else(|| claim.gone())?;
        let own = &node.path[directory.len() + 1..];
        let children = match session.children(directory, self.0.limit()).await {
            Err(RequestError::Refused(code::NO_NODE) | RequestError::Expired) => return Err(claim.gone()),
            children => children.map_err(|error| error.into_error("look at the queue"))?,
        };
        if session.is_over() || !children.iter().any(|child| child == own) {
            return Err(claim.gone());
        }
        Ok(Look::from_place(&children, directory, sequence, claim.demand))
    }
}

/// What a claim sees of its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) ahead: Ahead,
    /// The paths of the nodes whose going may let it in; empty if it fits.
    pub(crate) blockers: Vec<String>,
    /// The oldest live claim's shape, its own if it is the oldest (Law 6).
    pub(crate) ruling: Shape,
}

impl Look {
    /// Looks from a place in the queue, ours and foreign claims alike.
    pub(crate) fn from_place(children: &[String], directory: &str, place: Sequence, demand: Demand) -> Self {
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
            blockers: blockers.into_iter().map(|index| format!("{directory}/{}", ahead[index].1)).collect(),
            ruling: ahead.first().map_or(demand.shape(), |(node, _)| node.demand.shape()),
        }
    }
}

/// What another claim weighs for this one. One of another shape will be refused and go; until then it blocks.
fn weight_for(other: Demand, mine: Demand) -> u64 {
    if other.shape() == mine.shape() { other.weight() } else { mine.limit() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Naming;
    use lockkeeper_core::engine::ClaimId;

    fn child(demand: Demand, sequence: i32) -> String {
        format!("{}{}", Naming::Curator.prefix(ClaimId::random(), demand), Sequence(sequence))
    }

    fn look(children: &[String], place: i32, demand: Demand) -> Look {
        Look::from_place(children, "/a", Sequence(place), demand)
    }

    #[test]
    fn a_writer_waits_for_its_predecessor_and_a_reader_for_the_last_writer() {
        let children = [
            child(Demand::Shared, 12),
            child(Demand::Exclusive, 11),
            child(Demand::Exclusive, 10),
            "orders".to_owned(),
        ];
        let writer = look(&children, 13, Demand::Exclusive);
        assert_eq!(writer.blockers, [format!("/a/{}", children[0])]);
        let reader = look(&children, 13, Demand::Shared);
        assert_eq!(reader.blockers, [format!("/a/{}", children[1])]);
        let first = look(&children, 10, Demand::Exclusive);
        assert_eq!((first.ahead, first.blockers.len()), (Ahead(0), 0));
    }

    #[test]
    fn foreign_claims_count_and_order_survives_the_wrap() {
        let children = [
            "0123456789abcdef0123456789abcdef__lock__2147483647".to_owned(),
            child(Demand::Shared, i32::MIN),
        ];
        let look = look(&children, i32::MIN + 1, Demand::Shared);
        assert_eq!(look.blockers, [format!("/a/{}", children[0])]);
        assert_eq!(look.ahead, Ahead(lockkeeper_core::engine::SHARED_LIMIT + 1));
    }

    #[test]
    fn the_oldest_claims_shape_rules_and_a_claim_of_another_shape_blocks() {
        let (two, mine) = (Demand::Permits { want: 1, of: 2 }, Demand::Permits { want: 1, of: 3 });
        let children = [child(two, 1)];
        let behind = look(&children, 2, mine);
        assert_eq!(behind.ruling, Shape::Permits { of: 2 });
        assert_eq!(behind.blockers.len(), 1);
        assert_eq!(look(&children, 1, two).ruling, Shape::Permits { of: 2 });
    }
}
