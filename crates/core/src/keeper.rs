//! The keeper: one handle per process that makes claims, keeps them alive and leaves for the dropped.

use crate::acquire::Requester;
use crate::background::{self, Place};
use crate::claim::{Holder, KeeperId};
use crate::clock::Clock;
use crate::condition::Condition;
use crate::departure::Departures;
use crate::election::Election;
use crate::engine::{Abilities, Engine};
use crate::error::{Error, LostReason, Result};
use crate::multi::{MultiLock, Wanted};
use crate::mutex::Mutex;
use crate::name::{LockName, check_namespace};
use crate::owner::Owner;
use crate::renewal::{Renewals, Rounds};
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::telemetry::Telemetry;
use crate::views::LockView;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// How long a claim lives without a renewal, unless the keeper is built with another TTL.
pub const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How long a wait without a limit outlives an engine that does not reply, unless the keeper is built with another limit.
pub const DEFAULT_OUTAGE_LIMIT: Duration = Duration::from_secs(60);

/// The shortest TTL any engine takes; several ask for more.
pub const MIN_TTL: Duration = Duration::from_millis(100);

/// The longest time for which a hold may be detached or kept at least.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(30 * 24 * 3600);

/// One handle to an engine: makes claims, renews them all, leaves for the dropped. Cheap to clone.
///
/// Make one per process and engine. When the last clone and the last guard are gone, its background tasks
/// end; [`close`](Self::close) does the same and waits for it.
///
/// A dropped guard or wait leaves in the background. If some are still leaving when the last handle is dropped (a guard at
/// the end of `main`), that drop blocks its thread until they have left, up to one second; it does nothing of the
/// kind if every guard was released before. Where a thread must not block, [release](crate::Guard::release) guards or
/// close the keeper. A keeper in a `static` is never dropped: call `keeper.clone().close()` at the end of `main`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// use lockkeeper_core::{Keeper, engine::Memory};
/// let keeper = Keeper::builder().build(Memory::engine())?;
/// let guard = keeper.mutex("orders/42").lock().await?;
/// assert!(keeper.mutex("orders/42").try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Keeper(pub(crate) Arc<Inner>, pub(crate) Arc<Holder>);

pub(crate) struct Inner {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) id: KeeperId,
    pub(crate) ttl: Duration,
    pub(crate) namespace: String,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) departures: Departures,
    pub(crate) closed: AtomicBool,
    pub(crate) outage_limit: Duration,
    pub(crate) telemetry: Arc<Telemetry>,
}

/// The settings of a keeper; see [`Keeper::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    ttl: Duration,
    namespace: String,
    holder: String,
    outage_limit: Duration,
    label_locks: bool,
}

impl Builder {
    /// How long a claim lives without a renewal (default 10 s). Renewals are sent at a third of it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Keeps applications apart (default `lockkeeper`); empty means bare names, so that a lock of another
    /// client's can be named exactly.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Name shown to operators as the holder (default: the program's name).
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = holder.into();
        self
    }

    /// How long a wait without a limit of its own goes on while the engine does not reply (default one minute); then it
    /// ends with a temporary error.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.outage_limit = limit;
        self
    }

    /// Whether metrics have the label `lock` beside `engine` and `style` (default: no). For programs with few locks, since
    /// each name is a series of its own.
    pub fn label_locks(mut self, yes: bool) -> Self {
        self.label_locks = yes;
        self
    }

    /// Starts a keeper on an engine.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a TTL the engine does not take, a bad namespace or an overlong holder text.
    pub fn build(self, engine: Arc<dyn Engine>) -> Result<Keeper> {
        self.check(&engine.abilities())?;
        let telemetry = Arc::new(Telemetry::starting(&engine.abilities(), self.label_locks));
        let (clock, ttl) = (engine.clock(), engine.ttl(self.ttl));
        let place = match clock {
            Clock::Boot => Place::Background,
            Clock::Tokio(_) => Place::Caller(tokio::runtime::Handle::current()),
        };
        let renewals = Arc::new(Renewals::new());
        let (departures, departure_task) = Departures::new();
        let rounds = Rounds {
            renewals: Arc::clone(&renewals),
            departures: departures.clone(),
            engine: Arc::clone(&engine),
            telemetry: Arc::clone(&telemetry),
            clock,
            ttl,
        };
        place.spawn(rounds.run());
        place.spawn(departure_task.run(Arc::clone(&engine)));
        let inner = Inner {
            engine,
            clock,
            id: KeeperId::random(),
            ttl,
            namespace: self.namespace,
            renewals,
            departures,
            closed: AtomicBool::new(false),
            outage_limit: self.outage_limit,
            telemetry,
        };
        Ok(Keeper(Arc::new(inner), Arc::new(Holder::here(self.holder))))
    }

    fn check(&self, abilities: &Abilities) -> Result<()> {
        check_ttl(self.ttl, abilities)?;
        check_holder(&self.holder)?;
        check_namespace(&self.namespace)
    }
}

