//! The style 'plain': a string key as other clients write it, with a fencing token beside it.

use crate::config::ENGINE;
use crate::failure::failure;
use crate::keys::PlainKeys;
use crate::lane::Lanes;
use crate::lua::{Lua, Request};
use crate::shared::Shared;
use crate::view;
use crate::wake::{Standing, Waiters};
use lockkeeper_core::{
    Abilities, Answer, Claim, ClaimId, Clock, Error, Grant, Kept, Left, LockName, LockView, Race, Renewal, Result,
    Token,
};
use rand::RngExt as _;
use redis::{RedisError, Value};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const WAKE: &str = include_str!("scripts/plain/wake.lua");

static ATTEMPT: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[include_str!("scripts/plain/attempt.lua")]));
static WAIT: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[include_str!("scripts/plain/wait.lua")]));
static LEAVE: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[WAKE, include_str!("scripts/plain/leave.lua")]));
static PASS: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[WAKE, include_str!("scripts/plain/pass.lua")]));
static KEEP: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[include_str!("scripts/plain/keep.lua")]));
static EVICT: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[WAKE, include_str!("scripts/plain/evict.lua")]));
static LIST: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[include_str!("scripts/plain/list.lua")]));

/// How long the last token is remembered after the lock was last taken or renewed; the server's clock must not be
/// set back by more.
const FENCE_MS: u64 = 600_000;

/// Another client does not tell us that it has left: how long until we look by ourselves.
const FOREIGN_PAUSE_MS: RangeInclusive<u64> = 5..=50;
/// Ours do; this is for a message that was lost.
const OUR_PAUSE_MS: RangeInclusive<u64> = 250..=1_000;

/// Plain locks on Redis.
#[derive(Debug)]
pub(crate) struct RedisPlain {
    pub(crate) lanes: Lanes,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) channel: String,
    pub(crate) durable: Option<crate::durable::Durable>,
    /// A cluster's PUBLISH counts the listeners of one member only.
    pub(crate) is_cluster: bool,
}

fn could_not(doing: &'static str) -> impl Fn(RedisError) -> Error {
    move |error| failure(ENGINE, doing, error)
}

/// What stands in the key. Others compare it as a whole; we also read who it is.
fn value(claim: &Claim) -> String {
    format!("{} {}", claim.id, claim.holder.encode())
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// How long a fence is remembered: never shorter than the hold it belongs to.
fn fence_ms(ttl: Duration) -> u64 {
    milliseconds(ttl) + FENCE_MS
}

impl RedisPlain {
    fn keys(&self, name: &LockName) -> Result<PlainKeys> {
        let keys = PlainKeys::of(name.as_str());
        if self.is_cluster && !keys.in_one_slot() {
            return Err(Error::invalid(format!(
                "the lock name {name:?} does not work with redis+cluster in the style 'plain': \
                 remove the brace, or use the style 'queue'"
            )));
        }
        Ok(keys)
    }

    /// How a message finds the claim.
    fn way_to(&self, claim: &Claim) -> String {
        format!("{} {}", self.channel, claim.id)
    }

    fn every_listener_counts(&self) -> &'static str {
        if self.is_cluster { "" } else { "1" }
    }

    /// Hears the keeper's channel: `<claim id> <lock>`. If the claim has given up, somebody else is woken.
    pub(crate) fn hear(self: &Arc<Self>, message: &str) {
        let Some((id, name)) = message.split_once(' ') else { return };
        let Ok(id) = id.parse() else { return };
        if !self.waiters.tell(id, Standing::Holds) {
            let (plain, name) = (Arc::clone(self), LockName::from_engine(name));
            lockkeeper_core::house::handle().spawn(async move {
                let _ = plain.pass(&name).await;
            });
        }
    }

    async fn pass(&self, name: &LockName) -> Result<()> {
        let keys = self.keys(name)?;
        let request = Request::new(&PASS, &[keys.lock, keys.waiting]).arg(self.every_listener_counts());
        self.lanes.house().run(&request).await.map(drop).map_err(could_not("wake the next"))
    }

    /// Asks to be woken. `None` if the lock is free by now, else how long to sleep at most.
    async fn ask_to_be_woken(&self, claim: &Claim) -> Result<Option<Duration>> {
        let keys = self.keys(&claim.name)?;
        let request = Request::new(&WAIT, &[keys.lock, keys.waiting])
            .arg(self.way_to(claim))
            .arg(milliseconds(claim.ttl));
        let reply = self.lanes.nearest().run(&request).await.map_err(could_not("wait for the lock"))?;
        let Value::Array(words) = &reply else { return Ok(None) };
        let [left_ms, holder] = &words[..] else { return Ok(None) };
        let left_ms = view::integer(left_ms).and_then(|ms| u64::try_from(ms).ok());
        let ours = view::text(holder).is_some_and(|holder| holder.contains(" {"));
        Ok(Some(pause(ours, left_ms)))
    }
}

