//! The servers: one background connection to each, used all at once.
//! Only RedLock has several servers that know nothing of each other.

use crate::ENGINE;
use crate::scripts;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockkeeper_core::Error;
use lockkeeper_core::engine::{Batch, Batcher, Clock, Connections, background};
use lockkeeper_redis::parts::{
    Call, ConnectOptions, Connection, Server, Subscribed, Subscription, error, text,
};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Where a node remembers that it has not forgotten anything since we first saw it.
const MARK: &str = "lockkeeper:redlock";
/// The least time in which a connection can be expected to open.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// How many steps one call takes: enough to spare a server most of the calls, few enough not to hold it up.
const STEPS_PER_CALL: usize = 64;
/// How many such calls are under way to one node.
const CALLS_AT_ONCE: usize = 2;

/// The servers of one RedLock.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    limit: Duration,
}

#[derive(Debug)]
struct Node {
    subscribed: Arc<Subscribed>,
    claims: Arc<Batcher<Claims>>,
}

/// What waits to be sent to one node: one call of a script takes and frees many locks.
struct Claims(Arc<Subscribed>);

/// How one claim takes or frees its lock, as the script 'claims' has it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) keys: [String; 4],
    pub(crate) arguments: [String; 6],
}

impl Batch for Claims {
    type Request = Arc<Step>;
    type Reply = RedisResult<Value>;

    fn at_most(&self) -> usize {
        STEPS_PER_CALL
    }

    async fn send(&self, steps: &[Arc<Step>]) -> Vec<RedisResult<Value>> {
        let keys: Vec<&str> = steps.iter().flat_map(|step| &step.keys).map(String::as_str).collect();
        let arguments = steps.iter().flat_map(|step| &step.arguments);
        let call = arguments.fold(scripts::CLAIMS.call(&keys), |call, argument| call.arg(argument));
        let reply = match self.0.current() {
            Some(connection) => connection.run(&call).await,
            None => Err(no_reply()),
        };
        match reply {
            Ok(Value::Array(replies)) if replies.len() == steps.len() => {
                replies.into_iter().map(one_reply).collect()
            }
            Ok(reply) => steps.iter().map(|_| Err(unexpected(format!("{reply:?}")))).collect(),
            Err(error) => steps.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// The script replies with a text where a step has failed.
fn one_reply(reply: Value) -> RedisResult<Value> {
    match text(&reply) {
        Some(error) => Err(unexpected(error)),
        None => Ok(reply),
    }
}

fn unexpected(reply: String) -> RedisError {
    (ErrorKind::UnexpectedReturnType, "the script has failed", reply).into()
}

/// The nodes' replies, each with the node's number, in the order in which they come. The requests run on the background
/// runtime: when this is dropped they are sent all the same, whatever becomes of the caller's runtime.
pub(crate) struct Replies<T>(UnboundedReceiver<(usize, RedisResult<T>)>);

impl<T> Replies<T> {
    /// The next reply; `None` when all have replied.
    pub(crate) async fn next(&mut self) -> Option<(usize, RedisResult<T>)> {
        self.0.recv().await
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
                    let opened = Clock::Boot.timeout(limit.max(LEAST_TIMEOUT), opened).await;
                    opened
                        .unwrap_or_else(|_| Err(no_reply()))
                        .map_err(|cause| error(ENGINE, "connect", cause))
                }
            });
            let subscribed = Arc::new(Subscribed::start(Arc::new(connections), reconnected.clone()));
            let claims = Claims(Arc::clone(&subscribed));
            let claims = Arc::new(Batcher::new(claims, background::handle().clone(), CALLS_AT_ONCE));
            Node { subscribed, claims }
        };
        let nodes = Self { nodes: servers.into_iter().map(connect).collect(), limit };
        nodes.wait_for_a_majority(restart_delay).await?;
        Ok(nodes)
    }

    async fn wait_for_a_majority(&self, restart_delay: Duration) -> Result<(), Error> {
        let timeout = self.limit.max(Duration::from_secs(2)) + restart_delay + Duration::from_secs(1);
        let majority = async {
            while self.connected() < crate::ballot::quorum(self.nodes.len()) {
                Clock::Boot.sleep(Duration::from_millis(5)).await;
            }
        };
        Clock::Boot.timeout(timeout, majority).await.map_err(|_| {
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
        self.nodes.iter().filter_map(|node| node.subscribed.current())
    }

    /// Sends a call to these nodes, all at once. One that is not connected counts as silent at once.
    pub(crate) fn request(&self, nodes: impl Iterator<Item = usize>, call: Call) -> Replies<Value> {
        let call = Arc::new(call);
        self.request_each(nodes, |node| {
            let (connection, call) = (node.subscribed.current(), Arc::clone(&call));
            async move { connection.ok_or_else(no_reply)?.run(&call).await }
        })
    }

    /// Takes or frees a lock at every node.
    pub(crate) fn step(&self, step: Step) -> Replies<Value> {
        let step = Arc::new(step);
        self.request_each(0..self.nodes.len(), |node| {
            let (claims, step) = (Arc::clone(&node.claims), Arc::clone(&step));
            async move { claims.request(step).await.unwrap_or_else(|| Err(no_reply())) }
        })
    }

    /// Sends several calls in one pipeline to every node.
    pub(crate) fn request_all(&self, calls: Vec<Call>) -> Replies<Vec<RedisResult<Value>>> {
        let calls = Arc::new(calls);
        self.request_each(0..self.nodes.len(), |node| {
            let (connection, calls) = (node.subscribed.current(), Arc::clone(&calls));
            async move { connection.ok_or_else(no_reply)?.run_all(&calls).await }
        })
    }

    /// One task on the background runtime for all nodes: a task for each costs more than the request.
    fn request_each<T: Send + 'static, F: Future<Output = RedisResult<T>> + Send + 'static>(
        &self,
        nodes: impl Iterator<Item = usize>,
        request: impl Fn(&Node) -> F,
    ) -> Replies<T> {
        let (sender, replies) = unbounded_channel();
        let request_one = |number: usize| {
            let reply = request(&self.nodes[number]);
            async move { (number, reply.await) }
        };
        let mut requests: FuturesUnordered<_> = nodes.map(request_one).collect();
        background::handle().spawn(async move {
            while let Some(reply) = requests.next().await {
                let _ = sender.send(reply);
            }
        });
        Replies(replies)
    }

    pub(crate) fn close(&self) {
        self.nodes.iter().for_each(|node| node.subscribed.close());
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
