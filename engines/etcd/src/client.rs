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
            members: Members::new(config.endpoints),
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
        self.call(request, |channel, request| async move { kv(channel).txn(request).await }).await
    }

    /// Deletes one key; says whether it was there.
    pub(crate) async fn delete(&self, key: Key) -> Result<Answer<bool>, Failure> {
        let request = DeleteRangeRequest { key };
        let answer =
            self.call(&request, |channel, request| async move { kv(channel).delete_range(request).await });
        let Answer { value, retried } = answer.await?;
        Ok(Answer { value: value.deleted > 0, retried })
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        let answer = self.call(&request, |channel, request| async move { kv(channel).range(request).await });
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

    /// One request, sent to one server after another until one answers or the patience ends. Every request we
    /// make may be repeated: claims are known by their ids (Law 4).
    async fn call<Q: Clone, R, F: Sending<R>>(
        &self,
        request: &Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<Answer<R>, Failure> {
        let give_up_at = Instant::now() + self.times.ttl / 2;
        let mut tries = 0;
        loop {
            let member = self.members.current();
            let mut failure = match self.once(&member, request.clone(), &send).await {
                Ok(value) => return Ok(Answer { value, retried: tries > 0 }),
                Err(failure) => failure,
            };
            failure.retried = tries > 0;
            tries += 1;
            if !failure.may_pass() || Instant::now() >= give_up_at {
                return Err(failure);
            }
            if !failure.is_about_login() {
                self.members.avoid(member.index, failure.is_silence());
            }
            if tries % self.members.count() == 0 {
                tokio::time::sleep(PAUSE).await;
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
        request.set_timeout(limit);
        self.sign(member, request.metadata_mut()).await?;
        match timeout(limit, send(member.channel.clone(), request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refused(status)),
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
            Ok(Err(status)) => self.refused(status),
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
        let Some(login) = &self.login else { return Ok(()) };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let token = match known {
            Some(token) => token,
            None => self.log_in(member, login).await?,
        };
        metadata.insert("token", token);
        Ok(())
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
    fn refused(&self, status: Status) -> Failure {
        let mut failure = Failure::from(status);
        let stale = failure.is_about_login();
        if stale && self.token.lock().unwrap_or_else(PoisonError::into_inner).take().is_none() {
            failure.give_up();
        }
        failure
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
