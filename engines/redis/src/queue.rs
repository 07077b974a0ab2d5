//! The style 'queue': first come, first served, by a script that keeps the whole queue at the server.

use crate::config::{Config, ENGINE, time_limit};
use crate::connection::{Call, Script, milliseconds};
use crate::error::error;
use crate::keys::{self, QueueKeys};
use crate::servers::Servers;
use crate::view::{self, HolderText};
use crate::wake::{Subscription, WaitState, Waiter, Waiters};
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{
    Ahead, Claim, ClaimId, Clock, Joined, Kept, Left, Lifeline, LockName, Place, Queue, Renewal, background,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use redis::Value;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;
use tokio::time::Instant;

static QUEUE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/queue.lua")));

/// How many locks one call renews: enough to spare the server most of the calls, few enough not to hold it up.
const LOCKS_PER_CALL: usize = 64;

/// Fair locks on Redis.
#[derive(Debug)]
pub(crate) struct RedisQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    servers: Servers,
    waiters: Arc<Waiters>,
    /// What all claims are tied to, so that a message ends a hold.
    claims: Lifeline,
    channel: String,
    holder: HolderText,
}

impl RedisQueue {
    /// Connects to the servers.
    pub(crate) async fn connect(config: &Config, ttl: Duration) -> Result<Self> {
        let channel = format!("lockkeeper:{}", ClaimId::random());
        let waiters: Arc<Waiters> = Arc::default();
        let claims = Lifeline::new();
        let receiver = (Arc::clone(&waiters), claims.clone());
        let message = move |message: &str| receive(&receiver.0, &receiver.1, message);
        let subscription = Subscription::to(channel.clone(), message);
        let servers = Servers::new(config, time_limit(ttl), subscription);
        let inner = Arc::new(Inner { servers, waiters, claims, channel, holder: HolderText::default() });
        let weak: Weak<Inner> = Arc::downgrade(&inner);
        let look_at_all = move || {
            if let Some(inner) = weak.upgrade() {
                background::handle().spawn(async move { inner.look_at_all().await });
            }
        };
        inner.servers.connect(look_at_all).await?;
        Ok(Self(inner))
    }
}

/// Receives a message of the keeper's channel: the id of a claim that holds now, `-` and the id of one that the server has
/// removed, because it was evicted or has expired by the server's clock, or `?` and the id of one that is to be released.
fn receive(waiters: &Waiters, claims: &Lifeline, message: &str) {
    if let Some(asked) = message.strip_prefix('?') {
        asked.parse().into_iter().for_each(|id| claims.ask_one(id));
        return;
    }
    let (id, news) = match message.strip_prefix('-') {
        Some(id) => (id, WaitState::Gone),
        None => (message, WaitState::Holds),
    };
    if let Ok(id) = id.parse() {
        waiters.notify(id, news);
        if news == WaitState::Gone {
            claims.end_one(id);
        }
    }
}

/// A call of the script on one lock.
fn call(name: &LockName, verb: &str) -> Call {
    QUEUE.call(&QueueKeys::of(name.as_str()).0).arg(verb)
}

fn keep_call(locks: &[&[(Claim, Duration)]]) -> Call {
    let keys: Vec<String> = locks.iter().flat_map(|lock| QueueKeys::of(lock[0].0.name.as_str()).0).collect();
    let mut call = QUEUE.call(&keys).arg("keep");
    for lock in locks {
        call = call.arg(lock.len());
        for (claim, ttl) in *lock {
            call = call.arg(claim.id.hex().as_str()).arg(milliseconds(*ttl));
        }
    }
    call
}

