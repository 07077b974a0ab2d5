//! The server or servers behind one URL: which of them a request goes to. Only Redis has three kinds of them.

use crate::cluster::Cluster;
use crate::config::{Config, ConnectOptions, ENGINE, Topology};
use crate::connection::{Call, Connection, Server};
use crate::error::{error, io_error};
use crate::sentinel::Sentinels;
use crate::wake::{Subscribed, Subscription};
use lockkeeper_core::engine::Host;
use lockkeeper_core::engine::{Clock, Connections, background};
use lockkeeper_core::{Error, Result};
use redis::{Cmd, RedisError, RedisResult, Value};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

const PORT: u16 = 6379;

/// The server that a URL names, with the default port if it has none.
pub fn server(host: &Host) -> Server {
    (host.name.clone(), host.port.unwrap_or(PORT))
}

/// Where a connection leads.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    One(Server),
    /// The master that the sentinels name.
    Sentinels(Arc<Sentinels>),
}

/// How connections are opened.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) target: Target,
    pub(crate) options: ConnectOptions,
    /// The time limit of every request.
    pub(crate) limit: Duration,
    /// What the connection of the background runtime subscribes to.
    pub(crate) subscription: Option<Arc<Subscription>>,
}

/// How long the first connection may take in all.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time in which a connection can be expected to open.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
/// The first pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);

impl Opener {
    /// One connection for each runtime.
    pub(crate) fn connections(self) -> Connections<Connection> {
        let (opener, was_open) = (Arc::new(self), Arc::new(AtomicBool::new(false)));
        Connections::new(move || {
            let (opener, was_open) = (Arc::clone(&opener), Arc::clone(&was_open));
            async move {
                let connection = opener.retry(was_open.load(Relaxed)).await;
                was_open.fetch_or(connection.is_ok(), Relaxed);
                connection.map_err(|cause| opener.options.error(cause))
            }
        })
    }

    /// A server that was there before may be restarting, or its successor may not be chosen yet: it is tried for a while. One
    /// that was never there gets another chance only if it was slow.
    async fn retry(&self, was_open: bool) -> RedisResult<Connection> {
        let (started, mut pause) = (Instant::now(), PAUSE);
        let timeout = if was_open { self.limit } else { FIRST_TIMEOUT };
        loop {
            let cause = match self.open().await {
                Err(cause) => cause,
                opened => return opened,
            };
            let may_pass =
                if was_open { self.options.error(cause.clone()).is_temporary() } else { cause.is_timeout() };
            if !may_pass || started.elapsed() + pause >= timeout {
                return Err(cause);
            }
            Clock::Boot.sleep(pause).await;
            pause *= 2;
        }
    }

    /// Opens a connection, or fails, in time.
    pub(crate) async fn open(&self) -> RedisResult<Connection> {
        let opened = async {
            match &self.target {
                Target::One(server) => self.open_to(server).await,
                Target::Sentinels(sentinels) => {
                    let connection = self.open_to(&sentinels.master().await?).await?;
                    Ok(connection.watching(sentinels.watch()))
                }
            }
        };
        match Clock::Boot.timeout(self.limit.max(LEAST_TIMEOUT), opened).await {
            Ok(outcome) => outcome,
            Err(_) => Err(io_error(io::ErrorKind::TimedOut, "no connection in time")),
        }
    }

    async fn open_to(&self, server: &Server) -> RedisResult<Connection> {
        let subscription = self.subscription.clone().filter(|_| is_background());
        Connection::open(server, &self.options, self.limit, subscription).await
    }
}

fn is_background() -> bool {
    Handle::current().id() == background::handle().id()
}

/// The servers of one engine. A request goes over the connection of the runtime that makes it.
#[derive(Debug)]
pub(crate) struct Servers {
    kind: Kind,
    durable: Option<Durable>,
    subscribed: Mutex<Option<Subscribed>>,
}

