//! The styles 'redisson' and 'redisson-rw': Redisson's RLock and RReadWriteLock, so that its clients exclude us and we them.
//! Only Redis has a client whose locks have a layout and messages of their own.

use crate::config::{Config, ENGINE, time_limit};
use crate::connection::{Call, Script, milliseconds};
use crate::error::error;
use crate::keys::{self, PlainKeys, RedissonKeys};
use crate::servers::Servers;
use crate::view::{self, HolderText};
use crate::wake::{Channels, News, Subscription};
use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, LockName, Race, Renewal, background,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result};
use redis::Value;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

static ATTEMPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/redisson_attempt.lua")));
static LEAVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/redisson_leave.lua")));
static KEEP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/redisson_keep.lua")));
static ASK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/redisson_ask.lua")));
static SHRINK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/redisson_shrink.lua")));
static LIST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/redisson_list.lua")));

/// How many locks one call renews.
const LOCKS_PER_CALL: usize = 64;
/// How long an unused subscription is kept for the next waiter.
const KEPT: Duration = Duration::from_secs(1);
/// The longest pause, but for a shorter TTL, between two looks of the one of a keeper's waiters that looks: a message or the
/// server may be lost, and a detached hold may be made to end earlier than it was to.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);
/// Java numbers its threads from 1, so this one is ours.
const THREAD: u64 = 0;
/// What the field of a writer ends in.
const WRITE: &str = ":write";

/// Redisson's locks.
#[derive(Debug)]
pub(crate) struct Redisson(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    servers: Servers,
    channels: Channels,
    holder: HolderText,
    is_read_write: bool,
    fenced: bool,
}

impl Redisson {
    /// Connects to the servers.
    pub(crate) async fn connect(config: &Config, ttl: Duration) -> Result<Self> {
        let is_read_write = config.style == "redisson-rw";
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| {
            let receiver = weak.clone();
            let subscription = Subscription::to_any(move |channel: &str, news: News<'_>| {
                if let Some(inner) = receiver.upgrade() {
                    inner.channels.receive(channel, news, is_read_write);
                }
            });
            Inner {
                servers: Servers::new(config, time_limit(ttl), subscription),
                channels: Channels::default(),
                holder: HolderText::default(),
                is_read_write,
                fenced: config.fenced,
            }
        });
        // Who waits notices by itself that its connection is lost.
        inner.servers.connect(|| {}).await?;
        Ok(Self(inner))
    }
}

/// The field of a claim of ours: its id in the form of a UUID, and a thread.
fn field(id: ClaimId) -> String {
    let hex = id.hex();
    let hex = hex.as_str();
    let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("{}:{THREAD}", groups.join("-"))
}

/// The id of the claim with this field. For other clients it is made of the UUID, the thread and the kind of the claim, so that
/// their claims can be named, and evicted, as ours can.
pub(crate) fn id_of(field: &str) -> Option<ClaimId> {
    let (thread, kind) = match field.strip_suffix(WRITE) {
        Some(thread) if !thread.ends_with(&format!(":{THREAD}")) => (thread, 1 << 64),
        Some(thread) => (thread, 0),
        None => (field, 0),
    };
    let (uuid, thread) = thread.rsplit_once(':')?;
    let uuid = u128::from_str_radix(&uuid.replace('-', ""), 16).ok()?;
    Some(ClaimId(uuid.wrapping_add(thread.parse::<u64>().ok()?.into()) ^ kind))
}

impl Inner {
    fn keys<'a>(&self, name: &'a LockName) -> Result<RedissonKeys<'a>> {
        let keys = RedissonKeys(name.as_str());
        if self.servers.is_cluster() && !keys.in_one_slot() {
            return Err(Error::invalid(format!(
                "the lock name {name:?} does not work with redis+cluster in this style: \
                 remove the brace, or use the style 'queue'"
            )));
        }
        Ok(keys)
    }

    fn publish(&self) -> &'static str {
        if self.servers.is_cluster() { "SPUBLISH" } else { "PUBLISH" }
    }

    fn channel(&self, name: &LockName) -> String {
        RedissonKeys(name.as_str()).channel(self.is_read_write)
    }

    /// Takes these fields out of the lock. Says whether one was there, and whether an earlier run may have done it.
    async fn leave(
        &self,
        doing: &'static str,
        name: &LockName,
        id: ClaimId,
        fields: &[String],
        mark_ms: u64,
    ) -> Result<(bool, bool)> {
        let keys = self.keys(name)?;
        let call = LEAVE
            .call(&[name.as_str(), &keys.left(id), &keys.note(&field(id))])
            .arg(mark_ms)
            .arg(self.publish())
            .arg(keys.channel(self.is_read_write))
            .arg(keys.before());
        let call = fields.iter().fold(call, |call, field| call.arg(field));
        let (reply, again) = self.servers.run_twice(doing, &call).await?;
        Ok((view::integer(&reply) == Some(1), again))
    }

    fn list_call(name: &str) -> Call {
        LIST.call(&[name]).arg(RedissonKeys(name).before())
    }

    async fn look(&self, name: &LockName) -> Result<Option<LockView>> {
        let reply = self.servers.run("look at a lock", &Self::list_call(name.as_str())).await?;
        Ok(view::redisson(name.as_str(), &reply, id_of))
    }

    /// Whether an attempt may succeed now.
    async fn may_be_free(&self, claim: &Claim) -> Result<bool> {
        let lock = self.look(&claim.name).await?;
        let is_shared = |lock: LockView| lock.claims.iter().all(|claim| claim.demand == Demand::Shared);
        Ok(lock.is_none_or(|lock| claim.demand == Demand::Shared && is_shared(lock)))
    }
}

