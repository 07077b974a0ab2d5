//! The style 'plain': a string key as other clients write it, with a fencing token beside it.

pub(crate) mod short;

use crate::config::ENGINE;
use crate::crowd::Crowds;
use crate::failure::failure;
use crate::fences::Fences;
use crate::keys::PlainKeys;
use crate::lane::{Lane, Lanes};
use crate::line::HolderLine;
use crate::looker::{Lookers, Patience};
use crate::lua::{Lua, Request};
use crate::plain::short::{AttemptAlone, Content, LeaveAlone};
use crate::shared::Shared;
use crate::together::{Ask as _, Together};
use crate::view;
use crate::wake::{Flights, Standing, Waiters};
use lockkeeper_core::{
    Abilities, Answer, Claim, ClaimId, Clock, Error, Grant, Kept, Left, LockName, LockView, Race, Renewal,
    Result, background,
};
use redis::{RedisError, RedisResult, Value};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

macro_rules! script {
    ($($part:literal),*) => {
        LazyLock::new(|| {
            Lua::new(&[
                $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/plain/", $part, ".lua"))),*
            ])
        })
    };
}
use script;

static ATTEMPT: LazyLock<Lua> = script!("fence", "attempt_begin", "take", "attempt");
static WAIT: LazyLock<Lua> = script!("mark", "wait");
static LEAVE: LazyLock<Lua> = script!("leave", "wake", "leave_wake");
static PASS: LazyLock<Lua> = script!("mark", "wake", "pass");
static KEEP: LazyLock<Lua> = script!("fence", "keep");
static EVICT: LazyLock<Lua> = script!("wake", "evict");
static LIST: LazyLock<Lua> = script!("list");

/// How many locks one script renews: enough to spare the server most of the calls, few enough not to hold it up.
const LOCKS_PER_SCRIPT: usize = 64;
/// Says to a script that the fence must follow the clock.
const BY_CLOCK: &str = "1";

/// Plain locks on Redis.
#[derive(Debug)]
pub(crate) struct RedisPlain {
    pub(crate) lanes: Lanes,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) channel: String,
    pub(crate) attempts: Together<AttemptAlone>,
    pub(crate) leaves: Together<LeaveAlone>,
    pub(crate) durable: Option<crate::durable::Durable>,
    /// A cluster's PUBLISH counts the listeners of one member only.
    pub(crate) is_cluster: bool,
    pub(crate) lookers: Lookers,
    pub(crate) flights: Flights,
    pub(crate) crowds: Crowds,
    pub(crate) line: HolderLine,
    pub(crate) fences: Fences,
}

