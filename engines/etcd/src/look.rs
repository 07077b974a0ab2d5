//! A look at what stands ahead of a claim, which only etcd's client has to judge by itself, without reading the whole queue.
//!
//! The nearest claims come first and few of them decide: one for a writer or a mutex, the nearest writer for a
//! reader, as many as there are permits for a semaphore. What few do not decide is read in full.

use crate::generated::range_request::{SortOrder, SortTarget};
use crate::generated::request_op::Request;
use crate::generated::{KeyValue, RangeRequest, RangeResponse, RequestOp};
use crate::keys::{self, Key, Span};
use crate::value::Value;
use lockkeeper_core::Demand;
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{Claim, grant};

/// The number of claims that are read beyond those that should decide: nested locks and shrunk writers do not count.
const SPARE: i64 = 8;

/// The most claims that a first look reads.
const MOST: i64 = 1000;

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// The revision it was taken at.
    pub(crate) revision: i64,
    /// The weight that stands ahead; if the claim does not fit, at least so much.
    pub(crate) ahead: u64,
    /// Nothing changes for the claim until one of these leaves or shrinks.
    pub(crate) blockers: Vec<Key>,
    /// The shape of the oldest claim ahead, if the look reached so far.
    pub(crate) ruling: Option<Shape>,
}

impl Look {
    /// Behind an exclusive claim that was there at this revision.
    pub(crate) fn behind(key: Key, revision: i64, weight: u64) -> Self {
        Self { revision, ahead: weight, blockers: vec![key], ruling: None }
    }
}

/// The requests that look at what stands ahead: just the nearest, or all of it.
pub(crate) fn requests(claim: &Claim, nearest_only: bool, before: Option<i64>) -> Vec<RequestOp> {
    let limit = match claim.demand {
        _ if !nearest_only => 0,
        Demand::Exclusive | Demand::Shared => SPARE,
        // Every claim has a weight of at least one.
        Demand::Permits { want, of } => (i64::from(of - want.min(of)) + 1 + SPARE).min(MOST),
    };
    let spans = keys::ahead(&claim.name, claim.demand).into_iter();
    spans.map(|span| range_op(nearest(span, limit, before))).collect()
}

fn nearest(span: Span, limit: i64, before: Option<i64>) -> RangeRequest {
    RangeRequest {
        key: span.start,
        range_end: span.end,
        limit,
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Create.into(),
        max_create_revision: before.map_or(0, |place| place - 1),
        ..RangeRequest::default()
    }
}

/// A range request as a part of a transaction.
pub(crate) fn range_op(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(request)) }
}

/// Judges what stands ahead of the claim; `None` if the replies do not reach far enough to decide.
pub(crate) fn judge(claim: &Claim, place: i64, revision: i64, replies: &[RangeResponse]) -> Option<Look> {
    let cut = replies.iter().filter(|reply| reply.more);
    // A cut reply says nothing about what is older than its last claim.
    let reaches_to = cut.filter_map(|reply| Some(reply.kvs.last()?.create_revision)).max();
    let mut ahead: Vec<&KeyValue> = replies
        .iter()
        .flat_map(|reply| &reply.kvs)
        .filter(|found| {
            found.create_revision < place && reaches_to.is_none_or(|to| found.create_revision >= to)
        })
        .filter(|found| keys::is_in_queue(&claim.name, &found.key))
        .collect();
    ahead.sort_unstable_by_key(|found| found.create_revision);
    let demands: Vec<Demand> = ahead.iter().map(|found| demand(found)).collect();
    let (mine, limit) = (claim.demand.weight(), claim.demand.limit());
    // Another client's claim is exclusive whatever the lock's limit is.
    let weights: Vec<u64> = demands
        .iter()
        .map(|demand| if *demand == Demand::Exclusive { limit } else { demand.weight() })
        .collect();
    let sum = weights.iter().fold(0, |sum: u64, weight| sum.saturating_add(*weight));
    // What rules is the oldest claim's shape (Law 6), so a strange one is a reason to read on.
    let is_strange = demands.iter().any(|demand| demand.shape() != claim.demand.shape());
    if reaches_to.is_some() && (is_strange || grant::fits(sum, mine, limit)) {
        return None;
    }
    let blockers = grant::blockers(&weights, mine, limit);
    let ruling = demands.first().filter(|_| reaches_to.is_none()).map(|demand| demand.shape());
    let blockers = blockers.into_iter().map(|index| ahead[index].key.clone()).collect();
    Some(Look { revision, ahead: sum, blockers, ruling })
}

