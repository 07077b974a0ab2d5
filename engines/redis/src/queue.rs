//! The style 'queue': first come, first served, by scripts that keep the whole queue at the server.

pub(crate) mod short;

use crate::config::ENGINE;
use crate::crowd::{Crowds, Places};
use crate::failure::failure;
use crate::keys::QueueKeys;
use crate::lane::{Lane, Lanes};
use crate::lua::{Lua, Request};
use crate::queue::short::{JoinAlone, LeaveAlone, Tails};
use crate::shared::Shared;
use crate::together::{Ask as _, Together};
use crate::view;
use crate::wake::{self, Standing, Waiter, Waiters};
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, Clock, Demand, Error, Joined, Kept, Left, LockName, LockView, Place,
    Queue, Renewal, Result, Shape, Token,
};
use redis::{RedisError, Value};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

macro_rules! script {
    ($($part:literal),*) => {
        LazyLock::new(|| {
            Lua::new(&[
                $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/queue/", $part, ".lua"))),*
            ])
        })
    };
}
use script;

static JOIN: LazyLock<Lua> =
    script!("clock", "place", "join_alone_begin", "take", "join_alone_end", "state", "moves", "join");
static LEAVE: LazyLock<Lua> =
    script!("leave_alone_begin", "free", "leave_alone_end", "state", "moves", "leave");
static KEEP: LazyLock<Lua> = script!("one_begin", "keep_alone", "state", "moves", "keep", "one_end");
static SHRINK: LazyLock<Lua> = script!("look", "state", "moves", "shrink");
static LIST: LazyLock<Lua> = script!("list_alone", "state", "moves", "list");

/// How many locks one script renews: enough to spare the server most of the calls, few enough not to hold it up.
const LOCKS_PER_SCRIPT: usize = 64;
/// How long a lock's keys outlive its claims; the scripts know it, too.
const TRACE_MS: u64 = 600_000;

/// Fair locks on Redis.
#[derive(Debug)]
pub(crate) struct RedisQueue {
    pub(crate) lanes: Lanes,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) channel: Arc<str>,
    pub(crate) joins: Together<JoinAlone>,
    pub(crate) leaves: Together<LeaveAlone>,
    pub(crate) durable: Option<crate::durable::Durable>,
    /// A script's keys must be in one slot there, and so of one lock.
    pub(crate) is_cluster: bool,
    pub(crate) crowds: Crowds,
    pub(crate) places: Places,
    pub(crate) tails: Tails,
}

fn could_not(doing: &'static str) -> impl Fn(RedisError) -> Error {
    move |error| failure(ENGINE, doing, error)
}

/// A run of the script on all keys of the lock.
fn long_way(lua: &'static Lua, name: &LockName) -> Request {
    let QueueKeys(keys) = QueueKeys::of(name.as_str());
    Request::new(lua, &keys)
}

/// At least one: a TTL of zero would mean 'for ever' to nobody here, and 'dead' to everybody.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Hears the keeper's channel: the id of a claim that holds now, or `-` and the id of one that was evicted.
pub(crate) fn hear(waiters: &Waiters, message: &str) {
    let (id, news) = match message.strip_prefix('-') {
        Some(id) => (id, Standing::Gone),
        None => (message, Standing::Holds),
    };
    if let Ok(id) = id.parse() {
        waiters.tell(id, news);
    }
}

impl RedisQueue {
    /// Down the short way, alone or with others; with WAIT behind it, always alone.
    async fn join_alone(&self, lane: &Lane, join: JoinAlone) -> Result<Value> {
        let reply = match &self.durable {
            None => self.joins.ask(&self.lanes, lane, join).await,
            Some(durable) => durable.run(join.alone()).await,
        };
        reply.map_err(could_not("join the queue"))
    }

    async fn join_behind(&self, lane: &Lane, join: &JoinAlone) -> Result<Value> {
        let request = long_way(&JOIN, &join.claim.name).arg(join.to_string()).arg(join.trace_ms());
        let reply = match &self.durable {
            None => lane.run(&request).await,
            Some(durable) => durable.run(request).await,
        };
        reply.map_err(could_not("join the queue"))
    }

