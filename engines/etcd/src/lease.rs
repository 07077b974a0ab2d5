//! The keeper's one lease: granted at connect, kept alive by one stream, replaced when it was lost.

use crate::client::Client;
use crate::failure::Failure;
use crate::generated::LeaseKeepAliveRequest;
use lockkeeper_core::{Clock, Moment, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

/// A pause before a failed stream is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// The lease of one keeper.
#[derive(Debug)]
pub(crate) struct Lease {
    client: Arc<Client>,
    state: Mutex<State>,
    /// Raised at every acknowledgement and every new lease.
    news: watch::Sender<u64>,
    /// Asks for a keep-alive now.
    ping: Notify,
}

#[derive(Debug, Clone, Copy)]
struct State {
    id: i64,
    /// How long the server lets it live.
    length: Duration,
    /// When the last keep-alive (or grant) that was acknowledged had been sent.
    acknowledged: Moment,
}

/// A lease that was kept alive a moment ago.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fresh {
    pub(crate) id: i64,
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
    /// Asks for a lease.
    pub(crate) async fn grant(client: Arc<Client>) -> Result<Self> {
        let state = grant(&client).await.map_err(|failure| failure.into_error("get a lease"))?;
        Ok(Self { client, state: Mutex::new(state), news: watch::Sender::new(0), ping: Notify::new() })
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

    /// The claims' TTL: as asked, or longer if the server gave a much longer lease than was asked for.
    pub(crate) fn ttl(&self) -> Duration {
        let times = self.client.times();
        let asked = Duration::from_secs(times.lease_seconds.unsigned_abs());
        times.ttl + self.state().length.saturating_sub(asked)
    }

    /// The lease, if it is known to outlive a claim that joins or is renewed now (Law 5); else it is kept alive
    /// first.
    pub(crate) async fn fresh(&self) -> Result<Fresh> {
        if let Some(fresh) = self.fresh_now() {
            return Ok(fresh);
        }
        let mut news = self.news.subscribe();
        let limit = self.client.times().keep_alive;
        let soon = async {
            loop {
                news.borrow_and_update();
                if let Some(fresh) = self.fresh_now() {
                    return fresh;
                }
                self.ping.notify_one();
                if news.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let late = |_| Failure::silence(limit).into_error("keep the lease alive");
        timeout(limit, soon).await.map_err(late)
    }

    fn fresh_now(&self) -> Option<Fresh> {
        let state = *self.state();
        let now = Clock::Boot.now();
        let reaches_to = state.acknowledged.plus(state.length).minus(self.ttl());
        (reaches_to >= now && state.id != 0).then_some(Fresh { id: state.id, as_of: now })
    }

    /// The server said that this lease is gone; nobody may rely on it before the stream has found out more.
    pub(crate) fn doubt(&self, id: i64) {
        let mut state = self.state();
        if state.id == id {
            state.acknowledged = Moment::ORIGIN;
        }
    }

    /// Keeps it alive for ever; runs in the house.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let id = self.id();
            match self.keep_alive(id).await {
                End::Gone => {
                    tracing::warn!(lease = %format!("{id:x}"), "etcd: the lease is gone, and every claim bound to it");
                    self.replace().await;
                }
                End::Broken => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// A lease for later claims. Those of the old one are dead and stay so (Law 2).
    async fn replace(&self) {
        loop {
            match grant(&self.client).await {
                Ok(state) => return self.set(state),
                Err(error) => {
                    tracing::warn!(%error, "etcd: could not get a new lease; trying again");
                    tokio::time::sleep(self.client.times().request).await;
                }
            }
        }
    }

    async fn keep_alive(&self, id: i64) -> End {
        let (requests, receiver) = mpsc::unbounded_channel();
        let mut sent = Clock::Boot.now();
        let _ = requests.send(LeaseKeepAliveRequest { id });
        let mut opened = match self.client.keep_alive(receiver).await {
            Ok(opened) => opened,
            Err(failure) if failure.is_lease_not_found() => return End::Gone,
            Err(error) => {
                tracing::debug!(%error, "etcd: could not open the keep-alive stream");
                return End::Broken;
            }
        };
        loop {
            let answer = timeout(self.client.times().keep_alive, opened.answers.message()).await;
            match answer {
                Ok(Ok(Some(answer))) if answer.ttl > 0 => {
                    let length = Duration::from_secs(answer.ttl.unsigned_abs());
                    self.set(State { id, length, acknowledged: sent });
                }
                Ok(Ok(Some(_))) => return End::Gone,
                broken => {
                    self.client.avoid(opened.member, broken.is_err());
                    return End::Broken;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.slack() / 2) => {}
                () = self.ping.notified() => {}
            }
            sent = Clock::Boot.now();
            let _ = requests.send(LeaseKeepAliveRequest { id });
        }
    }
}

async fn grant(client: &Client) -> Result<State, Failure> {
    let sent = Clock::Boot.now();
    let granted = client.lease_grant(client.times().lease_seconds).await?;
    let length = Duration::from_secs(granted.ttl.unsigned_abs());
    Ok(State { id: granted.id, length, acknowledged: sent })
}