impl Inner {
    fn join_call(&self, claim: &Claim) -> Call {
        let [lock, queue, expiries, waiters] = QueueKeys::of(claim.name.as_str()).0;
        let token = keys::token(&lock, self.servers.is_cluster());
        let keys = [&*lock, &*queue, &*expiries, &*waiters, &*token];
        let demand = claim.demand;
        let shape = match demand.shape() {
            Shape::ReadWrite => format!("rw{}", demand.limit()),
            Shape::Permits { of } => of.to_string(),
        };
        let (weight, channel, holder) = (demand.weight(), &self.channel, self.holder.of(claim));
        QUEUE
            .call(&keys)
            .arg("join")
            .arg(claim.id.hex().as_str())
            .arg(milliseconds(claim.ttl))
            .arg(format!("{weight} {shape} {channel} {demand} {holder}"))
    }

    /// Enters the claim's state after a join; the reply to a claim that was refused is an error.
    fn joined(&self, claim: &Claim, waiter: &Waiter, reply: Value) -> Result<Joined> {
        if let Some(Token(place)) = view::token(&reply) {
            self.waiters.remove(claim.id);
            return Ok(self.at(place, Ahead(0)));
        }
        let words: Vec<Value> = redis::from_redis_value(reply)
            .map_err(|cause| error(ENGINE, "read the reply to a join", cause.into()))?;
        let numbers: Vec<i64> = words.iter().filter_map(view::integer).collect();
        let [place, state, look_in_ms] = numbers[..] else {
            self.waiters.remove(claim.id);
            return Err(refused(claim, &words));
        };
        let state = WaitState::read(state, look_in_ms);
        waiter.notify(state);
        let place = u64::try_from(place).unwrap_or_default();
        if state != WaitState::Holds {
            return Ok(self.at(place, full(claim)));
        }
        self.waiters.remove(claim.id);
        Ok(self.at(place, Ahead(0)))
    }

    fn at(&self, place: u64, ahead: Ahead) -> Joined {
        Joined { place: Place(place), token: Token(place), ahead, lifeline: Some(self.claims.clone()) }
    }

    /// Renews claims in one pipeline, many locks with one call, and notifies those that wait.
    async fn keep(&self, claims: impl IntoIterator<Item = (Claim, Duration)>) -> Result<Kept> {
        let mut claims: Vec<(Claim, Duration)> = claims.into_iter().collect();
        claims.sort_by(|one, other| one.0.name.cmp(&other.0.name));
        let locks: Vec<&[(Claim, Duration)]> =
            claims.chunk_by(|one, next| one.0.name == next.0.name).collect();
        let at_once = if self.servers.is_cluster() { 1 } else { LOCKS_PER_CALL };
        let calls = locks.chunks(at_once).map(keep_call).collect();
        let mut states: Vec<Vec<i64>> = Vec::with_capacity(locks.len());
        for reply in self.servers.run_all_durable("renew", calls).await? {
            let some: Vec<Vec<i64>> = redis::from_redis_value(reply)
                .map_err(|cause| error(ENGINE, "read a renewal", cause.into()))?;
            states.extend(some);
        }
        let mut kept = Kept::default();
        for (lock, numbers) in locks.iter().zip(states) {
            for ((claim, _), state) in lock.iter().zip(numbers.chunks_exact(2)) {
                kept.asked.extend((state[0] == ASKED).then_some(claim.id));
                let state = WaitState::read(state[0], state[1]);
                self.waiters.notify(claim.id, state);
                if state == WaitState::Gone {
                    kept.dead.push(claim.id);
                }
            }
        }
        Ok(kept)
    }

    /// Messages may have been missed: one look at all that wait, in one pipeline.
    async fn look_at_all(&self) {
        let waiting = self.waiters.all().into_iter().map(|waiter| (waiter.claim.clone(), waiter.claim.ttl));
        if let Err(error) = self.keep(waiting).await {
            tracing::debug!(%error, "could not look after a reconnect; the next renewal will");
        }
    }
}

/// The state of a claim that holds and that somebody asks for.
const ASKED: i64 = 3;

/// More than leaves room for any claim: all that needs to be known of a queue in which a claim does not fit.
fn full(claim: &Claim) -> Ahead {
    Ahead(claim.demand.limit())
}

