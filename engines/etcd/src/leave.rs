//! Leaving the queue, also for a join that is still on its way.

use crate::claims::Entry;
use crate::client::Answer;
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
        // Nothing was ever sent, or it has left already.
        let Some(entry) = self.claims.get(claim.id) else { return Ok(Left::NotThere) };
        let left = match self.leave_once(claim, &entry).await {
            // The claim stands in others' way for the second half of its TTL, too, and an election may take that long.
            Err(failure) if failure.may_pass() => {
                let again = Box::pin(self.leave_once(claim, &entry)).await;
                again.map(|answer| Answer { retried: true, ..answer })
            }
            left => left,
        };
        let Answer { value: was_there, retried } =
            left.map_err(|failure| failure.into_error("leave the queue"))?;
        self.claims.remove(claim.id);
        // After a lost answer the key is gone by our own hand, as far as anybody can tell.
        let by_us = retried && entry.place.is_some();
        Ok(if was_there || by_us { Left::Left } else { Left::NotThere })
    }

    /// Tries for half a TTL; says whether the key was there.
    async fn leave_once(&self, claim: &Claim, entry: &Entry) -> Result<Answer<bool>, Failure> {
        match entry.place {
            _ if entry.may_arrive => self.undo(claim, entry).await,
            // The key may be another claim's by the time this arrives (Q7).
            Some(place) => {
                deleted(self.together.txn(&claim.name, delete_created_at(&entry.key, place)).await)
            }
            None => self.client.delete(entry.key.clone()).await,
        }
    }

    async fn undo(&self, claim: &Claim, entry: &Entry) -> Result<Answer<bool>, Failure> {
        let lease = self.grave_lease().await?;
        let key = keys::tombstone(&claim.name, claim.id);
        let put = PutRequest { key, lease, ..PutRequest::default() };
        let delete = DeleteRangeRequest { key: entry.key.clone() };
        let both = [Request::RequestDeleteRange(delete), Request::RequestPut(put)];
        let success = both.map(|request| RequestOp { request: Some(request) }).into();
        deleted(self.client.txn(&TxnRequest { success, ..TxnRequest::default() }).await)
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

/// Deletes the key if it was created at this revision.
pub(crate) fn delete_created_at(key: &Key, revision: i64) -> TxnRequest {
    let delete = Request::RequestDeleteRange(DeleteRangeRequest { key: key.clone() });
    let compare = vec![created_at(Span::key(key), revision)];
    TxnRequest { compare, success: vec![RequestOp { request: Some(delete) }], failure: vec![] }
}

/// Whether the transaction deleted something.
pub(crate) fn deleted(answer: Result<Answer<TxnResponse>, Failure>) -> Result<Answer<bool>, Failure> {
    let Answer { value, retried } = answer?;
    let deleted =
        |part: &Response| matches!(part, Response::ResponseDeleteRange(answer) if answer.deleted > 0);
    let value = value.responses.iter().filter_map(|part| part.response.as_ref()).any(deleted);
    Ok(Answer { value, retried })
}
