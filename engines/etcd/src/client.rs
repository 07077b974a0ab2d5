//! The calls to etcd: a time limit for each, the next server when one fails, and a login that renews itself.

use crate::config::{Config, Login, Times};
use crate::failure::Failure;
use crate::generated::auth_client::AuthClient;
use crate::generated::kv_client::KvClient;
use crate::generated::lease_client::LeaseClient;
use crate::generated::watch_client::WatchClient;
use crate::generated::{
    AuthenticateRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::keys::Key;
use crate::members::{Member, Members};
use crate::wire::{Unary, Wire};
use futures_util::Stream;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// A pause after every server has failed, so that a cluster without a leader is not stormed.
const PAUSE: Duration = Duration::from_millis(50);

const LARGEST_ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// The connections of one keeper to a cluster.
#[derive(Debug)]
pub(crate) struct Client {
    members: Members,
    login: Option<Login>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    times: Times,
}

/// An answer, and whether earlier tries of the same request failed and may still take effect.
#[derive(Debug, Clone)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) retried: bool,
}

/// A stream that was opened on one of the servers.
#[derive(Debug)]
pub(crate) struct Opened<T> {
    pub(crate) answers: Streaming<T>,
    pub(crate) member: usize,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            members: Members::new(config.endpoints, config.times.request),
            login: config.login,
            token: Mutex::new(None),
            times: config.times,
        }
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// Changes when requests go to another server, so that streams can follow.
    pub(crate) fn moves(&self) -> watch::Receiver<usize> {
        self.members.moves()
    }

    /// A stream on this server failed: others are preferred from now on.
    pub(crate) fn avoid(&self, member: usize, silent: bool) {
        self.members.avoid(member, silent);
    }

    pub(crate) async fn txn(&self, request: &TxnRequest) -> Result<Answer<TxnResponse>, Failure> {
        self.unary(request, |channel, request| async move { kv(channel).txn(request).await }).await
    }

    /// Deletes one key; says whether it was there.
    pub(crate) async fn delete(&self, key: Key) -> Result<Answer<bool>, Failure> {
        let request = DeleteRangeRequest { key };
        let answer =
            self.unary(&request, |channel, request| async move { kv(channel).delete_range(request).await });
        let Answer { value, retried } = answer.await?;
        Ok(Answer { value: value.deleted > 0, retried })
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        let answer = self.unary(&request, |channel, request| async move { kv(channel).range(request).await });
        Ok(answer.await?.value)
    }

    pub(crate) async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrantResponse, Failure> {
        let request = LeaseGrantRequest { ttl: ttl_seconds };
        let answer = self.call(&request, |channel, request| async move {
            LeaseClient::new(channel).lease_grant(request).await
        });
        Ok(answer.await?.value)
    }

    pub(crate) async fn lease_revoke(&self, id: i64) -> Result<(), Failure> {
        let request = LeaseRevokeRequest { id };
        let answer = self.call(&request, |channel, request| async move {
            LeaseClient::new(channel).lease_revoke(request).await
        });
        answer.await.map(|_| ())
    }

    /// How many seconds a lease has left; negative if it is gone.
    pub(crate) async fn lease_seconds_left(&self, id: i64) -> Result<i64, Failure> {
        Ok(self.time_to_live(id, false).await?.ttl)
    }

    /// The keys that are bound to a lease, as far as the leader has come.
    pub(crate) async fn lease_keys(&self, id: i64) -> Result<Vec<Key>, Failure> {
        Ok(self.time_to_live(id, true).await?.keys)
    }

    async fn time_to_live(&self, id: i64, keys: bool) -> Result<LeaseTimeToLiveResponse, Failure> {
        let request = LeaseTimeToLiveRequest { id, keys };
        let answer = self.call(&request, |channel, request| async move {
            let mut lease = LeaseClient::new(channel).max_decoding_message_size(LARGEST_ANSWER_BYTES);
            lease.lease_time_to_live(request).await
        });
        Ok(answer.await?.value)
    }

    /// Opens a keep-alive stream. The server answers only when it has a request, so one must be in the receiver.
    pub(crate) async fn keep_alive(
        &self,
        requests: mpsc::UnboundedReceiver<LeaseKeepAliveRequest>,
    ) -> Result<Opened<LeaseKeepAliveResponse>, Failure> {
        self.open(requests, |channel, request| async move {
            LeaseClient::new(channel).lease_keep_alive(request).await
        })
        .await
    }

    /// Opens a watch stream. The server answers only when it has a request, so one must be in the receiver.
    pub(crate) async fn watch(
        &self,
        requests: mpsc::UnboundedReceiver<WatchRequest>,
    ) -> Result<Opened<WatchResponse>, Failure> {
        self.open(requests, |channel, mut request| async move {
            // A server that is cut off from the leader ends the stream instead of staying silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            WatchClient::new(channel).watch(request).await
        })
        .await
    }

    /// A call that goes over the wire where there is one.
    async fn unary<Q: Unary + Clone, F: Sending<Q::Answer>>(
        &self,
        request: &Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<Answer<Q::Answer>, Failure> {
        let mut tries = Tries::of(self);
        loop {
            let member = self.members.current();
            let outcome = match &member.wire {
                Some(wire) => self.over(wire, &member, request).await,
                None => Box::pin(self.once(&member, request.clone(), &send)).await,
            };
            match outcome {
                Ok(value) => return Ok(tries.answer(value)),
                Err(failure) => Box::pin(tries.failed(&member, failure)).await?,
            }
        }
    }

    async fn over<Q: Unary>(&self, wire: &Wire, member: &Member, request: &Q) -> Result<Q::Answer, Failure> {
        let token = self.token(member).await?;
        wire.call(request, token).await.map_err(|failure| self.refused(failure))
    }

    async fn call<Q: Clone, R, F: Sending<R>>(
        &self,
        request: &Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<Answer<R>, Failure> {
        let mut tries = Tries::of(self);
        loop {
            let member = self.members.current();
            match self.once(&member, request.clone(), &send).await {
                Ok(value) => return Ok(tries.answer(value)),
                Err(failure) => tries.failed(&member, failure).await?,
            }
        }
    }

    async fn once<Q, R, F: Sending<R>>(
        &self,
        member: &Member,
        message: Q,
        send: &impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<R, Failure> {
        let limit = self.times.request;
        let mut request = Request::new(message);
        self.sign(member, request.metadata_mut()).await?;
        match timeout(limit, send(member.channel.clone(), request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refused(status.into())),
            Err(_) => Err(Failure::silence(limit)),
        }
    }

    async fn open<Q: Send + 'static, R, F: Sending<Streaming<R>>>(
        &self,
        requests: mpsc::UnboundedReceiver<Q>,
        send: impl FnOnce(Channel, Request<Outgoing<Q>>) -> F,
    ) -> Result<Opened<R>, Failure> {
        let limit = self.times.request;
        let member = self.members.current();
        let mut request = Request::new(Outgoing(requests));
        self.sign(&member, request.metadata_mut()).await?;
        let failure = match timeout(limit, send(member.channel.clone(), request)).await {
            Ok(Ok(response)) => return Ok(Opened { answers: response.into_inner(), member: member.index }),
            Ok(Err(status)) => self.refused(status.into()),
            Err(_) => Failure::silence(limit),
        };
        self.members.avoid(member.index, failure.is_silence());
        Err(failure)
    }

    /// Adds the login's token to a request, if there is a login.
    async fn sign(
        &self,
        member: &Member,
        metadata: &mut tonic::metadata::MetadataMap,
    ) -> Result<(), Failure> {
        if let Some(token) = self.token(member).await? {
            metadata.insert("token", token);
        }
        Ok(())
    }

    /// The login's token, if there is a login.
    async fn token(&self, member: &Member) -> Result<Option<MetadataValue<Ascii>>, Failure> {
        let Some(login) = &self.login else { return Ok(None) };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(token) => Ok(Some(token)),
            None => Box::pin(self.log_in(member, login)).await.map(Some),
        }
    }

    async fn log_in(&self, member: &Member, login: &Login) -> Result<MetadataValue<Ascii>, Failure> {
        let limit = self.times.request;
        let message = AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        let mut auth = AuthClient::new(member.channel.clone());
        let response = match timeout(limit, auth.authenticate(message)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Err(Failure::from(status)),
            Err(_) => return Err(Failure::silence(limit)),
        };
        let token = MetadataValue::try_from(response.token)
            .map_err(|_| Failure::from(Status::internal("the server's token is not printable")))?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    /// A token that the server no longer takes is forgotten, so that the next try logs in again.
    fn refused(&self, mut failure: Failure) -> Failure {
        let stale = failure.is_about_login();
        if stale && self.token.lock().unwrap_or_else(PoisonError::into_inner).take().is_none() {
            failure.give_up();
        }
        failure
    }
}

/// One request, sent to one server after another until one answers or the patience ends. Every request we make may be
/// repeated: claims are known by their ids (Law 4).
struct Tries<'a> {
    client: &'a Client,
    give_up_at: Instant,
    count: usize,
}