/// What the claim behind a key wants; another client's wants everything.
pub(crate) fn demand(found: &KeyValue) -> Demand {
    Value::decode(&found.value).map_or(Demand::Exclusive, |value| value.demand)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Times;
    use lockkeeper_core::Holder;
    use lockkeeper_core::engine::{ClaimId, LockName};
    use std::sync::Arc;
    use std::time::Duration;

    fn a_claim(demand: Demand) -> Claim {
        Claim {
            id: ClaimId::random(),
            name: LockName::new("a").unwrap(),
            demand,
            holder: Arc::new(Holder::here("test")),
            keeper: ClaimId(7),
            ttl: Duration::from_secs(10),
        }
    }

    fn ours(place: i64, demand: Demand) -> KeyValue {
        let claim = a_claim(demand);
        let (key, value) =
            (keys::claim(&keys::stem(&claim), place as u32), Value::encode(&claim, demand, Times::default()));
        KeyValue { key, value, create_revision: place, ..KeyValue::default() }
    }

    fn foreign(place: i64) -> KeyValue {
        KeyValue { key: b"a/694d".to_vec(), create_revision: place, ..KeyValue::default() }
    }

    fn reply(kvs: Vec<KeyValue>, more: bool) -> RangeResponse {
        RangeResponse { kvs, more, ..RangeResponse::default() }
    }

    const WRITE: Demand = Demand::Exclusive;
    const READ: Demand = Demand::Shared;

    #[test]
    fn a_mutex_waits_for_the_claim_before_it() {
        let (close, far) = (ours(8, WRITE), ours(5, WRITE));
        let found = [reply(vec![ours(12, WRITE), close.clone(), far], true)];
        let look = judge(&a_claim(WRITE), 10, 20, &found).unwrap();
        assert_eq!((look.blockers, look.revision), (vec![close.key], 20));
    }

    #[test]
    fn another_client_is_exclusive_and_a_nested_lock_does_not_count() {
        let nested = KeyValue { key: b"a/b/694d".to_vec(), create_revision: 9, ..KeyValue::default() };
        let found = [reply(vec![nested.clone(), foreign(8)], false)];
        for demand in [WRITE, READ, Demand::Permits { want: 1, of: 4 }] {
            let look = judge(&a_claim(demand), 10, 20, &found).unwrap();
            assert_eq!(look.blockers, [b"a/694d".to_vec()]);
            assert_eq!(look.ruling, Some(Shape::ReadWrite));
        }
        assert!(judge(&a_claim(WRITE), 10, 20, &[reply(vec![nested], true)]).is_none(), "it must read on");
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_of_any_client() {
        let found =
            [reply(vec![ours(4, WRITE)], false), reply(vec![], false), reply(vec![foreign(6)], false)];
        assert_eq!(judge(&a_claim(READ), 10, 20, &found).unwrap().blockers, [b"a/694d".to_vec()]);
        let mut shrunk = ours(4, WRITE);
        shrunk.value = Value::encode(&a_claim(WRITE), READ, Times::default());
        let look = judge(&a_claim(READ), 10, 20, &[reply(vec![shrunk], false)]).unwrap();
        assert_eq!((look.ahead, look.blockers.len()), (1, 0));
    }

    #[test]
    fn a_mutex_sees_that_the_lock_is_a_semaphore() {
        let permit = Demand::Permits { want: 1, of: 4 };
        let look = judge(&a_claim(WRITE), 10, 20, &[reply(vec![ours(9, permit)], false)]).unwrap();
        assert_eq!(look.ruling, Some(permit.shape()));
        let cut = [reply(vec![ours(9, permit)], true)];
        assert!(judge(&a_claim(WRITE), 10, 20, &cut).is_none(), "it must read on");
    }

    #[test]
    fn a_cut_reply_grants_nothing() {
        let permits = |want| Demand::Permits { want, of: 4 };
        let found = [reply(vec![ours(9, permits(1)), ours(8, permits(1))], true)];
        assert!(judge(&a_claim(permits(2)), 10, 20, &found).is_none());
        assert_eq!(judge(&a_claim(permits(3)), 10, 20, &found).unwrap().blockers.len(), 2);
        // The second span's claims older than where the first was cut are not judged by themselves.
        let found = [reply(vec![ours(9, READ)], true), reply(vec![foreign(3)], false)];
        assert!(judge(&a_claim(READ), 10, 20, &found).is_none());
    }
}
