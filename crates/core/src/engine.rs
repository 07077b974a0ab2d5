//! For authors of engines: the seams, what travels over them, and the parts that engines share.
//!
//! Implement [`Queue`] (fair, first come, first served) or [`Race`] (unfair), wrap it in [`QueueEngine`] or [`RaceEngine`],
//! and register a scheme for it with `lockkeeper::register`. Users of the locks need nothing of this module.

pub use crate::address::{Address, Host, parse_duration};
#[doc(inline)]
pub use crate::background;
pub use crate::batch::{Batch, Batcher, send_apart};
pub use crate::claim::{Claim, ClaimId, Hex, KeeperId, RUN_VARIABLE, SHARED_LIMIT, runs_around};
pub use crate::clock::{Clock, Moment};
pub use crate::connections::{Connection, Connections, NoReply, Replies};
#[doc(inline)]
pub use crate::grant;
pub use crate::keeper::Builder;
pub use crate::life::{Attempt, Lifeline};
pub use crate::memory::Memory;
pub use crate::name::LockName;
pub use crate::password::{Password, PasswordCallback};
pub use crate::queue::{Ahead, Joined, Place, Queue, QueueEngine};
pub use crate::race::{Attempted, Race, RaceEngine};
pub use crate::worker::Worker;

use crate::claim::{Demand, Token};
use crate::error::{Error, Result};
use crate::views::LockView;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A future in a box, so that `Engine` can be used as `Arc<dyn Engine>`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[doc(hidden)]
pub mod sealed {
    /// Implemented by the two mechanisms, and by the conformance suite's wrapper.
    pub trait Sealed {}
}

/// What a keeper needs of an engine. It cannot be implemented outside of lockkeeper: implement [`Queue`] or [`Race`] and wrap
/// that in [`QueueEngine`] or [`RaceEngine`], where the mechanism is written once.
pub trait Engine: sealed::Sealed + Send + Sync + 'static {
    /// What this engine and style can do.
    fn abilities(&self) -> Abilities;

    /// The clock its leases are measured on.
    fn clock(&self) -> Clock;

    /// The TTL it really gives when asked for this one; a session engine negotiates it with its server.
    fn ttl(&self, asked: Duration) -> Duration;

    /// Tries to get the claim granted: waits as long as the attempt allows, `None` if it may not wait.
    ///
    /// Dropping the future leaves the claim's fate open; the keeper settles it with `release`.
    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, Result<Option<Grant>>>;

    /// Keeps all these claims alive, in one go; says which are dead.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Result<Kept>>;

    /// Takes over a detached claim, which this engine renews from now on; `None` if it is gone.
    fn attach<'a>(&'a self, renewal: &'a Renewal, token: Token) -> BoxFuture<'a, Result<Option<Attached>>>;

    /// Forgets a claim for which no leave comes: it was detached, or its leaves had no reply until it must have expired.
    fn detached(&self, claim: &Claim);

    /// Ends the claim, whatever its state: waiting, held, lost or never arrived. Idempotent by its id.
    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Left>>;

    /// Lets a holder shrink (write to read) without leaving the queue.
    fn shrink<'a>(&'a self, claim: &'a Claim, to: Demand) -> BoxFuture<'a, Result<()>>;

    /// The locks in use whose name begins with the prefix, sorted by name, at most `at_most`.
    fn inspect<'a>(&'a self, prefix: &'a str, at_most: usize) -> BoxFuture<'a, Result<Vec<LockView>>>;

    /// The lock of exactly this name; `None` if it is free.
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockView>>> {
        Box::pin(async move { Ok(one_of(self.inspect(name.as_str(), FEW).await?, name)) })
    }

    /// Removes somebody's claim by force; `false` if it was not there.
    fn evict<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>>;

    /// Notes that somebody asks for a claim to be released, which its owner learns by a message or with its next renewal
    /// ([`Kept::asked`]); `false` if it is known not to be there.
    fn ask<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>>;

    /// Removes a claim of another client by force, which is named as the engine shows it; `false` if it was not there.
    fn evict_foreign<'a>(&'a self, name: &'a LockName, claim: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.evict(name, foreign_id(claim)?).await })
    }

    /// Ends the engine's connections and background tasks. Claims still alive are ended before.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The id of another client's claim, on engines that know it by a number.
