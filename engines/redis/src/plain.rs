//! The style 'plain': a string key as other clients write it, with a fencing token in it.

use crate::config::{Config, ENGINE, time_limit};
use crate::connection::{Script, milliseconds};
use crate::error::error;
use crate::keys::{self, PlainKeys};
use crate::poller::{Pace, Pollers, Wakes};
use crate::servers::Servers;
use crate::view::{self, HolderText};
use crate::wake::Subscription;
use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, LockName, Race, Renewal, background,
};
use lockkeeper_core::{Abilities, Error, LockView, Result};
use redis::Value;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

static ATTEMPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/plain_attempt.lua")));
static WAIT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/plain_wait.lua")));
static LEAVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/plain_leave.lua")));
static KEEP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/plain_keep.lua")));
static ASK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/plain_ask.lua")));
static LIST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/plain_list.lua")));

/// How many locks one call renews: enough to spare the server most of the calls, few enough not to hold it up.
const LOCKS_PER_CALL: usize = 64;
/// A list shows a string key that is not ours as another client's lock if it expires and is not longer: a random value, or
/// who has it since when.
const LONGEST_FOREIGN_BYTES: usize = 128;

/// Plain locks on Redis.
#[derive(Debug)]
pub(crate) struct RedisPlain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    servers: Servers,
    channel: String,
    wakes: Wakes,
    pollers: Pollers,
    holder: HolderText,
}

impl RedisPlain {
    /// Connects to the servers.
    pub(crate) async fn connect(config: &Config, ttl: Duration) -> Result<Self> {
        let channel = format!("lockkeeper:{}", ClaimId::random());
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| {
            let receiver = weak.clone();
            let message = move |message: &str| {
                if let Some(inner) = receiver.upgrade() {
                    inner.receive(message);
                }
            };
            let subscription = Subscription::to(channel.clone(), message);
            Inner {
                servers: Servers::new(config, time_limit(ttl), subscription),
                channel,
                wakes: Wakes::default(),
                pollers: Pollers::default(),
                holder: HolderText::default(),
            }
        });
        let weak = Arc::downgrade(&inner);
        let poll_now = move || {
            if let Some(inner) = weak.upgrade() {
                inner.pollers.poll_now();
            }
        };
        inner.servers.connect(poll_now).await?;
        Ok(Self(inner))
    }
}

impl Inner {
    fn keys(&self, name: &LockName) -> Result<PlainKeys> {
        let keys = PlainKeys::of(name.as_str());
        if self.servers.is_cluster() && !keys.in_one_slot() {
            return Err(Error::invalid(format!(
                "the lock name {name:?} does not work with redis+cluster in the style 'plain': \
                 remove the brace, or use the style 'queue'"
            )));
        }
        Ok(keys)
    }

    /// Receives a message of the keeper's channel: `<claim id> <lock>`. If the claim has given up, the next one is woken.
    fn receive(self: &Arc<Self>, message: &str) {
        let Some((id, name)) = message.split_once(' ') else { return };
        let Ok(id) = id.parse() else { return };
        if !self.wakes.notify(id) {
            let (inner, name) = (Arc::clone(self), LockName::from_engine(name));
            background::handle().spawn(async move {
                let _ = inner.leave("wake the next", &name, None, Duration::ZERO).await;
            });
        }
    }

    /// Frees the lock if the claim has it, and wakes the next; without a claim it only wakes. Says whether the claim had
    /// the lock, and whether an earlier run may have freed it.
    async fn leave(
        &self,
        doing: &'static str,
        name: &LockName,
        id: Option<ClaimId>,
        mark: Duration,
    ) -> Result<(bool, bool)> {
        let claim = id.map(|id| id.to_string()).unwrap_or_default();
        self.free(doing, name, claim.as_bytes(), id.unwrap_or(ClaimId(0)), mark).await
    }

    /// Like [`leave`](Self::leave), for a claim of anybody's: ours by its id, another client's by its whole value.
    async fn free(
        &self,
        doing: &'static str,
        name: &LockName,
        claim: &[u8],
        id: ClaimId,
        mark: Duration,
    ) -> Result<(bool, bool)> {
        let keys = self.keys(name)?;
        let left = keys.left(id);
        let call = LEAVE
            .call(&[&keys.lock, &keys.waiting(), &left])
            .arg(claim)
            .arg(u64::try_from(mark.as_millis()).unwrap_or(u64::MAX))
            .arg(if self.servers.is_cluster() { "" } else { "1" });
        let (reply, again) = self.servers.run_twice(doing, &call).await?;
        Ok((view::integer(&reply) == Some(1), again))
    }

    /// Requests a message for when the lock is free. `None` if the lock is free by now, else how long to sleep at most: no
    /// longer than the hold can last.
    async fn request_wake(&self, claim: &Claim, pace: &mut Pace) -> Result<Option<Duration>> {
        let keys = self.keys(&claim.name)?;
        let call = WAIT
            .call(&[&keys.lock, &keys.waiting()])
            .arg(format!("{} {}", self.channel, claim.id))
            .arg(milliseconds(claim.ttl));
        let reply = self.servers.run("wait for the lock", &call).await?;
        let Value::Array(words) = &reply else { return Ok(None) };
        let [left_ms, ours, Value::BulkString(holder)] = &words[..] else { return Ok(None) };
        let pause = match view::integer(ours) {
            Some(1) => pace.with_ours(claim.ttl),
            _ => pace.with_foreign(holder),
        };
        let left_ms = view::integer(left_ms).and_then(|ms| u64::try_from(ms).ok());
        let until_it_ends = left_ms.map_or(Duration::MAX, |left| Duration::from_millis(left + 1));
        Ok(Some(pause.min(until_it_ends)))
    }
}

