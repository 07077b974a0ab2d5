//! Leaving the queue, also for a join that is still on its way.

use crate::claims::Entry;
use crate::client::Answer;
use crate::failure::Failure;
use crate::generated::request_op::Request;
use crate::generated::response_op::Response;
use crate::generated::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, TxnResponse};
use crate::keys;
use crate::queue::Parts;
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
        let left = match &entry {
            Some(entry) if entry.may_arrive => self.undo(claim, entry).await,
            // Nobody uses a claim's id twice, so the key is this claim's or nobody's, and no revision need be compared
            // (Q7). A transaction would cost the server a good deal more.
            Some(entry) => self.client.delete(entry.key.clone()).await,
            None => self.client.delete(keys::claim(claim)).await,
        };
        let Answer { value: was_there, retried } =
            left.map_err(|failure| failure.into_error("leave the queue"))?;
        self.claims.remove(claim.id);
        // After a lost answer the key is gone by our own hand, as far as anybody can tell.
        let by_us = retried && entry.is_some_and(|entry| entry.place.is_some());
        Ok(if was_there || by_us { Left::Left } else { Left::NotThere })
    }

    async fn undo(&self, claim: &Claim, entry: &Entry) -> Result<Answer<bool>, Failure> {
        let lease = self.grave_lease().await?;
        let key = keys::tombstone(&claim.name, claim.id);
        let put = PutRequest { key, lease, ..PutRequest::default() };
        let delete = DeleteRangeRequest { key: entry.key.clone() };
        let both = [Request::RequestDeleteRange(delete), Request::RequestPut(put)];
        let success = both.map(|request| RequestOp { request: Some(request) }).into();
        let answer = self.client.txn(TxnRequest { success, ..TxnRequest::default() }).await?;
        Ok(Answer { value: was_deleted(&answer.value), retried: answer.retried })
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

/// Whether the transaction deleted something.
fn was_deleted(response: &TxnResponse) -> bool {
    let deleted =
        |part: &Response| matches!(part, Response::ResponseDeleteRange(answer) if answer.deleted > 0);
    response.responses.iter().filter_map(|part| part.response.as_ref()).any(deleted)
}