pub(crate) fn foreign_id(claim: &str) -> Result<ClaimId> {
    claim.parse().map_err(|_| {
        Error::invalid(format!(
            "cannot evict the claim {claim:?}: another client has it, and this engine cannot remove it; end it in that client"
        ))
    })
}

/// A lock comes before those whose names begin with its own, so a short list has it, whatever the order of other characters.
pub(crate) const FEW: usize = 16;

/// The lock of this name among those of a list.
pub(crate) fn one_of(locks: Vec<LockView>, name: &LockName) -> Option<LockView> {
    locks.into_iter().find(|lock| lock.name == name.as_str())
}

/// A claim that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Larger than every earlier grant's of this lock (Law 8).
    pub token: Token,
}

/// One claim to keep alive.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Renewal {
    /// The claim.
    pub claim: Arc<Claim>,
    /// How long it may live from now on without another renewal: the claim's TTL, less when a fixed lease ends sooner,
    /// more when the claim is to outlive this process for longer.
    pub ttl: Duration,
    /// How long it must live from now on even if this process ends, never more than the TTL; zero for a claim that may
    /// end with it. Only an engine whose claims depend on something of the process beside the TTL looks at it.
    pub outlives: Duration,
    /// How long ago the claim was granted, in the renewals of the first TTL after that: at least one of them arrives, or the
    /// claim is lost. `None` before and after, and for a claim that was attached. An engine that does not know the time of the
    /// grant by then notes it, by its own clock, for its views.
    pub held_for: Option<Duration>,
}

impl Renewal {
    /// Of a claim that may end with the process.
    pub fn new(claim: Arc<Claim>, ttl: Duration) -> Self {
        Self { claim, ttl, outlives: Duration::ZERO, held_for: None }
    }

    /// The claim was granted this long ago.
    #[must_use]
    pub fn held_for(self, held_for: Option<Duration>) -> Self {
        Self { held_for, ..self }
    }

    /// The claim must live this long even if the process ends.
    #[must_use]
    pub fn outlives(self, outlives: Duration) -> Self {
        Self { ttl: self.ttl.max(outlives), outlives, ..self }
    }
}

/// A claim that was taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attached {
    /// What the claim hangs on beside its TTL, if anything: a session.
    pub lifeline: Option<Lifeline>,
}

impl Attached {
    /// With a lifeline.
    pub fn on(lifeline: Lifeline) -> Self {
        Self { lifeline: Some(lifeline) }
    }

    /// What came of a renewal of this claim alone.
    pub fn by_renewal(kept: &Kept) -> Option<Self> {
        kept.dead.is_empty().then(Self::default)
    }
}

/// What became of a renewal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The claims that were no longer there. They are lost for good (Law 2).
    pub dead: Vec<ClaimId>,
    /// The moment as of which the engine is known to have had the others, if that is not the moment the
    /// renewal was sent: session engines know the send time of their last acknowledged ping.
    pub as_of: Option<Moment>,
    /// The claims that somebody asks to be released, each in every renewal from then on.
    pub asked: Vec<ClaimId>,
}

impl Kept {
    /// All but these, as of the moment the renewal was sent.
    pub fn new(dead: Vec<ClaimId>) -> Self {
        Self { dead, ..Self::default() }
    }

    /// The engine is known to have had the others at this moment, where it says.
    #[must_use]
    pub fn as_of(self, as_of: impl Into<Option<Moment>>) -> Self {
        Self { as_of: as_of.into(), ..self }
    }

    /// Somebody asks for these to be released.
    #[must_use]
    pub fn asked(self, asked: Vec<ClaimId>) -> Self {
        Self { asked, ..self }
    }
}

/// What a leave found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// The claim was there and has left.
    Left,
    /// It was not there: it had left, expired, been evicted, or never arrived.
    NotThere,
}

/// How soon a lock is free again after its holder's process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum CrashFrees {
    /// As soon as the system notices: a kernel lock, a connection.
    AtOnce,
    /// When the claim or session expires.
    WithinTtl,
    /// Never by itself: the locks live in the process.
    WithTheProcess,
}

