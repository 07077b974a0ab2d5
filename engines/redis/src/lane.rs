//! The ways to the servers: one for the house's thread, and a short cut for the caller's runtime.

use crate::cluster::Cluster;
use crate::config::{Config, Topology};
use crate::failure::may_pass;
use crate::link::{Dial, Ears, Link};
use crate::lua::Request;
use crate::target::{Sentinels, Target, spot};
use crate::together::{Ask, Together};
use lockkeeper_core::background;
use redis::{Cmd, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Id};

/// One way to the servers. What is sent down one lane arrives in that order, lock by lock.
#[derive(Debug, Clone)]
pub(crate) enum Lane {
    One(Link),
    Cluster(Cluster),
}

impl Lane {
    pub(crate) async fn run(&self, request: &Request) -> RedisResult<Value> {
        match self {
            Self::One(link) => link.run(request).await,
            Self::Cluster(cluster) => Box::pin(cluster.run(request)).await,
        }
    }

    /// The number of the connection, where there is only one.
    pub(crate) fn generation(&self) -> Option<u64> {
        match self {
            Self::One(link) => link.generation(),
            Self::Cluster(_) => None,
        }
    }

    /// Runs scripts in one pipeline per server.
    pub(crate) async fn run_all(&self, requests: Vec<Request>) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            Self::One(link) => link.run_all(&requests).await,
            Self::Cluster(cluster) => cluster.run_all(requests).await,
        }
    }

    /// All keys that match the pattern.
    pub(crate) async fn scan(&self, pattern: &str, kind: &str) -> RedisResult<Vec<String>> {
        match self {
            Self::One(link) => scan(link, pattern, kind).await,
            Self::Cluster(cluster) => cluster.scan(pattern, kind).await,
        }
    }

    fn close(&self) {
        match self {
            Self::One(link) => link.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    fn is_dead(&self) -> bool {
        match self {
            Self::One(link) => link.is_dead(),
            Self::Cluster(cluster) => cluster.is_dead(),
        }
    }
}

/// All keys of one server that match the pattern and are of that type, once each.
///
/// Cancel safety: dropping the future has no effect.
///
/// # Errors
/// What the server or the connection says.
pub async fn scan(link: &Link, pattern: &str, kind: &str) -> RedisResult<Vec<String>> {
    let (mut keys, mut cursor) = (Vec::new(), 0u64);
    loop {
        let mut command = Cmd::new();
        command
            .arg("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(1000)
            .arg("TYPE")
            .arg(kind);
        let (next, mut found): (u64, Vec<String>) = redis::from_redis_value(link.command(&command).await?)?;
        keys.append(&mut found);
        if next == 0 {
            break;
        }
        cursor = next;
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// The lanes of one engine. Renewals and messages live on the house's thread, so that a blocked executor does not
/// lose a lock. A request from the runtime that connected takes a lane of that runtime's own: the way over
/// another thread and back costs more than Redis does.
#[derive(Debug)]
pub(crate) struct Lanes {
    house: Lane,
    near: Option<(Id, Lane)>,
}

impl Lanes {
    /// Opens the lanes, and one more if replicas are to be waited for: WAIT would hold up everybody else.
    pub(crate) async fn open(
        config: &Config,
        time_limit: Duration,
        ears: Arc<Ears>,
    ) -> RedisResult<(Self, Option<Lane>)> {
        let plan = Plan::new(config, time_limit, ears);
        let house = plan.lane(background::handle(), true).await?;
        let near = match background::caller() {
            Some(here) => Some((here.id(), plan.lane(&here, false).await?)),
            None => None,
        };
        let spare =
            if config.wait_replicas > 0 { Some(plan.lane(background::handle(), false).await?) } else { None };
        Ok((Self { house, near }, spare))
    }

    /// Ends the connections; requests fail from now on.
    pub(crate) fn close(&self) {
        self.house.close();
        if let Some((_, lane)) = &self.near {
            lane.close();
        }
    }

    /// The lane of the house.
    pub(crate) fn house(&self) -> &Lane {
        &self.house
    }

    /// The lane of the runtime that connected, if that is not the house's.
    pub(crate) fn near(&self) -> Option<&Lane> {
        self.near.as_ref().map(|(_, lane)| lane)
    }

    /// The best lane from here. While we run on the near lane's runtime, somebody drives it.
    pub(crate) fn nearest(&self) -> &Lane {
        match &self.near {
            Some((id, lane)) if Handle::try_current().is_ok_and(|here| here.id() == *id) => lane,
            _ => &self.house,
        }
    }

    /// The lane another request went down, as long as it exists: so a leave cannot overtake its join.
    pub(crate) fn same_as(&self, was_near: bool) -> &Lane {
        match &self.near {
            Some((_, lane)) if was_near && !lane.is_dead() => lane,
            _ => &self.house,
        }
    }

    /// Runs a script that may run twice, down that lane; after a failure that may pass once more, over the house.
    /// Says whether the first run may have counted although nobody heard of it.
    pub(crate) async fn run_surely(&self, lane: &Lane, request: &Request) -> (RedisResult<Value>, bool) {
        match lane.run(request).await {
            Err(error) if may_pass(&error) => (self.house.run(request).await, true),
            outcome => (outcome, false),
        }
    }

    /// The same for what a task asks of one lock, alone or with others.
    pub(crate) async fn ask_surely<A: Ask>(
        &self,
        together: &Together<A>,
        lane: &Lane,
        ask: A,
    ) -> (RedisResult<Value>, bool) {
        match together.ask(self, lane, ask.clone()).await {
            Err(error) if may_pass(&error) => (self.house.run(&ask.alone()).await, true),
            outcome => (outcome, false),
        }
    }

    pub(crate) fn is_near(&self, lane: &Lane) -> bool {
        self.near.as_ref().is_some_and(|(_, near)| std::ptr::eq(near, lane))
    }
}

/// How lanes are made.
struct Plan<'a> {
    config: &'a Config,
    time_limit: Duration,
    ears: Arc<Ears>,
    sentinels: Option<Arc<Sentinels>>,
}

impl<'a> Plan<'a> {
    fn new(config: &'a Config, time_limit: Duration, ears: Arc<Ears>) -> Self {
        let sentinels = match &config.topology {
            Topology::Sentinel { sentinels, master } => Some(Arc::new(Sentinels::watch(
                background::handle(),
                sentinels,
                config.sentinel_greeting.clone(),
                master,
                time_limit,
            ))),
            _ => None,
        };
        Self { config, time_limit, ears, sentinels }
    }

    async fn lane(&self, runtime: &Handle, listens: bool) -> RedisResult<Lane> {
        let dial = |target| Dial {
            target,
            greeting: self.config.greeting.clone(),
            time_limit: self.time_limit,
            ears: listens.then(|| Arc::clone(&self.ears)),
            check: None,
        };
        match (&self.config.topology, &self.sentinels) {
            (_, Some(sentinels)) => {
                Ok(Lane::One(Link::start(runtime, dial(Target::Sentinels(Arc::clone(sentinels)))).await?))
            }
            (Topology::Single(host), _) => {
                Ok(Lane::One(Link::start(runtime, dial(Target::Fixed(spot(host)))).await?))
            }
            (Topology::Cluster(hosts) | Topology::Sentinel { sentinels: hosts, .. }, _) => {
                let seeds = hosts.iter().map(spot).collect();
                Ok(Lane::Cluster(Cluster::open(runtime, seeds, dial).await?))
            }
        }
    }
}
