//! Waits until replicas have a claim, so that fewer failovers lose it.

use crate::lane::Lane;
use crate::link::{Link, io_error};
use crate::lua::Request;
use redis::{Cmd, RedisError, RedisResult, Value};
use std::time::Duration;

/// A connection on which every script is followed by WAIT. WAIT blocks its connection and speaks of the writes of
/// that connection only, so it needs one of its own.
#[derive(Debug)]
pub(crate) struct Durable {
    link: Link,
    replicas: u32,
    patience: Duration,
}

impl Durable {
    /// The replicas get half of a request's time limit, so that WAIT ends before the request does.
    pub(crate) fn new(link: Link, replicas: u32, time_limit: Duration) -> Self {
        Self { link, replicas, patience: time_limit / 2 }
    }

    /// Runs a script; fails if the replicas do not have what it wrote. What it did stays done: the caller
    /// tries again, or leaves.
    pub(crate) async fn run(&self, request: Request) -> RedisResult<Value> {
        let mut replies = self.wait_after(&self.link, vec![request]).await?;
        replies.pop().unwrap_or_else(|| Err(too_few()))
    }

    /// Renews on that lane; it has only this one WAIT per round to bear.
    pub(crate) async fn run_all(
        &self,
        lane: &Lane,
        requests: Vec<Request>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        match lane {
            Lane::One(link) => self.wait_after(link, requests).await,
            Lane::Cluster(cluster) => cluster.run_all(requests).await,
        }
    }

    async fn wait_after(&self, link: &Link, requests: Vec<Request>) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut wait = Cmd::new();
        let patience_ms = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX).max(1);
        wait.arg("WAIT").arg(self.replicas).arg(patience_ms);
        let (replies, confirmed) = link.run_all_and(&requests, &wait).await?;
        let confirmed: u32 = redis::from_redis_value(confirmed?)?;
        if confirmed < self.replicas { Err(too_few()) } else { Ok(replies) }
    }
}

fn too_few() -> RedisError {
    io_error(std::io::ErrorKind::TimedOut, "too few replicas have confirmed it")
}