fn could_not(doing: &'static str) -> impl Fn(RedisError) -> Error {
    move |error| failure(ENGINE, doing, error)
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

impl RedisPlain {
    fn keys(&self, name: &LockName) -> Result<PlainKeys> {
        self.check(name)?;
        Ok(PlainKeys::of(name.as_str()))
    }

    fn check(&self, name: &LockName) -> Result<()> {
        if self.is_cluster && !PlainKeys::of(name.as_str()).in_one_slot() {
            return Err(Error::invalid(format!(
                "the lock name {name:?} does not work with redis+cluster in the style 'plain': \
                 remove the brace, or use the style 'queue'"
            )));
        }
        Ok(())
    }

    fn value(&self, claim: &Claim) -> Content {
        Content { id: claim.id, line: self.line.of(claim) }
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
            background::handle().spawn(async move {
                let _ = plain.pass(&name).await;
            });
        }
    }

    async fn pass(&self, name: &LockName) -> Result<()> {
        let keys = self.keys(name)?;
        let request = Request::new(&PASS, &[keys.lock, keys.waiting]).arg(self.every_listener_counts());
        self.lanes.house().run(&request).await.map(drop).map_err(could_not("wake the next"))
    }

    /// Asks to be woken. `None` if the lock is free by now, else how long to sleep at most: no longer than the hold
    /// can last.
    async fn ask_to_be_woken(&self, claim: &Claim, patience: &mut Patience) -> Result<Option<Duration>> {
        let keys = self.keys(&claim.name)?;
        let request = Request::new(&WAIT, &[keys.lock, keys.waiting])
            .arg(self.way_to(claim))
            .arg(milliseconds(claim.ttl));
        let reply = self.lanes.nearest().run(&request).await.map_err(could_not("wait for the lock"))?;
        let Value::Array(words) = &reply else { return Ok(None) };
        let [left_ms, ours, Value::BulkString(holder)] = &words[..] else { return Ok(None) };
        let pause = match view::integer(ours) {
            Some(1) => patience.with_ours(claim.ttl),
            _ => patience.with_foreign(holder),
        };
        let left_ms = view::integer(left_ms).and_then(|ms| u64::try_from(ms).ok());
        let until_it_ends = left_ms.map_or(Duration::MAX, |left| Duration::from_millis(left + 1));
        Ok(Some(pause.min(until_it_ends)))
    }

    /// An attempt that also looks whether somebody waits.
    fn attempt_among_others(&self, claim: &Claim) -> Result<Request> {
        let keys = self.keys(&claim.name)?;
        Ok(Request::new(&ATTEMPT, &[keys.lock, keys.fence, keys.waiting])
            .arg(self.value(claim).to_string())
            .arg(milliseconds(claim.ttl))
            .arg(BY_CLOCK))
    }

    /// An attempt at a lock for which nobody is known to wait.
    async fn send_attempt_alone(&self, lane: &Lane, claim: &Claim) -> RedisResult<Value> {
        let value = self.value(claim);
        if let Some(durable) = &self.durable {
            let attempt = AttemptAlone { claim: claim.clone(), value, counts_on: None };
            return durable.run(attempt.alone()).await;
        }
        let (generation, now) = (lane.generation(), Instant::now());
        let counts_on = generation.filter(|it| self.fences.may_count(&claim.name, *it, now));
        let attempt = AttemptAlone { claim: claim.clone(), value, counts_on };
        let reply = self.attempts.ask(&self.lanes, lane, attempt).await;
        if let (Ok(Value::BulkString(_)), None, Some(generation)) = (&reply, counts_on, generation) {
            self.fences.followed(&claim.name, generation, now);
        }
        reply
    }

    async fn send_attempt(&self, lane: &Lane, claim: &Claim, crowded: bool) -> Result<Value> {
        let sent = if crowded {
            let request = self.attempt_among_others(claim)?;
            match &self.durable {
                None => lane.run(&request).await,
                Some(durable) => durable.run(request).await,
            }
        } else {
            self.send_attempt_alone(lane, claim).await
        };
        sent.map_err(could_not("take the lock"))
    }

    /// The task of an attempt has gone while it was under way with others, and its leave may have come before it.
    pub(crate) fn undo(self: Arc<Self>, attempt: AttemptAlone) {
        background::handle().spawn(async move {
            // If it fails nobody renews the claim, so it will expire.
            let _ = Shared(self).leave(&attempt.claim).await;
        });
    }
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
        self.check(&claim.name)?;
        let mut crowded = self.crowds.has(&claim.name);
        let lane = self.lanes.nearest();
        if self.lanes.is_near(lane) {
            self.flights.enter(claim.id);
        }
        let mut reply = self.send_attempt(lane, claim, crowded).await;
        if matches!(reply, Ok(Value::Nil)) {
            // Of several who asked together, this one's lock was not free.
            crowded = true;
            reply = self.send_attempt(lane, claim, crowded).await;
        }
        self.flights.remove(claim.id);
        match &reply? {
            Value::Array(words) => {
                self.crowds.found_company(&claim.name);
                let left_ms = words.first().and_then(view::integer).and_then(|ms| u64::try_from(ms).ok());
                Ok(Answer::Busy { free_in: left_ms.map(Duration::from_millis) })
            }
            other => {
                let Some(token) = view::token(other) else {
                    let text = format!("{other:?}");
                    return Err(Error::permanent(ENGINE, "read the reply to an attempt", text));
                };
                if crowded {
                    self.crowds.found_free(&claim.name);
                }
                Ok(Answer::Granted(Grant { token }))
            }
        }
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        let seat = self.lookers.sit(&claim.name, claim.id);
        seat.in_front().await;
        let waiting = Waiting { waiters: &self.waiters, id: claim.id };
        let waiter = self.waiters.enter(claim, false);
        let mut patience = Patience::default();
        while let Some(pause) = self.ask_to_be_woken(claim, &mut patience).await? {
            seat.looks_after(pause);
            tokio::select! {
                () = waiter.told() => break,
                () = seat.called() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        drop(waiting);
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let at_once = if self.is_cluster { 1 } else { LOCKS_PER_SCRIPT };
        let mut requests = Vec::with_capacity(renewals.len() / at_once + 1);
        for some in renewals.chunks(at_once) {
            let mut keys = Vec::with_capacity(2 * some.len());
            for Renewal { claim, .. } in some {
                let PlainKeys { lock, fence, .. } = self.keys(&claim.name)?;
                keys.extend([lock, fence]);
            }
            let request = Request::new(&KEEP, &keys);
            requests.push(some.iter().fold(request, |request, Renewal { claim, ttl }| {
                request.arg(self.value(claim).to_string()).arg(milliseconds(*ttl))
            }));
        }
        let replies = match &self.durable {
            None => self.lanes.house().run_all(requests).await,
            Some(durable) => durable.run_all(self.lanes.house(), requests).await,
        };
        let mut answers: Vec<i64> = Vec::with_capacity(renewals.len());
        for reply in replies.map_err(could_not("renew"))? {
            let some: Vec<i64> = redis::from_redis_value(reply.map_err(could_not("renew"))?)
                .map_err(|error| could_not("read a renewal")(error.into()))?;
            answers.extend(some);
        }
        let dead = renewals.iter().zip(answers).filter(|(_, answer)| *answer != 1);
        Ok(Kept { dead: dead.map(|(renewal, _)| renewal.claim.id).collect(), as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let in_flight = self.flights.remove(claim.id);
        let lane = if in_flight { self.lanes.same_as(true) } else { self.lanes.nearest() };
        let value = self.value(claim);
        let mut twice = false;
        if !self.crowds.has(&claim.name) {
            let leave = LeaveAlone { name: claim.name.clone(), value: value.clone() };
            let (reply, again) = if in_flight {
                self.lanes.run_surely(lane, &leave.alone()).await
            } else {
                self.lanes.ask_surely(&self.leaves, lane, leave).await
            };
            let reply = view::integer(&reply.map_err(could_not("free the lock"))?);
            twice = again;
            if let Some(was_there) = reply {
                return Ok(if was_there == 1 || twice { Left::Left } else { Left::NotThere });
            }
            self.crowds.found_company(&claim.name);
        }
        let keys = self.keys(&claim.name)?;
        let request = Request::new(&LEAVE, &[keys.lock, keys.waiting])
            .arg(value.to_string())
            .arg(self.every_listener_counts())
            .arg(self.way_to(claim));
        let (reply, again) = self.lanes.run_surely(lane, &request).await;
        let was_there = view::integer(&reply.map_err(could_not("free the lock"))?) == Some(1);
        // When the second run finds nothing, the first one has done it.
        Ok(if was_there || twice || again { Left::Left } else { Left::NotThere })
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
