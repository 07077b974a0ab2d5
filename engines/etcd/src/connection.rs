//! A connection to one member of the cluster: a channel of the driver on one runtime, judged by its replies.

use crate::config::{Config, Login};
use crate::error::{RequestError, WithCauses};
use crate::generated::auth_client::AuthClient;
use crate::generated::kv_client::KvClient;
use crate::generated::request_op::Request as Operation;
use crate::generated::response_op::Response as Outcome;
use crate::generated::{AuthenticateRequest, RequestOp, TxnRequest, TxnResponse};
use crate::keys::Key;
use futures_util::future::join_all;
use lockkeeper_core::engine::{Batch, Batcher, Clock, LockName, NoReply, Replies, send_apart};
use lockkeeper_core::{Error, Result};
use std::collections::HashSet;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// The number of transactions under way on a connection before further ones are sent together.
const AT_ONCE: usize = 4;

/// The most transactions that are sent together: half of what etcd allows by default, for the operations inside count as
/// well.
const AT_MOST: usize = 64;

/// The largest reply: a long queue is one.
pub(crate) const LARGEST_REPLY_BYTES: usize = 256 * 1024 * 1024;

/// The members of the cluster, and which one new connections go to.
pub(crate) struct Members {
    endpoints: Vec<Endpoint>,
    /// The member to begin with.
    preferred: AtomicUsize,
    limit: Duration,
    /// How long a busy server is waited for.
    busy_limit: Duration,
    login: Option<Login>,
    token: Mutex<Option<LoginToken>>,
}

/// What the server gives for a user's password.
type LoginToken = MetadataValue<Ascii>;

impl Members {
    pub(crate) fn new(config: Config) -> Self {
        let Config { endpoints, login, times, .. } = config;
        let (preferred, token) = (AtomicUsize::new(0), Mutex::new(None));
        Self { endpoints, preferred, limit: times.request, busy_limit: times.ttl / 2, login, token }
    }

    pub(crate) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Opens a connection on the caller's runtime, to the first member that lets us.
    pub(crate) async fn open(self: Arc<Self>) -> Result<Connection> {
        let first = self.preferred.load(SeqCst);
        let mut reason = String::new();
        for index in (first..first + self.count()).map(|index| index % self.count()) {
            match Clock::Boot.timeout(self.limit, self.endpoints[index].connect()).await {
                Ok(Ok(channel)) => return Ok(Connection::new(self, index, channel)),
                Ok(Err(error)) => reason = WithCauses(&error).to_string(),
                Err(_) => reason = format!("no connection within {:?}", self.limit),
            }
            self.avoid(index);
        }
        Err(Error::temporary("etcd", "connect", reason))
    }

    /// New connections begin with the next member, unless they do so already.
    fn avoid(&self, index: usize) {
        let next = (index + 1) % self.count();
        let _ = self.preferred.compare_exchange(index, next, SeqCst, SeqCst);
    }

    fn token(&self) -> MutexGuard<'_, Option<LoginToken>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection. Transactions of different locks are sent together on it when there are many.
pub(crate) struct Connection {
    member: Arc<Member>,
    transactions: Batcher<Transactions>,
}

impl lockkeeper_core::engine::Connection for Connection {
    fn is_closed(&self) -> bool {
        self.member.replies.is_silent()
    }
}

impl Connection {
    fn new(members: Arc<Members>, index: usize, channel: Channel) -> Self {
        let replies = Replies::new(members.limit);
        let member = Arc::new(Member { members, index, channel, replies, closed: watch::Sender::new(false) });
        let transactions = Batcher::new(Transactions(Arc::clone(&member)), Handle::current(), AT_ONCE);
        Self { member, transactions }
    }

    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    /// Sends transactions of many tasks together.
    pub(crate) fn transactions(&self) -> &Batcher<Transactions> {
        &self.transactions
    }
}

/// The channel to one member.
pub(crate) struct Member {
    members: Arc<Members>,
    index: usize,
    channel: Channel,
    replies: Replies,
    closed: watch::Sender<bool>,
}

impl Member {
    /// Sends one request, with the user's token if there is a user, and waits for the reply as long as the connection replies
    /// to other requests, at most for half a TTL: a request that is sent again does not make a busy server quicker.
    ///
    /// Cancel safety: the request may or may not take effect.
    pub(crate) async fn call<Q, R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        message: Q,
        send: impl FnOnce(Channel, Request<Q>) -> F,
    ) -> Result<R, RequestError> {
        if self.replies.is_silent() {
            return Err(Status::unavailable("the connection is closed").into());
        }
        let token = self.token().await?;
        let mut request = Request::new(message);
        if let Some(token) = &token {
            request.metadata_mut().insert("token", token.clone());
        }
        let _closes = ClosesIfSilent(self);
        let mut reply = pin!(send(self.channel.clone(), request));
        let give_up_at = Instant::now() + self.members.busy_limit;
        loop {
            return match self.replies.request(reply.as_mut()).await {
                Err(_) if !self.replies.is_silent() && Instant::now() < give_up_at => continue,
                Err(no_reply) => Err(no_reply.into()),
                Ok(Ok(response)) => Ok(response.into_inner()),
                Ok(Err(status)) => Err(self.refused(status, token.as_ref())),
            };
        }
    }

    /// Waits for a reply, at most for the limit. If the connection is silent then, it is closed, also when this future is
    /// dropped.
    pub(crate) async fn reply<T>(&self, reply: impl Future<Output = T>) -> Result<T, NoReply> {
        let _closes = ClosesIfSilent(self);
        self.replies.request(reply).await
    }

