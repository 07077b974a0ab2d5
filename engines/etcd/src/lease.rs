//! A lease of the keeper, which only etcd binds claims to: kept alive by one stream, replaced when lost. There is one for all
//! claims of the keeper's TTL, and one for each other TTL.

use crate::config::Times;
use crate::error::RequestError;
use crate::generated::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use crate::requests::{Client, Messages};
use lockkeeper_core::engine::{Clock, Lifeline, Moment};
use lockkeeper_core::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

/// A pause before a failed stream is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest time between two keep-alives, which is how long a lost lease may stay unnoticed.
const EVERY_AT_MOST: Duration = Duration::from_secs(1);

/// A lease of one keeper.
#[derive(Debug)]
pub(crate) struct Lease {
    client: Arc<Client>,
    times: Times,
    state: Mutex<State>,
    /// Raised at every acknowledgement and every new lease.
    news: watch::Sender<u64>,
    /// Triggers a keep-alive.
    ping: Notify,
}

#[derive(Debug, Clone)]
struct State {
    id: i64,
    /// How long the server lets it live.
    length: Duration,
    /// When the last keep-alive (or grant) that was acknowledged had been sent.
    acknowledged: Moment,
    /// Every claim on the lease is tied to it, and is lost with the lease.
    lifeline: Lifeline,
}

/// A lease that was kept alive a moment ago.
#[derive(Debug, Clone)]
pub(crate) struct Fresh {
    pub(crate) id: i64,
    pub(crate) lifeline: Lifeline,
    /// A claim's TTL, counted from this moment, ends before the lease does.
    pub(crate) as_of: Moment,
}

/// Why a keep-alive stream ended.
enum End {
    /// The server has no such lease any more.
    Gone,
    Broken,
}