#[derive(Debug)]
enum Kind {
    One(Arc<Connections<Connection>>),
    Cluster(Cluster),
}

/// Connections on which every script is followed by WAIT. WAIT blocks its connection and speaks of the writes of that
/// connection only, so joins have connections of their own.
#[derive(Debug)]
struct Durable {
    connections: Connections<Connection>,
    wait: Cmd,
    replicas: u32,
}

impl Servers {
    pub(crate) fn new(config: &Config, limit: Duration, subscription: Subscription) -> Self {
        let opener = |target, subscription| Opener {
            target,
            options: config.options.clone(),
            limit,
            subscription: Some(Arc::new(subscription)),
        };
        let target = match &config.topology {
            Topology::Single(host) => Target::One(server(host)),
            Topology::Sentinel { sentinels, master } => {
                let options = config.sentinel_options.clone();
                Target::Sentinels(Arc::new(Sentinels::new(sentinels, options, master, limit)))
            }
            Topology::Cluster(hosts) => {
                let seeds: Vec<Server> = hosts.iter().map(server).collect();
                let cluster = Cluster::new(seeds, opener(Target::One(Server::default()), subscription));
                return Self::of(Kind::Cluster(cluster), None);
            }
        };
        let opener = opener(target, subscription);
        let durable = (config.wait_replicas > 0)
            .then(|| Durable::new(Opener { subscription: None, ..opener.clone() }, config.wait_replicas));
        Self::of(Kind::One(Arc::new(opener.connections())), durable)
    }

    fn of(kind: Kind, durable: Option<Durable>) -> Self {
        Self { kind, durable, subscribed: Mutex::default() }
    }

    /// Opens the first connections, and keeps the subscription open from then on.
    pub(crate) async fn connect(&self, reconnected: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let subscription = match &self.kind {
            Kind::One(connections) => connections,
            Kind::Cluster(cluster) => {
                cluster.read_map().await?;
                cluster.subscription()
            }
        };
        subscription.background().await?;
        let subscribed = Subscribed::start(Arc::clone(subscription), reconnected);
        *self.subscribed.lock().unwrap_or_else(PoisonError::into_inner) = Some(subscribed);
        Ok(())
    }

    /// Whether a script's keys must be in one slot, and PUBLISH counts the subscribers of one member only.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// Runs a script.
    pub(crate) async fn run(&self, doing: &'static str, call: &Call) -> Result<Value> {
        match &self.kind {
            Kind::One(connections) => {
                let reply = connections.foreground().await?.run(call).await;
                reply.map_err(|cause| error(ENGINE, doing, cause))
            }
            Kind::Cluster(cluster) => Box::pin(cluster.run(doing, call)).await,
        }
    }

    /// Runs a script that may run twice: after an error that may pass, once more. Also says whether an earlier run
    /// may have counted although its reply was lost.
    pub(crate) async fn run_twice(&self, doing: &'static str, call: &Call) -> Result<(Value, bool)> {
        match self.run(doing, call).await {
            Err(error) if error.is_temporary() => Ok((self.run(doing, call).await?, true)),
            outcome => Ok((outcome?, false)),
        }
    }

    /// Runs a script that makes a claim; fails if too few replicas have what it wrote. What it did stays done: the caller
    /// tries again, or leaves.
    pub(crate) async fn run_durable(&self, doing: &'static str, call: Call) -> Result<Value> {
        let Some(durable) = &self.durable else { return self.run(doing, &call).await };
        let connection = durable.connections.foreground().await?;
        let reply = durable.wait_after(&connection, &[call]).await;
        let reply = reply.and_then(|mut replies| replies.pop().unwrap_or_else(|| Err(too_few())));
        reply.map_err(|cause| error(ENGINE, doing, cause))
    }

