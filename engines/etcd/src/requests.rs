//! The requests of etcd's API, sent again to the next member when one fails; only etcd's driver leaves that to us.

use crate::config::{Config, Times};
use crate::connection::{Connection, LARGEST_REPLY_BYTES, Members, Transaction, txn};
use crate::error::RequestError;
use crate::generated::kv_client::KvClient;
use crate::generated::lease_client::LeaseClient;
use crate::generated::watch_client::WatchClient;
use crate::generated::{
    DeleteRangeRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::keys::Key;
use futures_util::Stream;
use lockkeeper_core::engine::{Clock, Connections, LockName};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// A pause after every member has failed, so that a cluster without a leader is not flooded.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections of one keeper to a cluster.
#[derive(Debug)]
pub(crate) struct Client {
    connections: Connections<Connection>,
    members: usize,
    times: Times,
}

/// A reply, and whether earlier tries of the same request failed and may still take effect.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    pub(crate) value: T,
    pub(crate) retried: bool,
}

/// An open stream of messages from one member.
#[derive(Debug)]
pub(crate) struct Messages<T> {
    pub(crate) messages: Streaming<T>,
    pub(crate) connection: Arc<Connection>,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        let times = config.times;
        let members = Arc::new(Members::new(config));
        let count = members.count();
        Self { connections: Connections::new(move || Arc::clone(&members).open()), members: count, times }
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// Closes all connections when their last request has ended.
    pub(crate) fn close(&self) {
        self.connections.close();
    }

    pub(crate) async fn txn(&self, request: &TxnRequest) -> Result<Reply<TxnResponse>, RequestError> {
        self.send(|connection| {
            let request = request.clone();
            async move { connection.member().call(request, txn).await }
        })
        .await
    }

    /// Sends a transaction that concerns no other lock, by itself or together with those of others. `removes` is the key that it
    /// removes if it does nothing else: such a one may travel together with those of the same lock.
    pub(crate) async fn txn_of(
        &self,
        name: &LockName,
        removes: Option<&Key>,
        request: &TxnRequest,
    ) -> Result<Reply<TxnResponse>, RequestError> {
        self.send(|connection| {
            let one = Transaction { name: name.clone(), removes: removes.cloned(), request: request.clone() };
            let ended = || Err(Status::unavailable("the connection's runtime has ended").into());
            async move { connection.transactions().request(one).await.unwrap_or_else(ended) }
        })
        .await
    }

    /// Deletes one key; says whether it was there.
    pub(crate) async fn delete(&self, key: &Key) -> Result<Reply<bool>, RequestError> {
        let request = DeleteRangeRequest { key: key.clone() };
        let reply = self
            .unary(&request, |channel, request| async { KvClient::new(channel).delete_range(request).await });
        let Reply { value, retried } = reply.await?;
        Ok(Reply { value: value.deleted > 0, retried })
    }

    pub(crate) async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, RequestError> {
        let reply = self.unary(request, |channel, request| async {
            KvClient::new(channel).max_decoding_message_size(LARGEST_REPLY_BYTES).range(request).await
        });
        Ok(reply.await?.value)
    }

    pub(crate) async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrantResponse, RequestError> {
        let request = LeaseGrantRequest { ttl: ttl_seconds };
        let reply = self.unary(&request, |channel, request| async {
            LeaseClient::new(channel).lease_grant(request).await
        });
        Ok(reply.await?.value)
    }

    pub(crate) async fn lease_revoke(&self, id: i64) -> Result<(), RequestError> {
        let request = LeaseRevokeRequest { id };
        let reply = self.unary(&request, |channel, request| async {
            LeaseClient::new(channel).lease_revoke(request).await
        });
        reply.await.map(|_| ())
    }