/// What an engine and style can do; the table in the README is made of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Abilities {
    /// The engine's name, such as `redis`.
    pub engine: &'static str,
    /// The style, such as `queue`.
    pub style: &'static str,
    /// How to name it: an example of its URL.
    pub url: &'static str,
    /// First come, first served.
    pub fair: bool,
    /// Read-write locks.
    pub shared: bool,
    /// Semaphores.
    pub permits: bool,
    /// A writer may become a reader without letting go.
    pub downgrade: bool,
    /// A release wakes the next waiter by a message instead of a poll.
    pub push: bool,
    /// A claim has an expiry of its own at the engine, and not that of a connection or a session. So a hold can be
    /// detached from its process or kept for a least time, and a lock can have a TTL of its own.
    pub detach: bool,
    /// A holder can be asked to release, which its guard then says.
    pub ask: bool,
    /// An eviction ends other locks of the same keeper, too: they share a connection, which is ended.
    pub evict_ends_others: bool,
    /// Locks are shared with other processes.
    pub across_processes: bool,
    /// Locks are shared with other machines.
    pub across_machines: bool,
    /// Tokens still grow after the server (or the machine) restarts.
    pub token_survives_restart: bool,
    /// How soon a killed holder's lock is free.
    pub crash_frees: CrashFrees,
    /// The shortest TTL it takes.
    pub min_ttl: Duration,
}

impl Abilities {
    /// A style that excludes other machines, frees a killed holder's lock within the TTL, and has none of the abilities
    /// that the methods below add.
    pub const fn new(engine: &'static str, style: &'static str, url: &'static str) -> Self {
        Self {
            engine,
            style,
            url,
            fair: false,
            shared: false,
            permits: false,
            downgrade: false,
            push: false,
            detach: false,
            ask: false,
            evict_ends_others: false,
            across_processes: true,
            across_machines: true,
            token_survives_restart: true,
            crash_frees: CrashFrees::WithinTtl,
            min_ttl: crate::MIN_TTL,
        }
    }

    /// The error for what this style cannot do, with what to do instead.
    pub(crate) fn cannot(&self, what: &'static str, instead: &'static str) -> crate::Error {
        crate::Error::Unsupported {
            engine: format!("{} in the style '{}'", self.engine, self.style),
            what,
            instead,
        }
    }

    /// A fair queue: read-write locks with downgrade, and semaphores.
    #[must_use]
    pub const fn queue(self) -> Self {
        Self { fair: true, shared: true, permits: true, downgrade: true, ..self }
    }

    /// Read-write locks, without a queue.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// A writer may become a reader without letting go.
    #[must_use]
    pub const fn downgrade(self) -> Self {
        Self { downgrade: true, ..self }
    }

    /// A release wakes the next waiter by a message.
    #[must_use]
    pub const fn push(self) -> Self {
        Self { push: true, ..self }
    }

    /// Claims have an expiry of their own at the engine.
    #[must_use]
    pub const fn detach(self) -> Self {
        Self { detach: true, ..self }
    }

    /// A holder can be asked to release.
    #[must_use]
    pub const fn ask(self) -> Self {
        Self { ask: true, ..self }
    }

    /// An eviction ends other locks of the same keeper, too.
    #[must_use]
    pub const fn evict_ends_others(self) -> Self {
        Self { evict_ends_others: true, ..self }
    }

    /// The error of a style in which a holder cannot be asked to release.
    pub fn cannot_ask(&self) -> crate::Error {
        self.cannot("ask a holder to release", "evict its claim, or end its process")
    }

    /// Locks are shared by processes of one machine only.
    #[must_use]
    pub const fn one_machine(self) -> Self {
        Self { across_machines: false, ..self }
    }

    /// Locks are shared by the tasks of one process only, and tokens start again with it.
    #[must_use]
    pub const fn one_process(self) -> Self {
        Self {
            across_processes: false,
            across_machines: false,
            token_survives_restart: false,
            crash_frees: CrashFrees::WithTheProcess,
            ..self
        }
    }

    /// A killed holder's lock is free at once.
    #[must_use]
    pub const fn crash_frees_at_once(self) -> Self {
        Self { crash_frees: CrashFrees::AtOnce, ..self }
    }

    /// The shortest TTL it takes.
    #[must_use]
    pub const fn min_ttl(self, min_ttl: Duration) -> Self {
        Self { min_ttl, ..self }
    }
}