/// Refuses a text that is too long for a table, or would disturb it.
fn check_holder(text: &str) -> Result<()> {
    if text.len() > 256 || text.chars().any(char::is_control) {
        return Err(Error::invalid("bad holder text: at most 256 bytes and no control characters"));
    }
    Ok(())
}

/// Refuses a TTL that the engine does not take.
pub(crate) fn check_ttl(ttl: Duration, abilities: &Abilities) -> Result<()> {
    let least = abilities.min_ttl.max(MIN_TTL);
    if ttl < least {
        let engine = abilities.engine;
        return Err(Error::invalid(format!(
            "a TTL of {ttl:?} is too short for {engine}: give at least {least:?}"
        )));
    }
    if ttl > Duration::from_secs(24 * 3600) {
        return Err(Error::invalid(
            "a TTL of more than a day is too long: locks are renewed, so a short one does",
        ));
    }
    Ok(())
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            ttl: DEFAULT_TTL,
            namespace: "lockkeeper".into(),
            holder: String::new(),
            outage_limit: DEFAULT_OUTAGE_LIMIT,
            label_locks: false,
        }
    }
}

impl Keeper {
    /// Settings for a keeper, all with a default.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// This keeper for claims of another holder: they are shown to operators as this one's, and everything else is shared.
    /// For a program that holds locks on behalf of others.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Holder, Keeper, engine::Memory};
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let ci = keeper.for_holder(Holder { text: "ci".into(), host: "runner-3".into(), pid: 77 })?;
    /// let guard = ci.mutex("deploy").lock().await?;
    /// let lock = keeper.look("deploy").await?.expect("it is held");
    /// assert_eq!(lock.claims[0].holder.host, "runner-3");
    /// # drop(guard); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for an overlong text or host, or control characters in them.
    pub fn for_holder(&self, holder: Holder) -> Result<Self> {
        check_holder(&holder.text)?;
        check_holder(&holder.host)?;
        Ok(Self(Arc::clone(&self.0), Arc::new(holder)))
    }

