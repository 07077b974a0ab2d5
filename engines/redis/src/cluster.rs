//! A Redis Cluster: every lock lives in one slot, and so at one member.

use crate::lane::scan;
use crate::link::{Dial, Link, io_error};
use crate::lua::Request;
use crate::target::{Spot, Target};
use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How many redirections one request follows.
const REDIRECTIONS: usize = 5;
/// The members are not asked for their map more often than this.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// The members of a cluster, a link to each, and the map of the slots.
#[derive(Debug, Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    runtime: Handle,
    dial: Dial,
    map: Mutex<Map>,
    refreshing: tokio::sync::Mutex<Instant>,
    /// Messages reach every member, so one link listens, at whichever member answers.
    ears: Option<Link>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("members", &self.map().links.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Map {
    links: HashMap<Spot, Link>,
    /// The last slot of each range, with its first slot and its master.
    ranges: BTreeMap<u16, (u16, Spot)>,
}

impl Inner {
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Opens a link to each of the members that the seeds tell.
    pub(crate) async fn open(
        runtime: &Handle,
        seeds: Vec<Spot>,
        dial: impl Fn(Target) -> Dial,
    ) -> RedisResult<Self> {
        let mut plain = dial(Target::Fixed(Spot::default()));
        let ears = match plain.ears.take() {
            None => None,
            Some(_) => {
                let target = Target::AnyOf(seeds.clone(), plain.greeting.clone());
                Some(Link::start(runtime, dial(target)).await?)
            }
        };
        let inner = Inner {
            runtime: runtime.clone(),
            dial: plain,
            map: Mutex::default(),
            refreshing: tokio::sync::Mutex::new(Instant::now()),
            ears,
        };
        for seed in seeds {
            inner.link_to(&seed);
        }
        let cluster = Self(Arc::new(inner));
        cluster.read_map().await?;
        Ok(cluster)
    }

    pub(crate) fn close(&self) {
        self.0.map().links.values().chain(&self.0.ears).for_each(Link::close);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.map().links.values().any(Link::is_dead)
    }

    fn link_of(&self, slot: u16) -> RedisResult<Link> {
        let map = self.0.map();
        let range = map.ranges.range(slot..).next().filter(|(_, (first, _))| *first <= slot);
        let link = range.and_then(|(_, (_, spot))| map.links.get(spot));
        link.cloned().ok_or_else(|| io_error(std::io::ErrorKind::NotFound, "no member of the cluster has the slot"))
    }

    pub(crate) async fn run(&self, request: &Request) -> RedisResult<Value> {
        let mut outcome = match self.link_of(request.slot()) {
            Ok(link) => link.run(request).await,
            Err(error) => Err(error),
        };
        for _ in 0..REDIRECTIONS {
            let Err(error) = &outcome else { break };
            outcome = match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    self.refresh().await;
                    self.link_of(request.slot())?.run(request).await
                }
                ErrorKind::Server(ServerErrorKind::Ask) => self.ask(error, request).await,
                _ => break,
            };
        }
        if outcome.as_ref().is_err_and(RedisError::is_io_error) {
            // A replica may have taken over. The next try shall find it.
            let cluster = self.clone();
            self.0.runtime.spawn(async move { cluster.refresh().await });
        }
        outcome
    }

    /// A slot on its way to another member: what is not here any more is there, for those who ask.
    async fn ask(&self, error: &RedisError, request: &Request) -> RedisResult<Value> {
        let spot = error.redirect_node().and_then(|(spot, _)| spot.rsplit_once(':'));
        let Some((host, Ok(port))) = spot.map(|(host, port)| (host, port.parse())) else {
            return Err(io_error(std::io::ErrorKind::InvalidData, "a redirection leads nowhere"));
        };
        let link = self.0.link_to(&(host.to_owned(), port));
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ASKING").add_command(request.in_full());
        let mut replies = link.pipeline(&pipeline).await?;
        replies.pop().unwrap_or_else(|| Err(io_error(std::io::ErrorKind::InvalidData, "no reply")))
    }

    /// One pipeline per member, all at once; what has moved meanwhile is sent again by itself.
    pub(crate) async fn run_all(&self, requests: Vec<Request>) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut parts: HashMap<u16, (Link, Vec<usize>)> = HashMap::new();
        let ranges: Vec<RedisResult<(u16, Link)>> =
            requests.iter().map(|request| self.range_of(request.slot())).collect();
        for (index, range) in ranges.into_iter().enumerate() {
            let (last_slot, link) = range?;
            parts.entry(last_slot).or_insert_with(|| (link, Vec::new())).1.push(index);
        }
        let mut places: Vec<Option<Request>> = requests.into_iter().map(Some).collect();
        let work = parts.into_values().map(|(link, indices)| {
            let part: Vec<Request> = indices.iter().filter_map(|index| places[*index].take()).collect();
            async move {
                let replies = link.run_all(&part).await;
                (indices, part, replies)
            }
        });
        let work: Vec<_> = work.collect();
        let mut outcomes: Vec<RedisResult<Value>> = Vec::new();
        outcomes.resize_with(places.len(), || Err(io_error(std::io::ErrorKind::NotConnected, "not sent")));
        for (indices, part, replies) in join_all(work).await {
            for ((index, request), reply) in indices.into_iter().zip(&part).zip(replies?) {
                let moved = matches!(&reply, Err(error) if error.is_cluster_error());
                outcomes[index] = if moved { self.run(request).await } else { reply };
            }
        }
        Ok(outcomes)
    }

    fn range_of(&self, slot: u16) -> RedisResult<(u16, Link)> {
        let last = self.0.map().ranges.range(slot..).next().map_or(slot, |(last, _)| *last);
        Ok((last, self.link_of(slot)?))
    }

    pub(crate) async fn scan(&self, pattern: &str, kind: &str) -> RedisResult<Vec<String>> {
        let masters: Vec<Link> = {
            let map = self.0.map();
            let mut spots: Vec<&Spot> = map.ranges.values().map(|(_, spot)| spot).collect();
            spots.sort_unstable();
            spots.dedup();
            spots.into_iter().filter_map(|spot| map.links.get(spot).cloned()).collect()
        };
        let mut keys = Vec::new();
        for found in join_all(masters.iter().map(|link| scan(link, pattern, kind))).await {
            keys.append(&mut found?);
        }
        Ok(keys)
    }

    /// Reads the map again, unless somebody has just done so.
    async fn refresh(&self) {
        let mut last = self.0.refreshing.lock().await;
        if last.elapsed() < REFRESH_PAUSE {
            tokio::time::sleep(REFRESH_PAUSE.saturating_sub(last.elapsed())).await;
        }
        if let Err(error) = self.read_map().await {
            tracing::debug!(%error, "could not read the cluster's map");
        }
        *last = Instant::now();
    }

    /// Asks the members for the map, all at once, and takes the first answer.
    async fn read_map(&self) -> RedisResult<()> {
        let known: Vec<(Spot, Link)> =
            self.0.map().links.iter().map(|(spot, link)| (spot.clone(), link.clone())).collect();
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg("SLOTS");
        let asked = known.iter().map(|(spot, link)| {
            let command = &command;
            Box::pin(async move { Ok::<_, RedisError>((spot, link.command(command).await?)) })
        });
        let ((spot, reply), _) = futures_util::future::select_ok(asked).await?;
        let ranges = read_slots(reply, &spot.0)?;
        if ranges.is_empty() {
            return Err(io_error(std::io::ErrorKind::NotFound, "the cluster has no slots"));
        }
        for (_, master) in ranges.values() {
            self.0.link_to(master);
        }
        let mut map = self.0.map();
        map.ranges = ranges;
        Ok(())
    }
}