impl Lease {
    /// Requests a lease.
    pub(crate) async fn grant(client: Arc<Client>, times: Times) -> Result<Self> {
        let state = grant(&client, times).await.map_err(|error| error.into_error("get a lease"))?;
        Ok(Self { client, times, state: Mutex::new(state), news: watch::Sender::new(0), ping: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.news.send_modify(|count| *count += 1);
    }

    pub(crate) fn id(&self) -> i64 {
        self.state().id
    }

    /// How much longer the lease lives than a claim is trusted.
    pub(crate) fn slack(&self) -> Duration {
        let length = self.state().length;
        length.saturating_sub(self.ttl())
    }

    /// The claims' TTL: as requested, or longer if the server gave a longer lease than requested.
    pub(crate) fn ttl(&self) -> Duration {
        let times = self.times;
        let requested = Duration::from_secs(times.lease_seconds.unsigned_abs());
        times.ttl + self.state().length.saturating_sub(requested)
    }

    /// The lease, if it is known to outlive a claim that joins or is renewed now (Law 5); else it is kept alive
    /// first.
    pub(crate) async fn fresh(&self) -> Result<Fresh> {
        if let Some(fresh) = self.fresh_now() {
            return Ok(fresh);
        }
        let mut news = self.news.subscribe();
        let limit = self.times.keep_alive;
        let soon = async {
            loop {
                news.borrow_and_update();
                if let Some(fresh) = self.fresh_now() {
                    return fresh;
                }
                self.check();
                if news.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let late = |_| Error::temporary("etcd", "keep the lease alive", format!("no reply within {limit:?}"));
        Clock::Boot.timeout(limit, soon).await.map_err(late)
    }

    fn fresh_now(&self) -> Option<Fresh> {
        let State { id, length, acknowledged, lifeline } = self.state().clone();
        let now = Clock::Boot.now();
        let reaches_to = acknowledged.plus(length).minus(self.ttl());
        (reaches_to >= now).then_some(Fresh { id, lifeline, as_of: now })
    }

    /// The server has no such lease any more: every claim on it is lost at this moment.
    pub(crate) fn is_gone(&self, id: i64) {
        let mut state = self.state();
        if state.id != id || state.lifeline.has_ended() {
            return;
        }
        tracing::warn!(lease = %format!("{id:x}"), "etcd: the lease is gone, and every claim on it");
        state.acknowledged = Moment::ORIGIN;
        let lifeline = state.lifeline.clone();
        drop(state);
        lifeline.end();
        self.check();
    }

    /// Sends a keep-alive now: something may have happened to the lease.
    pub(crate) fn check(&self) {
        self.ping.notify_one();
    }

    /// Keeps it alive; runs on the background runtime.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let id = self.id();
            match self.keep_alive(id).await {
                End::Gone => {
                    self.is_gone(id);
                    self.replace().await;
                }
                End::Broken => Clock::Boot.sleep(PAUSE).await,
            }
        }
    }

    /// A lease for later claims. Those of the old one are dead and stay so (Law 2).
    async fn replace(&self) {
        loop {
            match grant(&self.client, self.times).await {
                Ok(state) => return self.set(state),
                Err(error) => {
                    tracing::warn!(%error, "etcd: could not get a new lease; trying again");
                    Clock::Boot.sleep(self.times.request).await;
                }
            }
        }
    }

    async fn keep_alive(&self, id: i64) -> End {
        let (requests, receiver) = mpsc::unbounded_channel();
        let mut sent = Clock::Boot.now();
        let _ = requests.send(LeaseKeepAliveRequest { id });
        let mut stream = match self.client.keep_alive(receiver).await {
            Ok(stream) => stream,
            Err(error) if error.is_lease_not_found() => return End::Gone,
            Err(error) => {
                tracing::debug!(%error, "etcd: could not open the keep-alive stream");
                return End::Broken;
            }
        };
        loop {
            match self.reply(&mut stream).await {
                Some(reply) if reply.ttl > 0 && self.acknowledged(id, reply.ttl, sent) => {}
                Some(_) => return End::Gone,
                None => {
                    stream.connection.member().close();
                    return End::Broken;
                }
            }
            tokio::select! {
                () = Clock::Boot.sleep((self.slack() / 2).min(EVERY_AT_MOST)) => {}
                () = self.ping.notified() => {}
                () = stream.connection.member().closed() => return End::Broken,
            }
            sent = Clock::Boot.now();
            let _ = requests.send(LeaseKeepAliveRequest { id });
        }
    }

    /// The reply to a keep-alive; `None` if the stream is broken. A busy server is given more time than the limit of a
    /// request, as long as it replies to others.
    async fn reply(&self, stream: &mut Messages<LeaseKeepAliveResponse>) -> Option<LeaseKeepAliveResponse> {
        let Messages { messages, connection } = stream;
        let member = connection.member();
        let reply = async {
            loop {
                tokio::select! {
                    reply = member.reply(messages.message()) => match reply {
                        Ok(reply) => return reply.ok().flatten(),
                        Err(_) => continue,
                    },
                    () = member.closed() => return None,
                }
            }
        };
        Clock::Boot.timeout(self.times.keep_alive, reply).await.ok().flatten()
    }

    /// The server has the lease; `false` if a request has found out meanwhile that it is gone.
    fn acknowledged(&self, id: i64, ttl_seconds: i64, sent: Moment) -> bool {
        let mut state = self.state();
        if state.id != id || state.lifeline.has_ended() {
            return false;
        }
        state.length = Duration::from_secs(ttl_seconds.unsigned_abs());
        state.acknowledged = sent;
        drop(state);
        self.news.send_modify(|count| *count += 1);
        true
    }
}

async fn grant(client: &Client, times: Times) -> Result<State, RequestError> {
    let sent = Clock::Boot.now();
    let granted = client.lease_grant(times.lease_seconds).await?;
    let length = Duration::from_secs(granted.ttl.unsigned_abs());
    Ok(State { id: granted.id, length, acknowledged: sent, lifeline: Lifeline::new() })
}
