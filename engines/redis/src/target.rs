//! Which server a link leads to: a fixed one, the master that sentinels name, or any of a cluster.

use crate::config::Greeting;
use crate::link::io_error;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use lockkeeper_core::address::Host;
use redis::{ErrorKind, RedisError, RedisResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A server's name and port.
pub type Spot = (String, u16);

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Which server a link leads to.
#[derive(Debug, Clone)]
pub enum Target {
    /// This one, and it must be a master.
    Fixed(Spot),
    /// Whichever answers first in this order; only to listen.
    AnyOf(Vec<Spot>, Greeting),
    /// The master that the sentinels name.
    Sentinels(Arc<Sentinels>),
}

/// The default port given, where a host has none.
pub fn spot(host: &Host) -> Spot {
    (host.name.clone(), host.port.unwrap_or(PORT))
}

impl Target {
    pub(crate) async fn find(&self) -> RedisResult<Spot> {
        match self {
            Self::Fixed(spot) => Ok(spot.clone()),
            Self::AnyOf(spots, greeting) => any_of(spots, greeting).await,
            Self::Sentinels(sentinels) => sentinels.master().await,
        }
    }

    pub(crate) fn must_be_master(&self) -> bool {
        !matches!(self, Self::AnyOf(..))
    }

    /// The news of the sentinels from now on.
    pub(crate) fn switches(&self) -> Switches {
        Switches(match self {
            Self::Sentinels(sentinels) => {
                let mut switches = sentinels.switches.clone();
                switches.mark_unchanged();
                Some(switches)
            }
            _ => None,
        })
    }
}

/// The news of the sentinels, if there are any.
pub(crate) struct Switches(Option<watch::Receiver<u64>>);

impl Switches {
    /// Resolves when a sentinel says that the master has changed.
    pub(crate) async fn next(&mut self) {
        if let Some(switches) = &mut self.0
            && switches.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

async fn any_of(spots: &[Spot], greeting: &Greeting) -> RedisResult<Spot> {
    let mut last = io_error(std::io::ErrorKind::NotFound, "no server is known");
    for (host, port) in spots {
        match greeting.client(host, *port)?.get_multiplexed_async_connection().await {
            Ok(_) => return Ok((host.clone(), *port)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The sentinels that watch one master, and our subscriptions with them.
#[derive(Debug)]
pub struct Sentinels {
    spots: Vec<Spot>,
    greeting: Greeting,
    name: String,
    time_limit: Duration,
    switches: watch::Receiver<u64>,
    _watching: JoinSet<()>,
}

impl Sentinels {
    /// Starts to listen to every sentinel for a change of the master, on this runtime.
    pub(crate) fn watch(
        runtime: &Handle,
        hosts: &[Host],
        greeting: Greeting,
        name: &str,
        time_limit: Duration,
    ) -> Self {
        let spots: Vec<Spot> =
            hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(SENTINEL_PORT))).collect();
        let (switched, switches) = watch::channel(0);
        let switched = Arc::new(switched);
        let mut watching = JoinSet::new();
        for (host, port) in spots.clone() {
            let (greeting, name, switched) = (greeting.clone(), name.to_owned(), Arc::clone(&switched));
            let task = async move {
                loop {
                    let outcome = listen(&greeting, &host, port, &name, &switched).await;
                    tracing::debug!(host, port, ?outcome, "the subscription with a sentinel ended");
                    tokio::time::sleep(time_limit.min(Duration::from_secs(1))).await;
                }
            };
            watching.spawn_on(task, runtime);
        }
        Self { spots, greeting, name: name.into(), time_limit, switches, _watching: watching }
    }

    /// The master by the word of most of the sentinels that were named, so that one that is cut off with an old
    /// master does not lead us there.
    async fn master(&self) -> RedisResult<Spot> {
        let asked = self.spots.iter().map(|(host, port)| async move {
            let answer = tokio::time::timeout(self.time_limit, self.ask(host, *port)).await;
            answer.ok().and_then(Result::ok).flatten()
        });
        let answers: Vec<Spot> = join_all(asked).await.into_iter().flatten().collect();
        let named_by_most = |spot: &&Spot| {
            2 * answers.iter().filter(|answer| answer == spot).count() > self.spots.len()
        };
        answers.iter().find(named_by_most).cloned().ok_or_else(|| {
            RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "most of the sentinels do not agree on a master of that name",
                self.name.clone(),
            ))
        })
    }

    async fn ask(&self, host: &str, port: u16) -> RedisResult<Option<Spot>> {
        let client = self.greeting.client(host, port)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name).query_async(&mut connection).await
    }
}

/// Listens to one sentinel until that fails.
async fn listen(
    greeting: &Greeting,
    host: &str,
    port: u16,
    name: &str,
    switched: &watch::Sender<u64>,
) -> RedisResult<()> {
    let mut subscription = greeting.client(host, port)?.get_async_pubsub().await?;
    subscription.subscribe("+switch-master").await?;
    let mut messages = subscription.on_message();
    while let Some(message) = messages.next().await {
        let text: String = message.get_payload()?;
        if text.split(' ').next() == Some(name) {
            switched.send_modify(|count| *count += 1);
        }
    }
    Ok(())
}