impl Inner {
    /// The link to a member; a new one connects in the background.
    fn link_to(&self, spot: &Spot) -> Link {
        let dial = Dial { target: Target::Fixed(spot.clone()), ..self.dial.clone() };
        let mut map = self.map();
        let link = map.links.entry(spot.clone()).or_insert_with(|| Link::start_unconnected(&self.runtime, dial));
        link.clone()
    }
}

/// Reads the reply of CLUSTER SLOTS. A member that does not know its own name means the one we asked.
fn read_slots(reply: Value, asked: &str) -> RedisResult<BTreeMap<u16, (u16, Spot)>> {
    let mut ranges = BTreeMap::new();
    let rows: Vec<Vec<Value>> = redis::from_redis_value(reply)?;
    for row in rows {
        let [first, last, master, ..] = &row[..] else { continue };
        let (first, last): (u16, u16) =
            (redis::from_redis_value_ref(first)?, redis::from_redis_value_ref(last)?);
        let words: Vec<Value> = redis::from_redis_value_ref(master)?;
        let host = words.first().and_then(crate::view::text).filter(|host| !host.is_empty());
        let port = words.get(1).and_then(crate::view::integer).and_then(|port| u16::try_from(port).ok());
        if let Some(port) = port {
            ranges.insert(last, (first, (host.unwrap_or_else(|| asked.to_owned()), port)));
        }
    }
    Ok(ranges)
}