    /// Enters the claim's fate after a join; the reply of a claim that was refused is an error.
    fn joined(&self, claim: &Claim, waiter: &Waiter, reply: Value) -> Result<Joined> {
        let bad = could_not("read the reply to a join");
        let words: Vec<Value> = redis::from_redis_value(reply).map_err(|error| bad(error.into()))?;
        let numbers: Vec<i64> = words.iter().filter_map(view::integer).collect();
        let [place, standing, look_in_ms] = numbers[..] else {
            self.waiters.remove(claim.id);
            return Err(refused(claim, &words));
        };
        let standing = wake::standing(standing, look_in_ms);
        waiter.tell(standing);
        let ahead = if standing == Standing::Holds {
            self.waiters.remove(claim.id);
            Ahead(0)
        } else {
            full(claim)
        };
        let place = u64::try_from(place).unwrap_or_default();
        Ok(Joined { place: Place(place), token: Token(place), ahead, lifeline: None })
    }

    /// Looks at one claim, which renews it, too.
    async fn look(&self, waiter: &Waiter) -> Result<()> {
        let renewal = [(waiter.claim.clone(), waiter.claim.ttl)];
        self.keep_by(self.lanes.nearest(), renewal).await.map(|_| ())
    }

    /// Renews claims in one pipeline, many locks with one script, and tells those that wait.
    async fn keep_by(
        &self,
        lane: &Lane,
        claims: impl IntoIterator<Item = (Claim, Duration)>,
    ) -> Result<Vec<ClaimId>> {
        let mut claims: Vec<(Claim, Duration)> = claims.into_iter().collect();
        claims.sort_by(|one, other| one.0.name.cmp(&other.0.name));
        let locks: Vec<&[(Claim, Duration)]> =
            claims.chunk_by(|one, next| one.0.name == next.0.name).collect();
        let at_once = if self.is_cluster { 1 } else { LOCKS_PER_SCRIPT };
        let requests = locks.chunks(at_once).map(keep_request).collect();
        let replies = match &self.durable {
            None => lane.run_all(requests).await,
            Some(durable) => durable.run_all(lane, requests).await,
        };
        let replies = replies.map_err(could_not("renew"))?;
        let mut dead = Vec::new();
        let mut answers = Vec::with_capacity(locks.len());
        for reply in replies {
            let reply = reply.map_err(could_not("renew"))?;
            let some: Vec<Vec<i64>> =
                redis::from_redis_value(reply).map_err(|error| could_not("read a renewal")(error.into()))?;
            answers.extend(some);
        }
        for (lock, numbers) in locks.iter().zip(answers) {
            for ((claim, _), answer) in lock.iter().zip(numbers.chunks_exact(2)) {
                let standing = wake::standing(answer[0], answer[1]);
                self.waiters.tell(claim.id, standing);
                if standing == Standing::Gone {
                    dead.push(claim.id);
                }
            }
        }
        Ok(dead)
    }

    /// After messages may have been missed: one look at all who wait, in one pipeline.
    pub(crate) async fn look_at_all(&self) {
        let waiting = self.waiters.all().into_iter().map(|waiter| (waiter.claim.clone(), waiter.claim.ttl));
        if let Err(error) = self.keep_by(self.lanes.house(), waiting).await {
            tracing::debug!(%error, "could not look after a reconnect; the next renewal will");
        }
    }
}

fn keep_request(locks: &[&[(Claim, Duration)]]) -> Request {
    let keys: Vec<String> = locks.iter().flat_map(|lock| QueueKeys::of(lock[0].0.name.as_str()).0).collect();
    let mut request = Request::new(&KEEP, &keys);
    for lock in locks {
        request = request.arg(2 * lock.len());
        for (claim, ttl) in *lock {
            request = request.arg(claim.id.to_string()).arg(milliseconds(*ttl));
        }
    }
    request
}

/// The place of a claim that was found to be alone.
fn alone(reply: &Value) -> Option<Joined> {
    let Value::BulkString(place) = reply else { return None };
    let place = std::str::from_utf8(place).ok()?.parse().ok()?;
    Some(Joined { place: Place(place), token: Token(place), ahead: Ahead(0), lifeline: None })
}

/// More than leaves room for anybody: all that needs to be known of a queue in which a claim does not fit.
fn full(claim: &Claim) -> Ahead {
    Ahead(claim.demand.limit())
}

/// Why a join was refused: the ruling shape, or nothing if the claim has left already.
fn refused(claim: &Claim, words: &[Value]) -> Error {
    let Some(ruling) = words.first().and_then(view::text) else { return claim.gone() };
    let ruling = ruling.parse().map_or(Shape::ReadWrite, |of| Shape::Permits { of });
    claim.check_shape(ruling).err().unwrap_or_else(|| claim.gone())
}