/// How long to sleep before another try that nobody asked for: at random, and no longer than the hold can last.
fn pause(ours: bool, left_ms: Option<u64>) -> Duration {
    let pause_ms = rand::rng().random_range(if ours { OUR_PAUSE_MS } else { FOREIGN_PAUSE_MS });
    let until_it_ends = left_ms.map_or(u64::MAX, |left| left + 1);
    Duration::from_millis(pause_ms.min(until_it_ends))
}

impl Race for Shared<RedisPlain> {
    fn abilities(&self) -> Abilities {
        crate::STYLES[1]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn attempt(&self, claim: &Claim) -> Result<Answer> {
        let keys = self.keys(&claim.name)?;
        let request = Request::new(&ATTEMPT, &[keys.lock, keys.fence])
            .arg(value(claim))
            .arg(milliseconds(claim.ttl))
            .arg(fence_ms(claim.ttl));
        let lane = self.lanes.nearest();
        let waiter = self.waiters.enter(claim, self.lanes.is_near(lane));
        let reply = match &self.durable {
            None => lane.run(&request).await,
            Some(durable) => durable.run(request).await,
        };
        drop(waiter);
        let reply = reply.map_err(could_not("take the lock"))?;
        self.waiters.remove(claim.id);
        match &reply {
            Value::Int(token) => {
                Ok(Answer::Granted(Grant { token: Token(u64::try_from(*token).unwrap_or_default()) }))
            }
            Value::Array(words) => {
                let left_ms = words.first().and_then(view::integer).and_then(|ms| u64::try_from(ms).ok());
                Ok(Answer::Busy { free_in: left_ms.map(Duration::from_millis) })
            }
            other => Err(Error::permanent(ENGINE, "read the reply to an attempt", format!("{other:?}"))),
        }
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        let waiting = Waiting { waiters: &self.waiters, id: claim.id };
        let waiter = self.waiters.enter(claim, false);
        let Some(pause) = self.ask_to_be_woken(claim).await? else { return Ok(()) };
        let _ = tokio::time::timeout(pause, waiter.told()).await;
        drop(waiting);
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let mut requests = Vec::with_capacity(renewals.len());
        for Renewal { claim, ttl } in renewals {
            let keys = self.keys(&claim.name)?;
            let request = Request::new(&KEEP, &[keys.lock, keys.fence]).arg(value(claim));
            requests.push(request.arg(milliseconds(*ttl)).arg(fence_ms(*ttl)));
        }
        let replies = match &self.durable {
            None => self.lanes.house().run_all(requests).await,
            Some(durable) => durable.run_all(self.lanes.house(), requests).await,
        };
        let mut dead = Vec::new();
        for (renewal, reply) in renewals.iter().zip(replies.map_err(could_not("renew"))?) {
            if view::integer(&reply.map_err(could_not("renew"))?) != Some(1) {
                dead.push(renewal.claim.id);
            }
        }
        Ok(Kept { dead, as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let keys = self.keys(&claim.name)?;
        let lane = match self.waiters.remove(claim.id) {
            Some(waiter) => self.lanes.same_as(waiter.near),
            None => self.lanes.nearest(),
        };
        let request = Request::new(&LEAVE, &[keys.lock, keys.waiting])
            .arg(value(claim))
            .arg(self.every_listener_counts())
            .arg(self.way_to(claim));
        let (reply, twice) = self.lanes.run_surely(lane, &request).await;
        let was_there = view::integer(&reply.map_err(could_not("free the lock"))?) == Some(1);
        // When the second run finds nothing, the first one has done it.
        Ok(if was_there || twice { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let lane = self.lanes.nearest();
        let pattern = PlainKeys::pattern(prefix);
        let mut names = lane.scan(&pattern, "string").await.map_err(could_not("list locks"))?;
        names.retain(|name| name.starts_with(prefix) && !PlainKeys::is_beside(name));
        names.sort_unstable();
        let mut locks = Vec::new();
        for some in names.chunks(256) {
            let keys = some.iter().map(|name| PlainKeys::of(name));
            let requests = keys.map(|keys| Request::new(&LIST, &[keys.lock, keys.fence])).collect();
            let replies = lane.run_all(requests).await.map_err(could_not("list locks"))?;
            for (name, reply) in some.iter().zip(replies) {
                locks.extend(view::plain(name, &reply.map_err(could_not("list locks"))?));
            }
            if locks.len() >= at_most {
                break;
            }
        }
        locks.truncate(at_most);
        Ok(locks)
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let keys = self.keys(name)?;
        let request = Request::new(&EVICT, &[keys.lock, keys.waiting])
            .arg(id.to_string())
            .arg(self.every_listener_counts());
        let reply = self.lanes.nearest().run(&request).await.map_err(could_not("evict a claim"))?;
        Ok(view::integer(&reply) == Some(1))
    }

    async fn close(&self) {
        self.lanes.close();
    }
}

/// Takes a claim off the list of those who wait, however the wait ends.
struct Waiting<'a> {
    waiters: &'a Waiters,
    id: ClaimId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.remove(self.id);
    }
}
