//! Leaving the queue, also for a join that is still on its way.

use crate::claims::Entry;
use crate::failure::Failure;
use crate::generated::request_op::Request;
use crate::generated::response_op::Response;
use crate::generated::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, TxnResponse};
use crate::keys::{self, Key, Span};
use crate::queue::{Parts, created_at};
use lockkeeper_core::{Claim, Left, Result};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a tombstone stands at least: much longer than etcd itself lets a request wait.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// How long one lease takes tombstones.
const OPEN: Duration = Duration::from_secs(30);

/// The lease of the tombstones. It is never kept alive, so they go by themselves.
#[derive(Debug, Default)]
pub(crate) struct Graves(Mutex<Option<(i64, Instant)>>);

impl Parts {
    /// Removes the claim's key. If a join may still be on its way, a tombstone makes it fail when it arrives: the
    /// keeper's lease would keep such an orphan alive for ever.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<Left> {
        let entry = self.claims.get(claim.id);
        let request = match &entry {
            Some(entry) if entry.may_arrive => self.undo(claim, entry).await,
            Some(Entry { key, place: Some(place), .. }) => Ok(delete_if(key, *place)),
            _ => Ok(delete(&keys::claim(claim))),
        };
        let left = async { self.client.txn(request?).await }.await;
        let answer = left.map_err(|failure| failure.into_error("leave the queue"))?;
        self.claims.remove(claim.id);
        let was_there = was_deleted(&answer.value);
        // After a lost answer the key is gone by our own hand, as far as anybody can tell.
        let by_us = answer.retried && entry.is_some_and(|entry| entry.place.is_some());
        Ok(if was_there || by_us { Left::Left } else { Left::NotThere })
    }

    async fn undo(&self, claim: &Claim, entry: &Entry) -> Result<TxnRequest, Failure> {
        let lease = self.grave_lease().await?;
        let key = keys::tombstone(&claim.name, claim.id);
        let put = PutRequest { key, lease, ..PutRequest::default() };
        let mut request = delete(&entry.key);
        request.success.push(RequestOp { request: Some(Request::RequestPut(put)) });
        Ok(request)
    }

    async fn grave_lease(&self) -> Result<i64, Failure> {
        let mut graves = self.graves.0.lock().await;
        if let Some((id, until)) = *graves
            && Instant::now() < until
        {
            return Ok(id);
        }
        let seconds = (OPEN + TOMBSTONE).as_secs() as i64;
        let granted = self.client.lease_grant(seconds).await?;
        *graves = Some((granted.id, Instant::now() + OPEN));
        Ok(granted.id)
    }
}

/// Deletes the key, if it was created at that revision.
fn delete_if(key: &Key, place: i64) -> TxnRequest {
    TxnRequest { compare: vec![created_at(Span::key(key), place)], ..delete(key) }
}

/// Deletes the key.
pub(crate) fn delete(key: &Key) -> TxnRequest {
    let delete = Request::RequestDeleteRange(DeleteRangeRequest { key: key.clone() });
    TxnRequest { success: vec![RequestOp { request: Some(delete) }], ..TxnRequest::default() }
}

/// Whether the transaction deleted something.
pub(crate) fn was_deleted(response: &TxnResponse) -> bool {
    let deleted =
        |part: &Response| matches!(part, Response::ResponseDeleteRange(answer) if answer.deleted > 0);
    response.responses.iter().filter_map(|part| part.response.as_ref()).any(deleted)
}