    /// A lock that one claim holds at a time.
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(Requester::from(self), name.into())
    }

    /// A lock that readers share and a writer has exclusively.
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(Requester::from(self), name.into())
    }

    /// A lock of `of` permits. Every user of the name must give the same number.
    pub fn semaphore(&self, name: impl Into<String>, of: u32) -> Semaphore {
        Semaphore::new(Requester::from(self), name.into(), of)
    }

    /// Several locks as one: all or nothing, sorted, so that two of these never block each other for ever.
    pub fn all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| Wanted::exclusive(self, name)))
    }

    /// An owner, for reentrancy: its second `lock()` of a name shares the hold it already has.
    pub fn owner(&self) -> Owner {
        Owner::new(self.clone())
    }

    /// An election: one candidate at a time leads.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// A condition variable across processes.
    pub fn condition(&self, name: impl Into<String>) -> Condition {
        Condition::new(self.clone(), name.into())
    }

    /// The locks in use whose name begins with the prefix, with holders and waiters in order.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Engine`] when the engine does not reply.
    pub async fn inspect(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.inspect_at_most(prefix, 10_000).await
    }

    /// Like [`inspect`](Self::inspect), for at most `at_most` locks.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Engine`] when the engine does not reply.
    pub async fn inspect_at_most(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let full = self.0.full_prefix(prefix);
        let mut locks = self.0.engine.inspect(&full, at_most).await?;
        let strip = full.len() - prefix.len();
        for lock in &mut locks {
            lock.name.drain(..strip);
        }
        Ok(locks)
    }

    /// The lock of exactly this name, with holders and waiters in order; `None` if it is free.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name, [`Error::Engine`] when the engine does not reply.
    pub async fn look(&self, name: &str) -> Result<Option<LockView>> {
        let full = LockName::under(&self.0.namespace, name)?;
        let lock = self.0.engine.look(&full).await?;
        Ok(lock.map(|lock| LockView { name: name.into(), ..lock }))
    }

    /// Removes somebody's claim by force, as [`inspect`](Self::inspect) names it; `false` if it was not there.
    ///
    /// The one who held it learns of it at its next renewal only, so use it for claims whose owner is known to be
    /// dead or harmless.
    ///
    /// Cancel safety: the eviction may or may not happen.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name or claim id, [`Error::Engine`] when the engine does not reply.
    pub async fn evict(&self, name: &str, claim: &str) -> Result<bool> {
        let name = LockName::under(&self.0.namespace, name)?;
        match claim.parse() {
            Ok(id) if claim.len() == 32 => self.0.engine.evict(&name, id).await,
            _ => self.0.engine.evict_foreign(&name, claim).await,
        }
    }

    /// Asks the owner of a claim, as [`inspect`](Self::inspect) names it, to release it, and waits up to `limit` until it is gone;
    /// `false` if it is still there. The owner learns of it at once where holders listen to messages (Redis *queue*; PostgreSQL
    /// but *row*), elsewhere with its next renewal, from [`Guard::release_requested`](crate::Guard::release_requested), and is
    /// free to go on: to [`evict`](Self::evict) is the next step. A claim that waits is asked, too, and its owner learns of it
    /// when it is granted.
    ///
    /// Cancel safety: when dropped, the claim may or may not be asked.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in styles that cannot carry the request, [`Error::Invalid`] for a bad name or the claim of another
    /// client, [`Error::Engine`] when the engine does not reply.
    pub async fn ask(&self, name: &str, claim: &str, limit: Duration) -> Result<bool> {
        let abilities = self.abilities();
        if !abilities.ask {
            return Err(abilities.cannot_ask());
        }
        let other = || {
            Error::invalid(format!(
                "cannot ask the owner of the claim {claim}: it was made by another client, which does not listen; end it there, \
                 or evict it"
            ))
        };
        let id = claim.parse().map_err(|_| other())?;
        let full_name = LockName::under(&self.0.namespace, name)?;
        let clock = self.0.clock;
        let ends_at = clock.now().plus(limit);
        let find = async || {
            let lock = self.0.engine.look(&full_name).await?;
            Ok::<_, Error>(lock.and_then(|lock| lock.claims.into_iter().find(|found| found.id == claim)))
        };
        let Some(found) = find().await? else { return Ok(true) };
        if found.foreign {
            return Err(other());
        }
        if !self.0.engine.ask(&full_name, id).await? {
            return Ok(true);
        }
        let pause = (self.0.ttl / 50).clamp(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            if find().await?.is_none() {
                return Ok(true);
            }
            if clock.now() >= ends_at {
                return Ok(false);
            }
            clock.sleep_until(clock.now().plus(pause).min(ends_at)).await;
        }
    }

    /// What the engine and style can do.
    pub fn abilities(&self) -> Abilities {
        self.0.engine.abilities()
    }

    /// The namespace of its locks; empty for bare names.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// How long a claim lives without a renewal.
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// Ends every claim of this keeper, waits until they have left, and stops. Guards still alive say Lost.
    ///
    /// Cancel safety: when dropped, closing goes on in the background.
    pub async fn close(self) {
        self.0.closed.store(true, SeqCst);
        for life in self.0.renewals.close() {
            life.end(LostReason::Closed);
            self.0.departures.send(&life);
        }
        self.0.departures.flush().await;
        self.0.engine.close().await;
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let abilities = self.abilities();
        write!(f, "Keeper({} {}, {})", abilities.engine, abilities.style, self.0.id)
    }
}

impl Inner {
    pub(crate) fn full_prefix(&self, prefix: &str) -> String {
        if self.namespace.is_empty() { prefix.into() } else { format!("{}/{prefix}", self.namespace) }
    }
}

/// How long the end of the last handle waits for departures that are under way.
const LAST_DEPARTURES: Duration = Duration::from_secs(1);

/// When the last keeper and the last guard are gone, the renewal task ends; the departure task ends when it
/// has sent what is left, since its senders are gone, too. At the end of a program that would be too late: the
/// background thread ends with `main`. So this waits for what was dropped and has not left yet.
impl Drop for Inner {
    fn drop(&mut self) {
        self.renewals.close();
        // Where the departure task runs on the caller's runtime, or this is its thread, it could not go on meanwhile.
        if matches!(self.clock, Clock::Boot) && !background::is_current_thread() {
            self.departures.flush_blocking(LAST_DEPARTURES.min(self.ttl));
        }
    }
}
