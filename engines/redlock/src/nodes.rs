//! The servers: one background connection to each, used all at once.
//! Only RedLock has several servers that know nothing of each other.

use crate::ENGINE;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockkeeper_core::Error;
use lockkeeper_core::engine::{BoxFuture, Connections, background};
use lockkeeper_redis::parts::{Call, ConnectOptions, Connection, Server, Subscribed, Subscription, error};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Where a node remembers that it has not forgotten anything since we first saw it.
const MARK: &str = "lockkeeper:redlock";
/// The least time in which a connection can be expected to open.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// The servers of one RedLock.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Subscribed>,
    limit: Duration,
}

/// The nodes' replies, each with the node's number, in the order in which they come. The requests run on the background
/// runtime: when this is dropped they are sent all the same, whatever becomes of the caller's runtime.
pub(crate) struct Replies<T>(FuturesUnordered<JoinHandle<(usize, RedisResult<T>)>>);

impl<T> Replies<T> {
    /// The next reply; `None` when all have replied.
    pub(crate) async fn next(&mut self) -> Option<(usize, RedisResult<T>)> {
        loop {
            match self.0.next().await? {
                Ok(reply) => return Some(reply),
                Err(_) => continue, // the background runtime does not end before the process does
            }
        }
    }
}

impl Nodes {
    /// Connects to the servers, and waits until a majority is reached.
    pub(crate) async fn open(
        servers: Vec<Server>,
        options: &ConnectOptions,
        limit: Duration,
        restart_delay: Duration,
        subscription: &Arc<Subscription>,
        reconnected: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let connect = |server: Server| {
            let (options, subscription) = (options.clone(), Arc::clone(subscription));
            let connections = Connections::new(move || {
                let (server, options) = (server.clone(), options.clone());
                let subscription = Arc::clone(&subscription);
                async move {
                    let opened = open(&server, &options, limit, restart_delay, subscription);
                    let opened = tokio::time::timeout(limit.max(LEAST_TIMEOUT), opened).await;
                    opened
                        .unwrap_or_else(|_| Err(no_reply()))
                        .map_err(|cause| error(ENGINE, "connect", cause))
                }
            });
            Subscribed::start(Arc::new(connections), reconnected.clone())
        };
        let nodes = Self { nodes: servers.into_iter().map(connect).collect(), limit };
        nodes.wait_for_a_majority(restart_delay).await?;
        Ok(nodes)
    }

    async fn wait_for_a_majority(&self, restart_delay: Duration) -> Result<(), Error> {
        let timeout = self.limit.max(Duration::from_secs(2)) + restart_delay + Duration::from_secs(1);
        let majority = async {
            while self.connected() < crate::ballot::quorum(self.nodes.len()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(timeout, majority).await.map_err(|_| {
            let text = format!("only {} of {} servers reply", self.connected(), self.nodes.len());
            Error::temporary(ENGINE, "reach a majority", text)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn connected(&self) -> usize {
        self.connections().count()
    }

    /// The connections that are open now.
    pub(crate) fn connections(&self) -> impl Iterator<Item = Arc<Connection>> {
        self.nodes.iter().filter_map(Subscribed::current)
    }

    /// Sends a call to these nodes, all at once. One that is not connected counts as silent at once.
    pub(crate) fn request(
        &self,
        nodes: impl Iterator<Item = usize>,
        call: impl Fn() -> Call,
    ) -> Replies<Value> {
        self.request_each(nodes, |connection| {
            let call = call();
            Box::pin(async move { connection.run(&call).await })
        })
    }

    /// Sends several calls in one pipeline to every node.
    pub(crate) fn request_all(&self, calls: impl Fn() -> Vec<Call>) -> Replies<Vec<RedisResult<Value>>> {
        self.request_each(0..self.nodes.len(), |connection| {
            let calls = calls();
            Box::pin(async move { connection.run_all(&calls).await })
        })
    }

    fn request_each<T: Send + 'static>(
        &self,
        nodes: impl Iterator<Item = usize>,
        request: impl Fn(Arc<Connection>) -> BoxFuture<'static, RedisResult<T>>,
    ) -> Replies<T> {
        let requests = nodes.map(|node| {
            let request = self.nodes.get(node).and_then(Subscribed::current).map(&request);
            background::handle().spawn(async move {
                let Some(request) = request else { return (node, Err(no_reply())) };
                (node, request.await)
            })
        });
        Replies(requests.collect())
    }

    pub(crate) fn close(&self) {
        self.nodes.iter().for_each(Subscribed::close);
    }
}

fn no_reply() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "the server does not reply").into()
}

async fn open(
    server: &Server,
    options: &ConnectOptions,
    limit: Duration,
    restart_delay: Duration,
    subscription: Arc<Subscription>,
) -> RedisResult<Connection> {
    let connection = Connection::open(server, options, limit, Some(subscription)).await?;
    check_memory(&connection, restart_delay).await?;
    Ok(connection)
}

/// A node that has restarted without its data has forgotten who is inside, and would let in a second claim. Such a
/// node has lost our mark; it is not used before everything it could have forgotten has expired.
async fn check_memory(connection: &Connection, restart_delay: Duration) -> RedisResult<()> {
    if restart_delay.is_zero() || connection.query(redis::cmd("EXISTS").arg(MARK)).await? {
        return Ok(());
    }
    if up_for(connection).await? < restart_delay + Duration::from_secs(1) {
        return Err(RedisError::from((
            ErrorKind::Io,
            "this server has started without its data; it is not used until every lock it may have forgotten \
             has expired",
        )));
    }
    connection.query(redis::cmd("SET").arg(MARK).arg("1")).await
}

/// How long the server has been running, in whole seconds.
async fn up_for(connection: &Connection) -> RedisResult<Duration> {
    let info: String = connection.query(redis::cmd("INFO").arg("server")).await?;
    let seconds = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    Ok(Duration::from_secs(seconds.and_then(|text| text.trim().parse().ok()).unwrap_or(0)))
}
