//! A Redis Cluster: every lock lives in one slot, and so at one member. Only Redis has slots and redirections.

use crate::config::ENGINE;
use crate::connection::{Call, Connection, Server};
use crate::error::{error, io_error};
use crate::servers::{Opener, Target, collect};
use crate::wake::Subscription;
use crate::{keys, view};
use futures_util::future::{join_all, select_ok};
use lockkeeper_core::engine::{Clock, Connections, background};
use lockkeeper_core::{Error, Result};
use redis::{ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How many redirections one request follows.
const REDIRECTIONS: usize = 5;
/// The map is not read more often than this.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// The members of a cluster, connections to each, and the map of the slots.
#[derive(Debug)]
pub(crate) struct Cluster {
    members: Arc<Members>,
    /// Messages reach every member, so one connection subscribes, at the first master that can be reached.
    subscription: Arc<Connections<Connection>>,
    /// But those of a slot's channels reach the members that have the slot. The connections to them carry nothing else: when a
    /// slot moves, its member ends a subscription unasked, and the driver takes that for the next reply.
    by_slot: Mutex<HashMap<Server, Arc<Connections<Connection>>>>,
    receiver: Option<Arc<Subscription>>,
}

#[derive(Debug)]
struct Members {
    opener: Opener,
    map: Mutex<Map>,
    refreshed: tokio::sync::Mutex<Instant>,
}

#[derive(Debug, Default)]
struct Map {
    connections: HashMap<Server, Arc<Connections<Connection>>>,
    /// The last slot of each range, with its first slot and its master.
    ranges: BTreeMap<u16, (u16, Server)>,
}

impl Cluster {
    /// A cluster of which these members are known.
    pub(crate) fn new(seeds: Vec<Server>, mut opener: Opener) -> Self {
        let subscription = opener.subscription.take();
        let refreshed = tokio::sync::Mutex::new(Instant::now());
        let members = Arc::new(Members { opener, map: Mutex::default(), refreshed });
        for seed in seeds {
            members.connections(&seed);
        }
        let receiver = subscription.clone();
        let known = Arc::downgrade(&members);
        let subscription = Connections::new(move || {
            let (known, subscription) = (known.upgrade(), subscription.clone());
            async move {
                let members = known.ok_or_else(no_member)?;
                let mut last = no_member();
                for server in members.known() {
                    let target = Target::One(server);
                    let opener =
                        Opener { target, subscription: subscription.clone(), ..members.opener.clone() };
                    match opener.open().await {
                        Ok(connection) => return Ok(connection),
                        Err(cause) => last = opener.options.error(cause),
                    }
                }
                Err(last)
            }
        });
        Self { members, subscription: Arc::new(subscription), by_slot: Mutex::default(), receiver }
    }

    /// Subscribes to a channel at the member that has its slot; says over which connection.
    pub(crate) async fn subscribe(&self, doing: &'static str, channel: &str) -> Result<Arc<Connection>> {
        let server = self.members.master_of(keys::slot(channel))?;
        let connections = {
            let mut by_slot = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
            let connections = by_slot.entry(server.clone()).or_insert_with(|| {
                let (target, subscription) = (Target::One(server), self.receiver.clone());
                let opener = Opener { target, subscription, ..self.members.opener.clone() };
                Arc::new(opener.connections())
            });
            Arc::clone(connections)
        };
        let connection = connections.background().await?;
        let subscribed = connection.request(redis::cmd("SSUBSCRIBE").arg(channel)).await;
        if subscribed.as_ref().is_err_and(RedisError::is_cluster_error) {
            self.refresh().await;
        }
        subscribed.map_err(|cause| error(ENGINE, doing, cause))?;
        Ok(connection)
    }

    /// The connection that subscribes.
    pub(crate) fn subscription(&self) -> &Arc<Connections<Connection>> {
        &self.subscription
    }

    /// Reads the map of the slots.
    pub(crate) async fn read_map(&self) -> Result<()> {
        self.members.read_map().await
    }

    pub(crate) fn close(&self) {
        self.subscription.close();
        let by_slot = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        by_slot.values().for_each(|connections| connections.close());
        self.members.map().connections.values().for_each(|connections| connections.close());
    }

    pub(crate) async fn run(&self, doing: &'static str, call: &Call) -> Result<Value> {
        let mut reply = self.members.run(call).await;
        for _ in 0..REDIRECTIONS {
            let Ok(Err(cause)) = &reply else { break };
            reply = match cause.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    self.refresh().await;
                    self.members.run(call).await
                }
                ErrorKind::Server(ServerErrorKind::Ask) => self.members.run_asking(cause, call).await,
                _ => break,
            };
        }
        let reply = reply.and_then(|reply| reply.map_err(|cause| error(ENGINE, doing, cause)));
        if reply.as_ref().is_err_and(Error::is_temporary) {
            // A replica may have taken over. The next try shall find it.
            let members = Arc::clone(&self.members);
            background::handle().spawn(async move { members.refresh().await });
        }
        reply
    }

    /// One pipeline for each member, all at once; what has moved meanwhile is sent again by itself.
    pub(crate) async fn run_all(&self, doing: &'static str, calls: Vec<Call>) -> Result<Vec<Value>> {
        let mut parts: HashMap<Server, Vec<usize>> = HashMap::new();
        for (index, call) in calls.iter().enumerate() {
            parts.entry(self.members.master_of(call.slot())?).or_default().push(index);
        }
        let calls = &calls;
        let sent = parts.into_iter().map(|(server, indices)| async move {
            let connection = self.members.connections(&server).foreground().await?;
            let part: Vec<Call> = indices.iter().map(|index| calls[*index].clone()).collect();
            let replies = connection.run_all(&part).await.map_err(|cause| error(ENGINE, doing, cause))?;
            Ok::<_, Error>((indices, replies))
        });
        let mut outcomes: Vec<RedisResult<Value>> = calls.iter().map(|_| Ok(Value::Nil)).collect();
        for part in join_all(sent).await {
            let (indices, replies) = part?;
            for (index, reply) in indices.into_iter().zip(replies) {
                let has_moved = reply.as_ref().is_err_and(RedisError::is_cluster_error);
                outcomes[index] = if has_moved { Ok(self.run(doing, &calls[index]).await?) } else { reply };
            }
        }
        collect(doing, Ok(outcomes))
    }

    pub(crate) async fn scan(&self, doing: &'static str, pattern: &str, kind: &str) -> Result<Vec<String>> {
        let found = self.members.masters().into_iter().map(|server| async move {
            let connection = self.members.connections(&server).foreground().await?;
            connection.scan(pattern, kind).await.map_err(|cause| error(ENGINE, doing, cause))
        });
        let mut keys = Vec::new();
        for found in join_all(found).await {
            keys.append(&mut found?);
        }
        Ok(keys)
    }

    /// Reads the map again on the background runtime, and waits for that, but not for ever.
    async fn refresh(&self) {
        let members = Arc::clone(&self.members);
        let refreshed = background::handle().spawn(async move { members.refresh().await });
        let _ = Clock::Boot.timeout(self.members.opener.limit, refreshed).await;
    }
}