    /// The server sent something unasked.
    pub(crate) fn received(&self) {
        self.replies.received();
    }

    /// No request is sent over the connection any more, and its streams end.
    pub(crate) fn close(&self) {
        self.replies.give_up();
        if !self.closed.send_replace(true) {
            tracing::debug!(member = %self.members.endpoints[self.index].uri(), "etcd: connection closed");
            self.members.avoid(self.index);
        }
    }

    /// Resolves when the connection is closed.
    pub(crate) async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// The user's token, if there is a user.
    async fn token(&self) -> Result<Option<LoginToken>, RequestError> {
        let Some(login) = &self.members.login else { return Ok(None) };
        let known = self.members.token().clone();
        match known {
            Some(token) => Ok(Some(token)),
            None => Box::pin(self.log_in(login)).await.map(Some),
        }
    }

    async fn log_in(&self, login: &Login) -> Result<LoginToken, RequestError> {
        let password = login.password.get("etcd").await?.unwrap_or_default();
        let message = AuthenticateRequest { name: login.user.clone(), password };
        let mut auth = AuthClient::new(self.channel.clone());
        let reply = match self.reply(auth.authenticate(message)).await? {
            Ok(reply) => reply.into_inner(),
            Err(status) => return Err(RequestError::of_login(status, &login.password)),
        };
        login.password.accepted();
        let token = LoginToken::try_from(reply.token)
            .map_err(|_| RequestError::from(Status::internal("the server's token is not printable")))?;
        *self.members.token() = Some(token.clone());
        Ok(token)
    }

    /// A token that the server no longer takes is forgotten, so that the next try logs in again.
    fn refused(&self, status: Status, token: Option<&LoginToken>) -> RequestError {
        let error = RequestError::from(status);
        if !error.is_about_login() {
            return error;
        }
        self.members.token().take_if(|known| Some(&*known) == token);
        if token.is_some() { error } else { error.into_final() }
    }
}

/// The driver's call of a transaction.
pub(crate) async fn txn(
    channel: Channel,
    request: Request<TxnRequest>,
) -> Result<Response<TxnResponse>, Status> {
    KvClient::new(channel).max_decoding_message_size(LARGEST_REPLY_BYTES).txn(request).await
}

/// Closes a connection that is found to be silent.
struct ClosesIfSilent<'a>(&'a Member);

impl Drop for ClosesIfSilent<'_> {
    fn drop(&mut self) {
        if self.0.replies.is_silent() {
            self.0.close();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("member", &self.member.index).finish_non_exhaustive()
    }
}

/// The transaction of one task.
pub(crate) struct Transaction {
    pub(crate) name: LockName,
    /// The key that it removes, if it does nothing else.
    pub(crate) removes: Option<Key>,
    pub(crate) request: TxnRequest,
}

/// Sends transactions of many tasks as one, each with its own conditions: what a transaction costs etcd is mostly the
/// request and the proposal to its members, not its content.
pub(crate) struct Transactions(Arc<Member>);

impl Batch for Transactions {
    type Request = Transaction;
    type Reply = Result<TxnResponse, RequestError>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, transactions: &[Transaction]) -> Vec<Self::Reply> {
        // Two claims of one transaction would have the same revision, which is their place in a lock's queue; and a look would miss
        // the departure in its own. Departures alone may travel together: after an outage there are as many as there were waiters.
        let looked_at: HashSet<&LockName> =
            transactions.iter().filter(|one| one.removes.is_none()).map(|one| &one.name).collect();
        let removed = |one| alone_removed(one, &looked_at);
        send_apart(transactions, |one| ((), (&one.name, removed(one))), |some| self.send_together(some)).await
    }

    // A reply that no task waits for needs nothing: the leave of a join without a reply puts a tombstone.
}

/// The key that a transaction removes, if none of these locks, whose queues are looked at beside it, is its own.
fn alone_removed<'a>(one: &'a Transaction, looked_at: &HashSet<&LockName>) -> Option<&'a Key> {
    one.removes.as_ref().filter(|_| !looked_at.contains(&one.name))
}

impl Transactions {
    /// Sends transactions of different locks as one.
    async fn send_together(&self, transactions: Vec<&Transaction>) -> Vec<<Self as Batch>::Reply> {
        let requests: Vec<&TxnRequest> = transactions.into_iter().map(|one| &one.request).collect();
        if let [request] = requests[..] {
            return vec![self.0.call(request.clone(), txn).await];
        }
        let nested = requests.iter().map(|request| Operation::RequestTxn((*request).clone()));
        let success = nested.map(|request| RequestOp { request: Some(request) }).collect();
        match self.0.call(TxnRequest { success, ..TxnRequest::default() }, txn).await {
            Ok(response) => parts(response, requests.len()),
            Err(error) if error.is_temporary() => vec![Err(error); requests.len()],
            // One may be the reason for all: it has another lease, or no permission, or is too much.
            Err(_) => join_all(requests.into_iter().map(|request| self.0.call(request.clone(), txn))).await,
        }
    }
}

/// The responses to the parts; all of them were done at the same revision.
fn parts(response: TxnResponse, count: usize) -> Vec<<Transactions as Batch>::Reply> {
    let TxnResponse { header, responses, .. } = response;
    let parts = responses.into_iter().filter_map(|part| match part.response {
        Some(Outcome::ResponseTxn(part)) => Some(Ok(TxnResponse { header, ..part })),
        _ => None,
    });
    let parts: Vec<_> = parts.collect();
    if parts.len() == count {
        return parts;
    }
    let missing = RequestError::from(Status::internal("the reply does not cover each part of a transaction"));
    vec![Err(missing); count]
}
