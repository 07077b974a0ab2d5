//! The servers: connections to each, used all at once.
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

/// Where a node remembers that it has not forgotten anything since we first saw it.
const MARK: &str = "lockkeeper:redlock";
/// The least time in which a connection can be expected to open.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// The servers of one RedLock.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    limit: Duration,
}

/// One server. A request goes over the connection of the runtime that makes it; the background's also listens.
#[derive(Debug, Clone)]
struct Node {
    connections: Arc<Connections<Connection>>,
    background: Arc<Subscribed>,
}

/// The nodes' replies, each with the node's number, in the order in which they come. When this is dropped, the requests
/// go on by themselves: each node gets its own, and one that does not reply is noticed.
pub(crate) struct Replies<T: Send + 'static>(FuturesUnordered<Reply<T>>);

type Reply<T> = BoxFuture<'static, (usize, RedisResult<T>)>;

impl<T: Send + 'static> Replies<T> {
    /// The next reply; `None` when all have replied.
    pub(crate) async fn next(&mut self) -> Option<(usize, RedisResult<T>)> {
        self.0.next().await
    }
}

impl<T: Send + 'static> Drop for Replies<T> {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let mut rest = std::mem::take(&mut self.0);
        let runtime = background::caller().unwrap_or_else(|| background::handle().clone());
        runtime.spawn(async move { while rest.next().await.is_some() {} });
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
            let connections = Arc::new(connections);
            let background = Subscribed::start(Arc::clone(&connections), reconnected.clone());
            let background = Arc::new(background);
            Node { connections, background }
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
        self.nodes.iter().filter_map(|node| node.background.current())
    }

    /// Sends a call to these nodes, all at once. One that is not connected counts as silent at once.
    pub(crate) fn request(&self, nodes: impl Iterator<Item = usize>, call: Call) -> Replies<Value> {
        let call = Arc::new(call);
        let request = |number: usize| -> Reply<Value> {
            let (node, call) = (self.nodes.get(number).cloned(), Arc::clone(&call));
            Box::pin(async move {
                match connection(node).await {
                    Ok(connection) => (number, connection.run(&call).await),
                    Err(error) => (number, Err(error)),
                }
            })
        };
        Replies(nodes.map(request).collect())
    }

    /// Sends several calls in one pipeline to every node.
    pub(crate) fn request_all(&self, calls: Vec<Call>) -> Replies<Vec<RedisResult<Value>>> {
        let calls = Arc::new(calls);
        let request = |(number, node): (usize, &Node)| -> Reply<Vec<RedisResult<Value>>> {
            let (node, calls) = (Some(node.clone()), Arc::clone(&calls));
            Box::pin(async move {
                match connection(node).await {
                    Ok(connection) => (number, connection.run_all(&calls).await),
                    Err(error) => (number, Err(error)),
                }
            })
        };
        Replies(self.nodes.iter().enumerate().map(request).collect())
    }

    pub(crate) fn close(&self) {
        for node in &self.nodes {
            node.background.close();
            node.connections.close();
        }
    }
}

/// The connection of the runtime that polls this. A node whose background connection is lost is silent: a new one to it
/// would use up the time of the request.
async fn connection(node: Option<Node>) -> RedisResult<Arc<Connection>> {
    let Some(node) = node.filter(|node| node.background.current().is_some()) else { return Err(no_reply()) };
    let connection = node.connections.foreground().await;
    connection.map_err(|error| RedisError::from((ErrorKind::Io, "no connection", error.to_string())))
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
    let subscription = background::caller().is_none().then_some(subscription);
    let connection = Connection::open(server, options, limit, subscription).await?;
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