/// Ends the subscription to a channel when nobody waits there any more.
async fn end_unused(inner: Weak<Inner>, channel: String) {
    loop {
        Clock::Boot.sleep(KEPT).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.channels.end_unused(&channel, &inner.servers).await {
            return;
        }
    }
}

/// Why a claim cannot be made: the key is something else.
fn other_use(name: &LockName, what: &str) -> Error {
    let what = match what {
        "RLock" => "an RLock: use the style 'redisson', or another name".to_owned(),
        "RReadWriteLock" => "an RReadWriteLock: use the style 'redisson-rw', or another name".to_owned(),
        "RFairLock" => format!(
            "an RFairLock, whose queue lockkeeper does not join: use another name, or delete the key '{}' if nobody waits \
             there any more",
            RedissonKeys(name.as_str()).queue()
        ),
        "hash" => "a hash that is no lock of Redisson's: use another name".to_owned(),
        kind => format!("a key of the type {kind}, and no lock of Redisson's: use another name"),
    };
    Error::permanent(ENGINE, "take the lock", format!("'{name}' is in use as {what}"))
}

impl Race for Redisson {
    fn abilities(&self) -> Abilities {
        crate::STYLES[if self.0.is_read_write { 3 } else { 2 }]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, wanted: Duration) -> Duration {
        wanted
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let keys = self.0.keys(&claim.name)?;
        let field = field(claim.id);
        let mode = match claim.demand {
            Demand::Shared => "read",
            _ if self.0.is_read_write => "write",
            _ => "",
        };
        let call = ATTEMPT
            .call(&[
                claim.name.as_str(),
                &keys::token(claim.name.as_str(), self.0.servers.is_cluster()),
                &keys.fence(),
                &keys.left(claim.id),
                &keys.note(&field),
                &keys.timeout(&field),
                &keys.queue(),
            ])
            .arg(&field)
            .arg(&*self.0.holder.of(claim))
            .arg(milliseconds(claim.ttl))
            .arg(mode)
            .arg(if self.0.fenced { "1" } else { "" });
        let reply = self.0.servers.run_durable("take the lock", call).await?;
        if let Some(token) = view::token(&reply) {
            return Ok(Attempted::Granted(Grant { token }));
        }
        match &reply {
            Value::Array(words) if matches!(words[..], [Value::BulkString(_)]) => {
                Err(other_use(&claim.name, &view::text(&words[0]).unwrap_or_default()))
            }
            Value::Array(words) => {
                let left_ms = words.first().and_then(view::integer).and_then(|ms| u64::try_from(ms).ok());
                Ok(Attempted::Busy { free_in: left_ms.map(Duration::from_millis) })
            }
            _ => Err(Error::permanent(ENGINE, "read the reply to an attempt", format!("{reply:?}"))),
        }
    }