    /// How many seconds a lease has left, negative if it is gone; and its keys, as far as the leader has come.
    pub(crate) async fn lease_time_to_live(
        &self,
        id: i64,
        keys: bool,
    ) -> Result<LeaseTimeToLiveResponse, RequestError> {
        let request = LeaseTimeToLiveRequest { id, keys };
        let reply = self.unary(&request, |channel, request| async {
            let mut lease = LeaseClient::new(channel).max_decoding_message_size(LARGEST_REPLY_BYTES);
            lease.lease_time_to_live(request).await
        });
        Ok(reply.await?.value)
    }

    /// Opens a keep-alive stream on the background connection. The server replies only when it has a request, so one must
    /// be in the receiver.
    pub(crate) async fn keep_alive(
        &self,
        requests: mpsc::UnboundedReceiver<LeaseKeepAliveRequest>,
    ) -> Result<Messages<LeaseKeepAliveResponse>, RequestError> {
        self.open(requests, |channel, request| async {
            LeaseClient::new(channel).lease_keep_alive(request).await
        })
        .await
    }

    /// Opens a watch stream on the background connection. The server replies only when it has a request, so one must be in
    /// the receiver.
    pub(crate) async fn watch(
        &self,
        requests: mpsc::UnboundedReceiver<WatchRequest>,
    ) -> Result<Messages<WatchResponse>, RequestError> {
        self.open(requests, |channel, mut request| async {
            // A member that is cut off from the leader ends the stream instead of staying silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            WatchClient::new(channel).watch(request).await
        })
        .await
    }

    async fn open<Q, R, F: Future<Output = Result<Response<Streaming<R>>, Status>>>(
        &self,
        requests: mpsc::UnboundedReceiver<Q>,
        send: impl FnOnce(Channel, Request<Outgoing<Q>>) -> F,
    ) -> Result<Messages<R>, RequestError> {
        let connection = self.connections.background().await?;
        match connection.member().call(Outgoing(requests), send).await {
            Ok(messages) => Ok(Messages { messages, connection }),
            Err(error) => {
                self.close_if_useless(&connection, &error);
                Err(error)
            }
        }
    }

    async fn unary<Q: Clone, R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        message: &Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<Reply<R>, RequestError> {
        self.send(|connection| {
            let (message, send) = (message.clone(), &send);
            async move { connection.member().call(message, send).await }
        })
        .await
    }

    /// Sends a request to one member after another, until one replies or half a TTL has passed. Every request may be sent
    /// more than once: claims are known by their ids (Law 4).
    async fn send<R, F: Future<Output = Result<R, RequestError>>>(
        &self,
        request: impl Fn(Arc<Connection>) -> F,
    ) -> Result<Reply<R>, RequestError> {
        let give_up_at = Instant::now() + self.times.ttl / 2;
        let (mut tries, mut retried) = (0, false);
        loop {
            let error = match self.connections.foreground().await {
                Ok(connection) => match request(Arc::clone(&connection)).await {
                    Ok(value) => return Ok(Reply { value, retried }),
                    Err(error) => {
                        retried = true;
                        self.close_if_useless(&connection, &error);
                        error
                    }
                },
                Err(error) => error.into(),
            };
            if !error.is_temporary() || Instant::now() >= give_up_at {
                return Err(error);
            }
            tries += 1;
            if tries % self.members == 0 {
                Box::pin(Clock::Boot.sleep(PAUSE)).await;
            }
        }
    }

    /// A broken connection is not used again; nor is one to a member that cannot do its work, if there are others. A missing
    /// reply does not suffice: the connection judges its silence by all its requests.
    fn close_if_useless(&self, connection: &Connection, error: &RequestError) {
        let is_members = error.is_temporary() && !error.is_about_login() && !error.is_no_reply();
        if error.is_of_connection() || (is_members && self.members > 1) {
            connection.member().close();
        }
    }
}

/// The requests of a stream.
struct Outgoing<Q>(mpsc::UnboundedReceiver<Q>);

impl<Q> Stream for Outgoing<Q> {
    type Item = Q;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Q>> {
        self.0.poll_recv(context)
    }
}
