//! Several locks as one: sorted, all or nothing, one deadline, one lost signal.

use crate::acquire::{Request, Requester, Terms, Wait};
use crate::claim::Demand;
use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::keeper::Keeper;
use std::time::Duration;

/// One lock among several: which keeper, which name, how much of it.
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct Wanted {
    requester: Requester,
    name: String,
    demand: Demand,
}

impl Wanted {
    /// A lock by its demand.
    pub fn new(keeper: &Keeper, name: impl Into<String>, demand: Demand) -> Self {
        Self { requester: Requester::from(keeper), name: name.into(), demand }
    }

    /// All of a lock.
    pub fn exclusive(keeper: &Keeper, name: impl Into<String>) -> Self {
        Self::new(keeper, name, Demand::Exclusive)
    }

    /// A lock to read.
    pub fn shared(keeper: &Keeper, name: impl Into<String>) -> Self {
        Self::new(keeper, name, Demand::Shared)
    }

    /// Every client sorts alike, so no two of them wait for each other.
    fn order(&self) -> (&'static str, &'static str, &str) {
        let abilities = self.requester.keeper.abilities();
        (abilities.engine, abilities.style, &self.name)
    }
}

/// Several locks as one, of one keeper ([`Keeper::all`]) or of several, on several engines.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory, MultiLock, Wanted};
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// # let elsewhere = Keeper::builder().build(Memory::engine())?;
/// let both = keeper.all(["from", "to"]).lock().await?;
/// assert_eq!(both.tokens()?.len(), 2);
/// both.release().await?;
/// let mixed = MultiLock::new([Wanted::exclusive(&keeper, "a"), Wanted::shared(&elsewhere, "b")]);
/// mixed.lock().await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
pub struct MultiLock {
    wanted: Vec<Wanted>,
    terms: Terms,
}

impl MultiLock {
    /// Several locks as one.
    pub fn new(wanted: impl IntoIterator<Item = Wanted>) -> Self {
        let mut wanted: Vec<Wanted> = wanted.into_iter().collect();
        wanted.sort_by(|one, other| one.order().cmp(&other.order()));
        Self { wanted, terms: Terms::default() }
    }

    /// The holds free themselves after this time, however long the work takes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// The holds last for at least this time, however short the work is: a release before is a promise to leave then, and a
    /// killed process keeps it as long, too. The engine's clock decides. [`Guard::release_at_once`] gives it back earlier.
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) where locks end with a connection or a session.
    pub fn hold_at_least(mut self, least: Duration) -> Self {
        self.terms.at_least = Some(least);
        self
    }

    /// Claims live this long without a renewal, instead of the keeper's TTL.
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) where locks end with a connection or a session, which has one TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.terms.ttl = Some(ttl);
        self
    }

    /// Waits for all. A hold that is lost while it waits for the next one is taken again.
    ///
    /// Cancel safety: dropping the future leaves every queue and frees what was held.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); also [`Error::Invalid`] when there is no name or the same one twice.
    pub async fn lock(&self) -> Result<Guard> {
        let guard = self.request(Wait::Forever).await?;
        guard.ok_or_else(|| Error::invalid("the engine gave up a wait without limit; please report this"))
    }

    /// Takes all if all are free now.
    ///
    /// Cancel safety: as [`lock`](Self::lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.request(Wait::Try).await
    }

    /// Waits for all, up to `limit` in all; `None` when the time is over.
    ///
    /// Cancel safety: as [`lock`](Self::lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn lock_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.request(Wait::Within(limit)).await
    }

    fn check(&self) -> Result<()> {
        if self.wanted.is_empty() {
            return Err(Error::invalid("no lock is named: give at least one name"));
        }
        for pair in self.wanted.windows(2) {
            if pair[0].order() == pair[1].order() {
                return Err(Error::invalid(format!(
                    "the lock '{}' is named twice; name it once",
                    pair[0].name
                )));
            }
        }
        Ok(())
    }

    /// Begins anew when a hold is lost before all are held: nothing was done under it.
    async fn request(&self, wait: Wait) -> Result<Option<Guard>> {
        self.check()?;
        for wanted in &self.wanted {
            wanted.requester.keeper.check_terms(&self.terms)?;
        }
        let clock = self.wanted[0].requester.keeper.0.clock;
        let (begins_anew_until, deadline) = match wait {
            Wait::Try => (clock.now(), Moment::NEVER),
            Wait::Within(limit) => [clock.now().plus(limit); 2].into(),
            Wait::Forever => (Moment::NEVER, Moment::NEVER),
        };
        loop {
            let lost = match self.request_once(wait, clock, deadline).await {
                Err(error) if error.is_lost() => error,
                settled => return settled,
            };
            let wanted = self.wanted_in(&lost);
            let keeper = &wanted.requester.keeper;
            if clock.now() >= begins_anew_until {
                return Err(keeper.ended(lost));
            }
            keeper.0.telemetry.joins_again(&keeper.0.full_prefix(&wanted.name), &lost);
        }
    }

    /// Which of them was lost.
    fn wanted_in(&self, lost: &Error) -> &Wanted {
        let is_lost = |wanted: &&Wanted| {
            let full_name = wanted.requester.keeper.0.full_prefix(&wanted.name);
            matches!(lost, Error::Lost { name, .. } if *name == full_name)
        };
        self.wanted.iter().find(is_lost).unwrap_or(&self.wanted[0])
    }

    async fn request_once(&self, wait: Wait, clock: Clock, deadline: Moment) -> Result<Option<Guard>> {
        let mut held: Vec<Guard> = Vec::new();
        for wanted in &self.wanted {
            let wait = match wait {
                Wait::Within(_) => Wait::Within(deadline.since(clock.now())),
                other => other,
            };
            match self.next(wanted, wait, &held).await {
                Ok(Some(guard)) => held.push(guard),
                Ok(None) => {
                    give_back(held).await;
                    return Ok(None);
                }
                Err(error) => {
                    give_back(held).await;
                    return Err(error);
                }
            }
        }
        let Some(guard) = held.into_iter().reduce(Guard::and) else { return Ok(None) };
        // Not before all are held: what is given back meanwhile must be free at once.
        if let Err(error) = guard.hold_at_least(self.terms.at_least).await {
            give_back(vec![guard]).await;
            return Err(error);
        }
        Ok(Some(guard))
    }

    /// The next lock, unless one that is held already is lost first.
    async fn next(&self, wanted: &Wanted, wait: Wait, held: &[Guard]) -> Result<Option<Guard>> {
        let terms = Terms { at_least: None, ..self.terms };
        let request = Request { name: &wanted.name, demand: wanted.demand, terms, wait };
        if held.is_empty() {
            return Ok(wanted.requester.request(request).await?.map(Guard::new));
        }
        let lost = futures_util::future::select_all(held.iter().map(|guard| Box::pin(guard.lost())));
        tokio::select! {
            hold = wanted.requester.request(request) => Ok(hold?.map(Guard::new)),
            (error, ..) = lost => Err(error),
        }
    }
}

/// All or nothing: frees what was held, and waits for it, so that a second try finds it free.
async fn give_back(held: Vec<Guard>) {
    for guard in held.into_iter().rev() {
        // What cannot be released now is released in the background.
        let _ = guard.release().await;
    }
}