impl Members {
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections to a member; opened when a runtime first uses them.
    fn connections(&self, server: &Server) -> Arc<Connections<Connection>> {
        let mut map = self.map();
        let connections = map.connections.entry(server.clone()).or_insert_with(|| {
            let opener = Opener { target: Target::One(server.clone()), ..self.opener.clone() };
            Arc::new(opener.connections())
        });
        Arc::clone(connections)
    }

    /// The masters, and then the other known members.
    fn known(&self) -> Vec<Server> {
        let mut servers = self.masters();
        let others: Vec<Server> =
            self.map().connections.keys().filter(|server| !servers.contains(server)).cloned().collect();
        servers.extend(others);
        servers
    }

    fn masters(&self) -> Vec<Server> {
        let map = self.map();
        let mut servers: Vec<Server> = map.ranges.values().map(|(_, server)| server.clone()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    fn master_of(&self, slot: u16) -> Result<Server> {
        let map = self.map();
        let range = map.ranges.range(slot..).next().filter(|(_, (first, _))| *first <= slot);
        range.map(|(_, (_, server))| server.clone()).ok_or_else(no_member)
    }

    /// Runs a script at the member that has its slot by the map.
    async fn run(&self, call: &Call) -> Result<RedisResult<Value>> {
        let connections = self.connections(&self.master_of(call.slot())?);
        Ok(connections.foreground().await?.run(call).await)
    }

    /// A slot that moves to another member: what is not here any more is there, if the request says ASKING.
    async fn run_asking(&self, cause: &RedisError, call: &Call) -> Result<RedisResult<Value>> {
        let server = cause.redirect_node().and_then(|(server, _)| server.rsplit_once(':'));
        let Some((host, Ok(port))) = server.map(|(host, port)| (host, port.parse())) else {
            return Err(no_member());
        };
        let connection = self.connections(&(host.to_owned(), port)).foreground().await?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ASKING").add_command(call.in_full());
        let no_reply = || Err(io_error(io::ErrorKind::InvalidData, "no reply"));
        Ok(match connection.pipeline(&pipeline).await {
            Ok(mut replies) => replies.pop().unwrap_or_else(no_reply),
            Err(cause) => Err(cause),
        })
    }

    /// Reads the map again, unless that has just been done.
    async fn refresh(&self) {
        let mut refreshed = self.refreshed.lock().await;
        let due = *refreshed + REFRESH_PAUSE;
        Clock::Boot.sleep(due.saturating_duration_since(Instant::now())).await;
        if let Err(error) = self.read_map().await {
            tracing::debug!(%error, "could not read the cluster's map");
        }
        *refreshed = Instant::now();
    }

    /// Requests the map from all members at once, and takes the first reply.
    async fn read_map(&self) -> Result<()> {
        let known: Vec<(Server, Arc<Connections<Connection>>)> = {
            let map = self.map();
            map.connections.iter().map(|(server, it)| (server.clone(), Arc::clone(it))).collect()
        };
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let requests = known.iter().map(|(server, connections)| {
            let command = &command;
            Box::pin(async move {
                let connection = connections.background().await?;
                let slots = connection.request(command).await;
                let ranges = slots.and_then(|slots| read_slots(slots, &server.0));
                ranges.map_err(|cause| error(ENGINE, "read the cluster's map", cause))
            })
        });
        let (ranges, _) = select_ok(requests).await?;
        self.map().ranges = ranges;
        Ok(())
    }
}

fn no_member() -> Error {
    Error::temporary(ENGINE, "find a member of the cluster", "no member is known to have the slot")
}

/// Reads the reply of CLUSTER SLOTS. A member that does not know its own name means the one that replied.
fn read_slots(reply: Value, member: &str) -> RedisResult<BTreeMap<u16, (u16, Server)>> {
    let mut ranges = BTreeMap::new();
    let rows: Vec<Vec<Value>> = redis::from_redis_value(reply)?;
    for row in rows {
        let [first, last, master, ..] = &row[..] else { continue };
        let (first, last): (u16, u16) =
            (redis::from_redis_value_ref(first)?, redis::from_redis_value_ref(last)?);
        let words: Vec<Value> = redis::from_redis_value_ref(master)?;
        let host = words.first().and_then(view::text).filter(|host| !host.is_empty());
        let port = words.get(1).and_then(view::integer).and_then(|port| u16::try_from(port).ok());
        if let Some(port) = port {
            ranges.insert(last, (first, (host.unwrap_or_else(|| member.to_owned()), port)));
        }
    }
    if ranges.is_empty() {
        return Err(io_error(io::ErrorKind::NotFound, "the cluster has no slots"));
    }
    Ok(ranges)
}
