//! The servers: one link to each, asked all at once.

use crate::ENGINE;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockkeeper_core::{BoxFuture, Error, background};
use lockkeeper_redis::parts::{Check, Dial, Ears, Greeting, Link, Request, Spot, Target};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Where a node remembers that it has not forgotten anything since we first saw it.
const MARK: &str = "lockkeeper:redlock";

/// The servers of one RedLock.
#[derive(Debug)]
pub(crate) struct Nodes {
    links: Vec<Link>,
    time_limit: Duration,
}

/// The nodes' answers, each with the node's number, in the order in which they come. They are asked on the house's
/// thread: dropped, the questions go on their way all the same, whatever becomes of the caller's runtime.
pub(crate) struct Answers<T>(FuturesUnordered<JoinHandle<(usize, RedisResult<T>)>>);

impl<T> Answers<T> {
    /// The next answer; `None` when all have answered.
    pub(crate) async fn next(&mut self) -> Option<(usize, RedisResult<T>)> {
        loop {
            match self.0.next().await? {
                Ok(answer) => return Some(answer),
                Err(_) => continue, // the house does not end before the process does
            }
        }
    }
}

impl Nodes {
    /// Starts the links, and waits until a majority answers.
    pub(crate) async fn open(
        spots: Vec<Spot>,
        greeting: &Greeting,
        time_limit: Duration,
        restart_delay: Duration,
        ears: &Arc<Ears>,
    ) -> Result<Self, Error> {
        let check = check(restart_delay);
        let links: Vec<Link> = spots
            .into_iter()
            .map(|spot| {
                let dial = Dial {
                    target: Target::Fixed(spot),
                    greeting: greeting.clone(),
                    time_limit,
                    ears: Some(Arc::clone(ears)),
                    check: Some(check.clone()),
                };
                Link::start_unconnected(background::handle(), dial)
            })
            .collect();
        let nodes = Self { links, time_limit };
        nodes.wait_for_a_majority(restart_delay).await?;
        Ok(nodes)
    }

    async fn wait_for_a_majority(&self, restart_delay: Duration) -> Result<(), Error> {
        let patience = self.time_limit.max(Duration::from_secs(2)) + restart_delay + Duration::from_secs(1);
        let majority = async {
            while self.up() < crate::ballot::quorum(self.links.len()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(patience, majority).await.map_err(|_| {
            let text = format!("only {} of {} servers answer", self.up(), self.links.len());
            Error::temporary(ENGINE, "reach a majority", text)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    fn up(&self) -> usize {
        self.links.iter().filter(|link| link.is_up()).count()
    }

    pub(crate) fn link(&self, node: usize) -> Option<&Link> {
        self.links.get(node)
    }

    /// Asks these nodes, all at once. One that is down has answered at once: with nothing.
    pub(crate) fn ask(
        &self,
        nodes: impl Iterator<Item = usize>,
        request: impl Fn() -> Request,
    ) -> Answers<Value> {
        self.ask_each(nodes, |link| {
            let request = request();
            Box::pin(async move { link.run(&request).await })
        })
    }

    /// Asks every node for several things in one pipeline.
    pub(crate) fn ask_for_all(
        &self,
        requests: impl Fn() -> Vec<Request>,
    ) -> Answers<Vec<RedisResult<Value>>> {
        self.ask_each(0..self.links.len(), |link| {
            let requests = requests();
            Box::pin(async move { link.run_all(&requests).await })
        })
    }

    fn ask_each<T: Send + 'static>(
        &self,
        nodes: impl Iterator<Item = usize>,
        question: impl Fn(Link) -> BoxFuture<'static, RedisResult<T>>,
    ) -> Answers<T> {
        let limit = self.time_limit;
        let questions = nodes.map(|node| {
            let asked = self.links.get(node).filter(|link| link.is_up()).map(|link| question(link.clone()));
            background::handle().spawn(async move {
                let Some(asked) = asked else { return (node, Err(down())) };
                let answer = tokio::time::timeout(limit, asked).await;
                (node, answer.unwrap_or_else(|_| Err(down())))
            })
        });
        Answers(questions.collect())
    }

    pub(crate) fn close(&self) {
        self.links.iter().for_each(Link::close);
    }
}

fn down() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::NotConnected, "the server does not answer").into()
}

/// A node that has restarted without its data has forgotten who is inside, and would let in a second one. Such a
/// node has lost our mark; it is not used before everything it could have forgotten has expired.
fn check(restart_delay: Duration) -> Check {
    Check(Arc::new(move |mut connection| {
        Box::pin(async move {
            if restart_delay.is_zero() || remembers(&mut connection).await? {
                return Ok(());
            }
            if up_for(&mut connection).await? < restart_delay + Duration::from_secs(1) {
                return Err(RedisError::from((
                    ErrorKind::Io,
                    "this server has started without its data; it is not used until every lock it may have forgotten \
                     has expired",
                )));
            }
            redis::cmd("SET").arg(MARK).arg("1").query_async(&mut connection).await
        })
    }))
}

async fn remembers(connection: &mut MultiplexedConnection) -> RedisResult<bool> {
    redis::cmd("EXISTS").arg(MARK).query_async(connection).await
}

/// How long the server has been running, in whole seconds.
async fn up_for(connection: &mut MultiplexedConnection) -> RedisResult<Duration> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let seconds = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    Ok(Duration::from_secs(seconds.and_then(|text| text.trim().parse().ok()).unwrap_or(0)))
}