impl<'a> Tries<'a> {
    fn of(client: &'a Client) -> Self {
        Self { client, give_up_at: Instant::now() + client.times.ttl / 2, count: 0 }
    }

    fn answer<T>(&self, value: T) -> Answer<T> {
        Answer { value, retried: self.count > 0 }
    }

    /// Returns when it is time to try again.
    async fn failed(&mut self, member: &Member, mut failure: Failure) -> Result<(), Failure> {
        failure.retried = self.count > 0;
        self.count += 1;
        if !failure.may_pass() || Instant::now() >= self.give_up_at {
            return Err(failure);
        }
        let members = &self.client.members;
        if !failure.is_about_login() {
            members.avoid(member.index, failure.is_silence());
        }
        if self.count.is_multiple_of(members.count()) {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// A long queue is a large answer.
fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(LARGEST_ANSWER_BYTES)
}

/// A call under way.
trait Sending<R>: Future<Output = Result<Response<R>, Status>> + Send {}

impl<R, F: Future<Output = Result<Response<R>, Status>> + Send> Sending<R> for F {}

/// The requests of a stream.
struct Outgoing<Q>(mpsc::UnboundedReceiver<Q>);

impl<Q> Stream for Outgoing<Q> {
    type Item = Q;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Q>> {
        self.0.poll_recv(context)
    }
}