impl Race for RedisPlain {
    fn abilities(&self) -> Abilities {
        crate::STYLES[1]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, wanted: Duration) -> Duration {
        wanted
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let keys = self.0.keys(&claim.name)?;
        let token = keys::token(&keys.lock, self.0.servers.is_cluster());
        let call = ATTEMPT
            .call(&[&*keys.lock, &*token, &*keys.left(claim.id)])
            .arg(claim.id.hex().as_str())
            .arg(&*self.0.holder.of(claim))
            .arg(milliseconds(claim.ttl));
        let reply = self.0.servers.run_durable("take the lock", call).await?;
        if let Some(token) = view::token(&reply) {
            return Ok(Attempted::Granted(Grant { token }));
        }
        let Value::Array(words) = &reply else {
            return Err(Error::permanent(ENGINE, "read the reply to an attempt", format!("{reply:?}")));
        };
        let left_ms = words.first().and_then(view::integer).and_then(|ms| u64::try_from(ms).ok());
        Ok(Attempted::Busy { free_in: left_ms.map(Duration::from_millis) })
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        let poller = self.0.pollers.enter(&claim.name, claim.id);
        poller.first().await;
        let wake = self.0.wakes.enter(claim.id);
        let mut pace = Pace::default();
        while let Some(pause) =
            self.0.request_wake(claim, &mut pace).await.inspect_err(|_| poller.failed())?
        {
            poller.polls_after(pause);
            tokio::select! {
                () = wake.message() => break,
                () = poller.called() => {}
                () = Clock::Boot.sleep(pause) => {}
            }
        }
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let at_once = if self.0.servers.is_cluster() { 1 } else { LOCKS_PER_CALL };
        let calls = renewals.chunks(at_once).map(|some| {
            let keys: Vec<&str> = some.iter().map(|renewal| renewal.claim.name.as_str()).collect();
            some.iter().fold(KEEP.call(&keys), |call, Renewal { claim, ttl, .. }| {
                call.arg(claim.id.hex().as_str()).arg(milliseconds(*ttl))
            })
        });
        let mut kept: Vec<i64> = Vec::with_capacity(renewals.len());
        for reply in self.0.servers.run_all_durable("renew", calls.collect()).await? {
            let some: Vec<i64> = redis::from_redis_value(reply)
                .map_err(|cause| error(ENGINE, "read a renewal", cause.into()))?;
            kept.extend(some);
        }
        let with = |state: fn(i64) -> bool| {
            let found = renewals.iter().zip(&kept).filter(|(_, kept)| state(**kept));
            found.map(|(renewal, _)| renewal.claim.id).collect()
        };
        Ok(Kept::new(with(|state| state == 0)).asked(with(|state| state == 2)))
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let mark = claim.ttl.max(Duration::from_millis(1));
        let (was_here, again) = self.0.leave("free the lock", &claim.name, Some(claim.id), mark).await?;
        // When the second run finds nothing, the first one has done it.
        Ok(if was_here || again { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let doing = "list locks";
        let mut names = self.0.servers.scan(doing, &PlainKeys::pattern(prefix), "string").await?;
        names.retain(|name| name.starts_with(prefix) && !PlainKeys::is_beside(name));
        names.sort_unstable();
        let mut locks = Vec::new();
        for some in names.chunks(256) {
            let calls = some.iter().map(|name| LIST.call(&[name]).arg(LONGEST_FOREIGN_BYTES)).collect();
            for (name, reply) in some.iter().zip(self.0.servers.run_all(doing, calls).await?) {
                locks.extend(view::plain(name, &reply));
            }
            if locks.len() >= at_most {
                break;
            }
        }
        locks.truncate(at_most);
        Ok(locks)
    }

    async fn look(&self, name: &LockName) -> Result<Option<LockView>> {
        let reply = self.0.servers.run("look at a lock", &LIST.call(&[name.as_str()]).arg("")).await?;
        Ok(view::plain(name.as_str(), &reply))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        Ok(self.0.leave("evict a claim", name, Some(id), Duration::ZERO).await?.0)
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let call = ASK.call(&[name.as_str()]).arg(id.to_string());
        let reply = self.0.servers.run("ask a holder to release", &call).await?;
        Ok(view::integer(&reply) == Some(1))
    }

    async fn evict_foreign(&self, name: &LockName, claim: &str) -> Result<bool> {
        let free = |value| self.0.free("evict a claim", name, value, ClaimId(0), Duration::ZERO);
        if free(claim.as_bytes()).await?.0 {
            return Ok(true);
        }
        match view::foreign_bytes(claim) {
            Some(bytes) => Ok(free(&bytes).await?.0),
            None => Ok(false),
        }
    }

    async fn close(&self) {
        self.0.servers.close();
    }
}