    async fn changed(&self, claim: &Claim, free_in: Option<Duration>) -> Result<()> {
        let channel = self.0.channel(&claim.name);
        let unknown = || (claim.ttl / 3).max(Duration::from_secs(1));
        let pause = free_in
            .map_or_else(unknown, |free_in| free_in + Duration::from_millis(1))
            .min(LOOK_ANYWAY.min(claim.ttl));
        let (waiting, is_new) = self.0.channels.enter(&channel, claim.id, pause);
        if is_new {
            background::handle().spawn(end_unused(Arc::downgrade(&self.0), channel));
        }
        let (connection, is_fresh) = waiting.subscribe(&self.0.servers).await?;
        // A message may have come before the claim was entered. If it lets one claim try, one of this process has.
        if is_fresh || (self.0.is_read_write && self.0.may_be_free(claim).await?) {
            return Ok(());
        }
        waiting.message(&connection, claim.ttl).await;
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let at_once = if self.0.servers.is_cluster() { 1 } else { LOCKS_PER_CALL };
        let calls = renewals.chunks(at_once).map(|some| {
            let keys: Vec<String> = some
                .iter()
                .flat_map(|Renewal { claim, .. }| {
                    let (keys, field) = (RedissonKeys(claim.name.as_str()), field(claim.id));
                    [claim.name.to_string(), keys.note(&field), keys.timeout(&field)]
                })
                .collect();
            some.iter().fold(KEEP.call(&keys), |call, Renewal { claim, ttl, .. }| {
                call.arg(field(claim.id)).arg(milliseconds(*ttl))
            })
        });
        let mut kept: Vec<i64> = Vec::with_capacity(renewals.len());
        for reply in self.0.servers.run_all_durable("renew", calls.collect()).await? {
            let some: Vec<i64> = redis::from_redis_value(reply)
                .map_err(|cause| error(ENGINE, "read a renewal", cause.into()))?;
            kept.extend(some);
        }
        let with = |state: i64| {
            let claims = renewals.iter().zip(&kept).filter(|(_, kept)| **kept == state);
            claims.map(|(renewal, _)| renewal.claim.id).collect()
        };
        Ok(Kept::new(with(0)).asked(with(2)))
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let field = field(claim.id);
        // A writer that was downgraded is a reader.
        let fields = [format!("{field}{WRITE}"), field];
        let fields = if self.0.is_read_write { &fields[..] } else { &fields[1..] };
        let left =
            self.0.leave("free the lock", &claim.name, claim.id, fields, milliseconds(claim.ttl)).await;
        if !matches!(left, Ok((true, _))) {
            self.0.channels.pass_on(&self.0.channel(&claim.name));
        }
        let (was_here, again) = left?;
        // When the second run finds nothing, the first one has done it.
        Ok(if was_here || again { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, _: Demand) -> Result<()> {
        let (keys, field) = (self.0.keys(&claim.name)?, field(claim.id));
        let call = SHRINK
            .call(&[claim.name.as_str(), &keys.timeout(&field)])
            .arg(&field)
            .arg(self.0.publish())
            .arg(keys.channel(true));
        let (reply, _) = self.0.servers.run_twice("downgrade a hold", &call).await?;
        if view::integer(&reply) == Some(1) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let doing = "list locks";
        let mut names = self.0.servers.scan(doing, &PlainKeys::pattern(prefix), "hash").await?;
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        let mut locks = Vec::new();
        for some in names.chunks(256) {
            let calls = some.iter().map(|name| Inner::list_call(name)).collect();
            for (name, reply) in some.iter().zip(self.0.servers.run_all(doing, calls).await?) {
                locks.extend(view::redisson(name, &reply, id_of));
            }
            if locks.len() >= at_most {
                break;
            }
        }
        locks.truncate(at_most);
        Ok(locks)
    }

    async fn look(&self, name: &LockName) -> Result<Option<LockView>> {
        self.0.look(name).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let doing = "evict a claim";
        let reply = self.0.servers.run(doing, &Inner::list_call(name.as_str())).await?;
        let Value::Array(words) = reply else { return Ok(false) };
        let fields = words.iter().skip(2).step_by(5).filter_map(view::text);
        let fields: Vec<String> = fields.filter(|field| id_of(field) == Some(id)).collect();
        Ok(!fields.is_empty() && self.0.leave(doing, name, id, &fields, 0).await?.0)
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let (keys, field) = (self.0.keys(name)?, field(id));
        let call = ASK.call(&[name.as_str(), &keys.note(&field)]).arg(&field);
        let reply = self.0.servers.run("ask a holder to release", &call).await?;
        Ok(view::integer(&reply) == Some(1))
    }

    async fn close(&self) {
        self.0.servers.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_leads_back_to_the_claim() {
        let id = ClaimId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(field(id), "01234567-89ab-cdef-0123-456789abcdef:0");
        assert_eq!(id_of(&field(id)), Some(id));
        assert_eq!(id_of(&format!("{}{WRITE}", field(id))), Some(id), "a downgraded writer keeps its id");
        assert_eq!(id_of("name"), None);
    }

    #[test]
    fn each_claim_of_another_client_has_an_id_of_its_own() {
        let client = "01234567-89ab-cdef-0123-456789abcdef";
        let mut ids: Vec<_> = ["1", "2", "31", "1:write", "2:write"]
            .map(|thread| id_of(&format!("{client}:{thread}")).unwrap())
            .to_vec();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 5);
    }
}