/// Why a join was refused: the ruling shape, or nothing if the claim has left already.
fn refused(claim: &Claim, words: &[Value]) -> Error {
    let Some(ruling) = words.first().and_then(view::text) else { return claim.gone() };
    let ruling = ruling.parse().map_or(Shape::ReadWrite, |of| Shape::Permits { of });
    claim.check_shape(ruling).err().unwrap_or_else(|| claim.gone())
}

impl Queue for RedisQueue {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, wanted: Duration) -> Duration {
        wanted
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let waiter = self.0.waiters.enter(claim);
        let reply = self.0.servers.run_durable("join the queue", self.0.join_call(claim)).await?;
        self.0.joined(claim, &waiter, reply)
    }

    async fn changed(&self, claim: &Claim, _: Place, _: Ahead) -> Result<Ahead> {
        let waiter = self.0.waiters.get(claim.id).ok_or_else(|| claim.gone())?;
        loop {
            let look_at = match waiter.state() {
                WaitState::Holds => {
                    self.0.waiters.remove(claim.id);
                    return Ok(Ahead(0));
                }
                WaitState::Gone => return Err(claim.gone()),
                WaitState::Waits { look_at } => look_at,
            };
            let look_at = async {
                match look_at {
                    Some(moment) => {
                        Clock::Boot.sleep(moment.saturating_duration_since(Instant::now())).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waiter.changed() => {}
                () = look_at => drop(self.0.keep([(claim.clone(), claim.ttl)]).await?),
            }
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let claims = renewals.iter().map(|renewal| (renewal.claim.as_ref().clone(), renewal.ttl));
        self.0.keep(claims).await
    }

    fn detached(&self, claim: &Claim) {
        self.0.claims.untie(claim.id);
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.0.waiters.remove(claim.id);
        self.0.claims.untie(claim.id);
        let call = call(&claim.name, "leave").arg(claim.id.hex().as_str()).arg(milliseconds(claim.ttl));
        let (reply, again) = self.0.servers.run_twice("leave the queue", &call).await?;
        // When the second run finds nothing, the first one has done it.
        Ok(if view::integer(&reply) == Some(1) || again { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let id = claim.id.to_string();
        let call = call(&claim.name, "shrink").arg(id).arg(to.weight()).arg(to.to_string());
        let reply = self.0.servers.run("downgrade", &call).await?;
        if view::integer(&reply) == Some(1) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let doing = "list locks";
        let keys = self.0.servers.scan(doing, &QueueKeys::pattern(prefix), "string").await?;
        let mut names: Vec<String> = keys.iter().filter_map(|key| QueueKeys::name(key)).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        let mut locks = Vec::new();
        // A lock may have been left meanwhile, so the limit is counted by what is in use.
        for some in names.chunks(256) {
            let calls = some.iter().map(|name| QUEUE.call(&QueueKeys::of(name).0).arg("list")).collect();
            for (name, reply) in some.iter().zip(self.0.servers.run_all(doing, calls).await?) {
                let lock = view::queue(name, reply)?;
                locks.extend(Some(lock).filter(|lock| !lock.claims.is_empty()));
            }
            if locks.len() >= at_most {
                break;
            }
        }
        locks.truncate(at_most);
        Ok(locks)
    }

    async fn look(&self, name: &LockName) -> Result<Option<LockView>> {
        let reply = self.0.servers.run("look at a lock", &call(name, "list")).await?;
        let lock = view::queue(name.as_str(), reply)?;
        Ok(Some(lock).filter(|lock| !lock.claims.is_empty()))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let reply = self.0.servers.run("evict a claim", &call(name, "evict").arg(id.to_string())).await?;
        Ok(view::integer(&reply) == Some(1))
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let call = call(name, "ask").arg(id.to_string());
        let reply = self.0.servers.run("ask a holder to release", &call).await?;
        Ok(view::integer(&reply) == Some(1))
    }

    async fn close(&self) {
        self.0.servers.close();
    }
}

#[cfg(test)]
mod tests;
