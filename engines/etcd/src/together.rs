//! Joins and leaves of many tasks, as one transaction made of theirs.
//!
//! What a transaction costs etcd is mostly the call and the proposal to its members, not what stands in it. So when more
//! tasks ask than requests should be under way, theirs go together, each with its own conditions. One alone
//! goes as it is.

use crate::client::{Answer, Client};
use crate::failure::Failure;
use crate::generated::request_op::Request;
use crate::generated::response_op::Response;
use crate::generated::{RequestOp, TxnRequest, TxnResponse};
use futures_util::future::join_all;
use lockkeeper_core::{Batch, Batcher, LockName, background, send_apart};
use std::sync::Arc;
use tokio::runtime::{Handle, Id};
use tonic::Status;

/// So many requests are under way before others gather.
const AT_ONCE: usize = 4;

/// So many travel together: half of what etcd allows by default, for the parts of each count as well.
const AT_MOST: usize = 64;

/// What a task gets.
type Outcome = Result<Answer<TxnResponse>, Failure>;

/// Sends transactions of claims, several together when there are many.
#[derive(Debug)]
pub(crate) struct Together {
    house: Batcher<Nested>,
    /// For tasks on the runtime that the keeper was made on, whose connection this is.
    near: Option<(Id, Batcher<Nested>)>,
}

impl Together {
    pub(crate) fn new(client: &Arc<Client>) -> Self {
        let house = background::handle();
        let batcher = |runtime: &Handle| Batcher::new(Nested(Arc::clone(client)), runtime.clone(), AT_ONCE);
        let here = Handle::try_current().ok().filter(|here| here.id() != house.id());
        Self { near: here.map(|here| (here.id(), batcher(&here))), house: batcher(house) }
    }

    /// Sends a transaction that concerns this lock alone.
    pub(crate) async fn txn(&self, name: &LockName, request: TxnRequest) -> Outcome {
        let ask = Ask { name: name.clone(), request };
        let batcher = match &self.near {
            Some((id, near)) if Handle::try_current().is_ok_and(|here| here.id() == *id) => near,
            _ => &self.house,
        };
        let ended = || Err(Status::unavailable("the runtime of the keeper has ended").into());
        batcher.ask(ask).await.unwrap_or_else(ended)
    }
}

/// One task's transaction.
struct Ask {
    name: LockName,
    request: TxnRequest,
}

/// Transactions inside one.
struct Nested(Arc<Client>);

impl Batch for Nested {
    type Ask = Ask;
    type Answer = Outcome;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, asks: &[Ask]) -> Vec<Outcome> {
        if let [ask] = asks {
            return vec![self.0.txn(&ask.request).await];
        }
        // Two claims of one transaction would have the same revision, which is their place in a lock's queue.
        send_apart(asks, |ask| ((), &ask.name), |asks| self.send_together(asks)).await
    }

    // An answer nobody waits for needs nothing: the leave of a join whose answer was not heard puts a tombstone.
}

impl Nested {
    /// Sends transactions of different locks as one.
    async fn send_together(&self, asks: Vec<&Ask>) -> Vec<Outcome> {
        let requests: Vec<&TxnRequest> = asks.into_iter().map(|ask| &ask.request).collect();
        if let [request] = requests[..] {
            return vec![self.0.txn(request).await];
        }
        let nested = requests.iter().map(|request| Request::RequestTxn((*request).clone()));
        let success = nested.map(|request| RequestOp { request: Some(request) }).collect();
        match self.0.txn(&TxnRequest { success, ..TxnRequest::default() }).await {
            Ok(answer) => answers(answer, requests.len()),
            Err(failure) if failure.may_pass() => vec![Err(failure); requests.len()],
            // One may be at fault for all: it has another's lease, or no permission, or is too much.
            Err(failure) => {
                join_all(requests.iter().map(|request| self.send_alone(request, failure.retried))).await
            }
        }
    }

    /// Sends a transaction that may have been sent before, with others.
    async fn send_alone(&self, request: &TxnRequest, retried: bool) -> Outcome {
        let answer = self.0.txn(request).await?;
        Ok(Answer { retried: retried || answer.retried, ..answer })
    }
}

/// The answers to the parts; all of them were done at the same revision.
fn answers(answer: Answer<TxnResponse>, count: usize) -> Vec<Outcome> {
    let Answer { value: TxnResponse { header, responses, .. }, retried } = answer;
    let parts = responses.into_iter().filter_map(|part| match part.response {
        Some(Response::ResponseTxn(value)) => {
            Some(Ok(Answer { value: TxnResponse { header, ..value }, retried }))
        }
        _ => None,
    });
    let parts: Vec<Outcome> = parts.collect();
    if parts.len() == count {
        return parts;
    }
    let strange = Failure::from(Status::internal("the server did not answer to each part of a transaction"));
    vec![Err(strange); count]
}