    /// Runs scripts in one pipeline for each server.
    pub(crate) async fn run_all(&self, doing: &'static str, calls: Vec<Call>) -> Result<Vec<Value>> {
        match &self.kind {
            Kind::One(connections) => {
                let connection = connections.foreground().await?;
                collect(doing, connection.run_all(&calls).await)
            }
            Kind::Cluster(cluster) => cluster.run_all(doing, calls).await,
        }
    }

    /// Runs scripts that renew claims; fails if too few replicas have what they wrote. A renewal bears one WAIT for all of them.
    pub(crate) async fn run_all_durable(&self, doing: &'static str, calls: Vec<Call>) -> Result<Vec<Value>> {
        match (&self.kind, &self.durable) {
            (Kind::One(connections), Some(durable)) if !calls.is_empty() => {
                let connection = connections.foreground().await?;
                collect(doing, durable.wait_after(&connection, &calls).await)
            }
            _ => self.run_all(doing, calls).await,
        }
    }

    /// Subscribes to a channel in the background; says over which connection.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<Arc<Connection>> {
        let doing = "subscribe to a channel";
        match &self.kind {
            Kind::One(connections) => {
                let connection = connections.background().await?;
                let subscribed = connection.subscribe(channel).await;
                subscribed.map_err(|cause| error(ENGINE, doing, cause))?;
                Ok(connection)
            }
            Kind::Cluster(cluster) => cluster.subscribe(doing, channel).await,
        }
    }

    /// Ends a subscription.
    pub(crate) async fn unsubscribe(&self, connection: &Connection, channel: &str) -> Result<()> {
        let unsubscribed = match &self.kind {
            Kind::One(_) => connection.unsubscribe(channel).await,
            Kind::Cluster(_) => connection.request(redis::cmd("SUNSUBSCRIBE").arg(channel)).await.map(drop),
        };
        unsubscribed.map_err(|cause| error(ENGINE, "end a subscription", cause))
    }

    /// All keys that match the pattern.
    pub(crate) async fn scan(&self, doing: &'static str, pattern: &str, kind: &str) -> Result<Vec<String>> {
        match &self.kind {
            Kind::One(connections) => {
                let keys = connections.foreground().await?.scan(pattern, kind).await;
                keys.map_err(|cause| error(ENGINE, doing, cause))
            }
            Kind::Cluster(cluster) => cluster.scan(doing, pattern, kind).await,
        }
    }

    /// Ends the connections.
    pub(crate) fn close(&self) {
        drop(self.subscribed.lock().unwrap_or_else(PoisonError::into_inner).take());
        match &self.kind {
            Kind::One(connections) => connections.close(),
            Kind::Cluster(cluster) => cluster.close(),
        }
        if let Some(durable) = &self.durable {
            durable.connections.close();
        }
    }
}

impl Durable {
    /// The replicas get half of a request's time limit, so that WAIT ends before the request does.
    fn new(opener: Opener, replicas: u32) -> Self {
        let timeout_ms = u64::try_from((opener.limit / 2).as_millis()).unwrap_or(u64::MAX).max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(timeout_ms);
        Self { connections: opener.connections(), wait, replicas }
    }

    async fn wait_after(
        &self,
        connection: &Connection,
        calls: &[Call],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let (replies, confirmed) = connection.run_all_then(calls, Some(&self.wait)).await?;
        let confirmed: u32 = redis::from_redis_value(confirmed.unwrap_or_else(|| Err(too_few()))?)?;
        if confirmed < self.replicas { Err(too_few()) } else { Ok(replies) }
    }
}

fn too_few() -> RedisError {
    io_error(io::ErrorKind::TimedOut, "too few replicas have confirmed it")
}

/// All replies, or the first error.
pub(crate) fn collect(
    doing: &'static str,
    replies: RedisResult<Vec<RedisResult<Value>>>,
) -> Result<Vec<Value>, Error> {
    let replies = replies.and_then(|replies| replies.into_iter().collect());
    replies.map_err(|cause| error(ENGINE, doing, cause))
}
