//! Joining the queue and looking at it in one transaction, which takes more than a statement only here.

use crate::claims::Entry;
use crate::error::RequestError;
use crate::generated::range_request::{SortOrder, SortTarget};
use crate::generated::request_op::Request;
use crate::generated::{PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use crate::keys::{self, Key, Span};
use crate::lease::{Fresh, Lease};
use crate::look::{self, Look};
use crate::queue::{Parts, created_at, get, ranges};
use crate::requests::Reply;
use crate::value::{Times, Value};
use lockkeeper_core::engine::{Ahead, Claim, Joined, Place};
use lockkeeper_core::{Demand, Error, Result, Token};

const DOING: &str = "join the queue";

impl Parts {
    /// Puts the claim's key, bound to the lease, unless it is there already; and looks at what stands ahead.
    pub(crate) async fn join(&self, claim: &Claim) -> Result<Joined> {
        let keepers = self.lease_of(claim.ttl).await?;
        let lease = keepers.fresh().await?;
        let neglected_at = lease.as_of.plus(claim.ttl + keepers.slack());
        let entry = self.claims.joining(claim, &lease, neglected_at);
        let has_queue = claim.demand == Demand::Exclusive && self.claims.has_queue(&entry);
        let reply = self
            .send_join(claim, &entry, &lease, has_queue)
            .await
            .map_err(|error| not_joined(error, &keepers, &lease))?;
        let may_arrive = reply.retried || entry.may_arrive;
        self.claims.change(claim.id, |entry| entry.may_arrive = may_arrive);
        let found = if reply.value.succeeded {
            self.arrived(claim, &entry, reply.value, has_queue).await
        } else {
            self.found(claim, &entry, &lease).await
        };
        // What the transaction has not refused is judged by what stands ahead.
        let found = found.and_then(|(place, look)| {
            self.claims.change(claim.id, |entry| entry.place = Some(place));
            look.ruling.map_or(Ok(()), |ruling| claim.check_shape(ruling))?;
            Ok((place, look))
        });
        if matches!(found, Err(Error::Mismatch { .. })) {
            // Law 6: a refused claim leaves nothing behind, and the keeper sends no leave for it.
            self.leave(claim).await?;
        }
        let (place, look) = found?;
        self.claims.note_contended(&claim.name, look.ahead > 0);
        let joined = Joined {
            place: Place(place.unsigned_abs()),
            token: Token(place.unsigned_abs()),
            ahead: Ahead(look.ahead),
            lifeline: Some(lease.lifeline),
        };
        self.claims.change(claim.id, |entry| entry.look = Some(look));
        Ok(joined)
    }

    /// Sends the join: first the small one that arrives only if nothing at all is in the way, unless something was when
    /// this keeper last looked.
    async fn send_join(
        &self,
        claim: &Claim,
        entry: &Entry,
        lease: &Fresh,
        has_queue: bool,
    ) -> Result<Reply<TxnResponse>, RequestError> {
        if has_queue {
            return self.client.txn_of(&claim.name, None, &request_without_look(claim, entry, lease)).await;
        }
        let mut retried = false;
        if claim.demand == Demand::Exclusive && !self.claims.was_contended(&claim.name) {
            let reply = self.client.txn_of(&claim.name, None, &request_if_free(claim, entry, lease)).await?;
            if reply.value.succeeded {
                self.claims.change(claim.id, |entry| {
                    entry.times = entry.times.granted_at_join();
                    entry.grant_noted = true;
                });
                return Ok(reply);
            }
            retried = reply.retried;
        }
        let reply = self.client.txn_of(&claim.name, None, &request(claim, entry, lease)).await?;
        Ok(Reply { retried: reply.retried || retried, ..reply })
    }

    /// The transaction has put the key: its place is the transaction's revision. In a queue of this keeper's own, the claim
    /// waits for its predecessor there before it looks: thousands that join at once do not read the queue thousands of times.
    async fn arrived(
        &self,
        claim: &Claim,
        entry: &Entry,
        response: TxnResponse,
        has_queue: bool,
    ) -> Result<(i64, Look)> {
        let place = response.header.map_or(0, |header| header.revision);
        let look = if has_queue {
            match self.claims.predecessor(entry, place) {
                Some((key, revision)) => Look::behind(key, revision, claim.demand.limit()),
                None => self.look(claim, &entry.key, place).await?,
            }
        } else {
            match look::judge(claim, place, place, &ranges(response)) {
                Some(look) => look,
                None => self.look_far(claim, &entry.key, place).await?,
            }
        };
        Ok((place, look))
    }

    /// The transaction has put nothing: because the claim is there (Law 4), because it has been left already, or
    /// because the lock is in use with another shape (Law 6).
    async fn found(&self, claim: &Claim, entry: &Entry, lease: &Fresh) -> Result<(i64, Look)> {
        let reply = self.client.txn(&why(claim, &entry.key)).await;
        let found = ranges(reply.map_err(|error| error.into_error(DOING))?.value);
        let first = |index: usize| found.get(index).and_then(|found| found.kvs.first());
        if let Some(own) = first(0) {
            if Value::decode(&own.value).is_none_or(|value| value.claim != claim.id.to_string()) {
                return Err(Error::temporary("etcd", DOING, "another claim stands under this key"));
            }
            if own.lease != lease.id {
                return Err(claim.gone());
            }
            let place = own.create_revision;
            return Ok((place, self.look(claim, &entry.key, place).await?));
        }
        if first(1).is_some() {
            return Err(claim.gone());
        }
        if let Some(oldest) = first(2) {
            claim.check_shape(look::demand(oldest).shape())?;
        }
        Err(Error::temporary("etcd", DOING, "the lock was just in use with another shape"))
    }

    /// Looks at what stands ahead of a claim, and that it is still there itself.
    pub(crate) async fn look(&self, claim: &Claim, key: &Key, place: i64) -> Result<Look> {
        match self.look_once(claim, key, place, true).await? {
            Some(look) => Ok(look),
            None => self.look_far(claim, key, place).await,
        }
    }

    /// Looks at all that stands ahead.
    async fn look_far(&self, claim: &Claim, key: &Key, place: i64) -> Result<Look> {
        let undecided = || Error::temporary("etcd", "look at the queue", "the reply was cut short");
        self.look_once(claim, key, place, false).await?.ok_or_else(undecided)
    }

    /// A read through the leader, so that no arrival is missed (Law 3).
    async fn look_once(
        &self,
        claim: &Claim,
        key: &Key,
        place: i64,
        nearest_only: bool,
    ) -> Result<Option<Look>> {
        let mut reads = vec![look::range_op(get(key, true))];
        reads.extend(look::requests(claim, nearest_only, Some(place)));
        let request = TxnRequest { success: reads, ..TxnRequest::default() };
        let reply = self.client.txn(&request).await.map_err(|error| error.into_error("look at the queue"))?;
        let revision = reply.value.header.map_or(0, |header| header.revision);
        let mut found = ranges(reply.value);
        if found.is_empty() {
            return Err(Error::temporary("etcd", "look at the queue", "the server sent an empty reply"));
        }
        let own = found.remove(0);
        // A key that is gone, or is another claim's by now, is a lost claim: a dead one is never granted.
        let alive = own.kvs.first().is_some_and(|own| own.create_revision == place);
        if !alive {
            // It was evicted, or the lease has ended, and with it all other claims.
            self.lease.check();
            return Err(claim.gone());
        }
        Ok(look::judge(claim, place, revision, &found))
    }
}

fn not_joined(error: RequestError, lease: &Lease, fresh: &Fresh) -> Error {
    if error.is_lease_not_found() {
        lease.is_gone(fresh.id);
        return Error::temporary("etcd", DOING, "the lease was lost; a new one is on its way");
    }
    error.into_error(DOING)
}

fn put(claim: &Claim, entry: &Entry, lease: &Fresh, times: Times) -> RequestOp {
    let value = Value::encode(claim, claim.demand, times);
    let put = PutRequest { key: entry.key.clone(), value, lease: lease.id, ..PutRequest::default() };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

/// Puts the claim's key if the queue is empty, the claim itself included, and no join of this lock was undone lately.
/// One comparison for all of it: each costs the server as much as a read.
fn request_if_free(claim: &Claim, entry: &Entry, lease: &Fresh) -> TxnRequest {
    let compare = vec![created_at(keys::in_the_way(&claim.name), 0)];
    TxnRequest {
        compare,
        success: vec![put(claim, entry, lease, entry.times.granted_at_join())],
        failure: vec![],
    }
}

/// Puts the claim's key unless it is there or was left already, and reads nothing.
fn request_without_look(claim: &Claim, entry: &Entry, lease: &Fresh) -> TxnRequest {
    let tombstone = keys::tombstone(&claim.name, claim.id);
    let compare = vec![created_at(Span::key(&entry.key), 0), created_at(Span::key(&tombstone), 0)];
    TxnRequest { compare, success: vec![put(claim, entry, lease, entry.times)], failure: vec![] }
}

fn request(claim: &Claim, entry: &Entry, lease: &Fresh) -> TxnRequest {
    let TxnRequest { mut compare, mut success, .. } = request_without_look(claim, entry, lease);
    // A mutex or writer reads what stands ahead of whatever shape and refuses itself.
    if claim.demand != Demand::Exclusive {
        let others = keys::other_shapes(&claim.name, claim.demand.shape());
        compare.extend(others.into_iter().map(|span| created_at(span, 0)));
    }
    success.extend(look::requests(claim, true, None));
    // What refused the claim is read apart: it is rare, and every member writes the whole request to its disk.
    TxnRequest { compare, success, failure: vec![] }
}

/// Reads why a claim was not put: it is there, it was left already, or the oldest claim has another shape.
fn why(claim: &Claim, key: &Key) -> TxnRequest {
    let tombstone = keys::tombstone(&claim.name, claim.id);
    let ours = keys::ours(&claim.name);
    let oldest = RangeRequest {
        key: ours.start,
        range_end: ours.end,
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..RangeRequest::default()
    };
    let reads = [get(key, false), get(&tombstone, true), oldest].map(look::range_op);
    TxnRequest { success: reads.into(), ..TxnRequest::default() }
}
