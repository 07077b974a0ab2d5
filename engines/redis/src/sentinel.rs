//! The sentinels of Redis: which server they call the master, and when that changes. Only Redis has them.

use crate::config::ConnectOptions;
use crate::connection::{Server, in_time, multiplexed, open_stream};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use lockkeeper_core::engine::background;
use lockkeeper_core::engine::{Clock, Host};
use redis::aio::PubSub;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

const PORT: u16 = 26379;

/// The sentinels that watch one master, and our subscriptions with them.
#[derive(Debug)]
pub(crate) struct Sentinels {
    inner: Arc<Inner>,
    _subscriptions: JoinSet<()>,
}

#[derive(Debug)]
struct Inner {
    servers: Vec<Server>,
    options: ConnectOptions,
    name: String,
    limit: Duration,
    master: watch::Sender<Option<Server>>,
}

impl Sentinels {
    /// Subscribes with every sentinel to changes of the master, on the background runtime.
    pub(crate) fn new(hosts: &[Host], options: ConnectOptions, name: &str, limit: Duration) -> Self {
        let servers: Vec<Server> =
            hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(PORT))).collect();
        let master = watch::Sender::new(None);
        let inner = Arc::new(Inner { servers, options, name: name.to_owned(), limit, master });
        let mut subscriptions = JoinSet::new();
        for server in inner.servers.clone() {
            subscriptions.spawn_on(watch_sentinel(Arc::clone(&inner), server), background::handle());
        }
        Self { inner, _subscriptions: subscriptions }
    }

    /// The master that most of the sentinels agree on.
    pub(crate) async fn master(&self) -> RedisResult<Server> {
        self.inner.find_master().await
    }

    /// Says when the master has changed.
    pub(crate) fn watch(&self) -> MasterWatch {
        MasterWatch(self.inner.master.subscribe())
    }
}

/// The master, as last named by most of the sentinels.
#[derive(Debug)]
pub(crate) struct MasterWatch(watch::Receiver<Option<Server>>);

impl MasterWatch {
    /// Whether another server than this is the master now.
    pub(crate) fn is_elsewhere(&self, server: &Server) -> bool {
        self.0.borrow().as_ref().is_some_and(|master| master != server)
    }

    /// Resolves when another server than this is the master.
    pub(crate) async fn has_moved_from(&self, server: &Server) {
        let mut master = self.0.clone();
        if master.wait_for(|master| master.as_ref().is_some_and(|master| master != server)).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Inner {
    /// Takes the word of most of the sentinels that were named, so that one that is cut off with an old master does not
    /// lead us there.
    async fn find_master(&self) -> RedisResult<Server> {
        let requests = self.servers.iter().map(|server| async move {
            let reply = Clock::Boot.timeout(self.limit, self.request_master(server)).await;
            reply.ok().and_then(Result::ok).flatten()
        });
        let replies: Vec<Server> = join_all(requests).await.into_iter().flatten().collect();
        let is_named_by_most = |server: &&Server| {
            2 * replies.iter().filter(|reply| reply == server).count() > self.servers.len()
        };
        let master = replies.iter().find(is_named_by_most).cloned().ok_or_else(|| {
            RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "most of the sentinels do not agree on a master of that name",
                self.name.clone(),
            ))
        })?;
        self.master.send_if_modified(|last| last.replace(master.clone()).as_ref() != Some(&master));
        Ok(master)
    }

    async fn request_master(&self, server: &Server) -> RedisResult<Option<Server>> {
        let (settings, config) = (self.options.settings().await?, AsyncConnectionConfig::new());
        let (mut connection, _task) = multiplexed(server, &self.options, &settings, config).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        command.query_async(&mut connection).await
    }

    /// Listens to one sentinel until that fails. Every sentinel reports a change once, and the first may be the only one
    /// who knows it yet, so each report is a reason to look.
    async fn listen(&self, server: &Server) -> RedisResult<()> {
        let settings = self.options.settings().await?;
        let subscribing = async { PubSub::new(&settings, open_stream(server, &self.options).await?).await };
        let mut subscription = in_time(self.limit, subscribing).await?;
        subscription.subscribe("+switch-master").await?;
        // A change may have been missed while there was no subscription.
        let _ = self.find_master().await;
        let mut messages = subscription.on_message();
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload()?;
            if text.split(' ').next() == Some(&*self.name)
                && let Err(error) = self.find_master().await
            {
                tracing::debug!(%error, "the sentinels do not agree on the new master yet");
            }
        }
        Ok(())
    }
}

async fn watch_sentinel(sentinels: Arc<Inner>, server: Server) {
    loop {
        let outcome = sentinels.listen(&server).await;
        tracing::debug!(?server, ?outcome, "subscription with a sentinel lost; reconnecting");
        Clock::Boot.sleep(sentinels.limit.min(Duration::from_secs(1))).await;
    }
}