impl Queue for Shared<RedisQueue> {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let lane = self.lanes.nearest();
        let join = || JoinAlone { claim: claim.clone(), tail: self.tails.of(claim, &self.channel) };
        if !self.crowds.has(&claim.name) {
            let reply = self.join_alone(lane, join()).await?;
            if let Some(joined) = alone(&reply) {
                self.places.enter(claim.id, joined.place.0);
                return Ok(joined);
            }
            self.crowds.found_company(&claim.name);
        }
        let waiter = self.waiters.enter(claim, self.lanes.is_near(lane));
        let reply = self.join_behind(lane, &join()).await?;
        if let Some(joined) = alone(&reply) {
            self.crowds.found_free(&claim.name);
            self.waiters.remove(claim.id);
            return Ok(joined);
        }
        self.joined(claim, &waiter, reply)
    }

    async fn changed(&self, claim: &Claim, _: Place, _: Ahead) -> Result<Ahead> {
        let waiter = self.waiters.get(claim.id).ok_or_else(|| claim.gone())?;
        loop {
            let look_at = match waiter.standing() {
                Standing::Holds => {
                    self.waiters.remove(claim.id);
                    return Ok(Ahead(0));
                }
                Standing::Gone => return Err(claim.gone()),
                Standing::Waits { look_at } => look_at,
            };
            let look_at = async {
                match look_at {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waiter.told() => {}
                () = look_at => self.look(&waiter).await?,
            }
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let claims = renewals.iter().map(|renewal| (renewal.claim.as_ref().clone(), renewal.ttl));
        let dead = self.keep_by(self.lanes.house(), claims).await?;
        Ok(Kept { dead, as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let lane = match self.waiters.remove(claim.id) {
            Some(waiter) => self.lanes.same_as(waiter.near),
            None => self.lanes.nearest(),
        };
        let mut twice = false;
        if let Some(place) = self.places.take(claim.id)
            && !self.crowds.has(&claim.name)
        {
            let leave = LeaveAlone { name: claim.name.clone(), id: claim.id, place };
            let (reply, again) = self.lanes.ask_surely(&self.leaves, lane, leave).await;
            if view::integer(&reply.map_err(could_not("leave the queue"))?) == Some(1) {
                return Ok(Left::Left);
            }
            twice = again;
            self.crowds.found_company(&claim.name);
        }
        let request =
            long_way(&LEAVE, &claim.name).arg(claim.id.to_string()).arg(milliseconds(claim.ttl)).arg("");
        let (reply, again) = self.lanes.run_surely(lane, &request).await;
        let was_there = view::integer(&reply.map_err(could_not("leave the queue"))?) == Some(1);
        // When the second run finds nothing, the first one has done it.
        Ok(if was_there || twice || again { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let request =
            long_way(&SHRINK, &claim.name).arg(claim.id.to_string()).arg(to.weight()).arg(to.to_string());
        let reply = self.lanes.nearest().run(&request).await.map_err(could_not("downgrade"))?;
        if view::integer(&reply) == Some(1) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let lane = self.lanes.nearest();
        let keys = lane.scan(&QueueKeys::pattern(prefix), "string").await.map_err(could_not("list locks"))?;
        let mut names: Vec<String> = keys.iter().filter_map(|key| QueueKeys::name(key)).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        let mut locks = Vec::new();
        // Idle locks leave a trace that is found here, so the limit is counted by what is in use.
        for some in names.chunks(256) {
            let requests =
                some.iter().map(|name| Request::new(&LIST, &QueueKeys::of(name).0).arg("")).collect();
            let replies = lane.run_all(requests).await.map_err(could_not("list locks"))?;
            for (name, reply) in some.iter().zip(replies) {
                let lock = view::queue(name, reply.map_err(could_not("list locks"))?)?;
                locks.extend(Some(lock).filter(|lock| !lock.claims.is_empty()));
            }
            if locks.len() >= at_most {
                break;
            }
        }
        locks.truncate(at_most);
        Ok(locks)
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let request = long_way(&LEAVE, name).arg(id.to_string()).arg(0).arg("evict");
        let reply = self.lanes.nearest().run(&request).await.map_err(could_not("evict a claim"))?;
        Ok(view::integer(&reply) == Some(1))
    }

    async fn close(&self) {
        self.lanes.close();
    }
}

#[cfg(test)]
mod tests;
