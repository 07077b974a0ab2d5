//! The guard: one type for every face, the proof that we hold and the means to find out that we do not.

use crate::acquire::Stay;
use crate::claim::{Demand, Token};
use crate::clock::Moment;
use crate::engine::Left;
use crate::error::{Error, Result};
use crate::handle::Handle;
use futures_util::future::select_all;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a guard says about its hold, at the moment of the call. Exhaustive, so that a program that matches decides in each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The engine has confirmed the hold, and nobody else can be granted before the deadline.
    Held,
    /// The last renewal failed; the hold is still ours until the deadline, and renewals are being tried.
    Uncertain,
    /// Somebody else may hold the lock: stop.
    Lost,
}

/// One granted claim. A guard has one, a multi-lock's guard several; reentrant guards share one.
pub(crate) struct Hold {
    stay: Stay,
    token: Token,
    demand: Mutex<Demand>,
    granted_at: Moment,
}

impl Hold {
    pub(crate) fn new(stay: Stay, token: Token, granted_at: Moment) -> Self {
        let demand = Mutex::new(stay.life.claim.demand);
        Self { stay, token, demand, granted_at }
    }

    fn state(&self) -> State {
        match self.stay.life.lost() {
            Some(_) => State::Lost,
            None if self.stay.life.doubted() => State::Uncertain,
            None => State::Held,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.stay.life.lost() {
            Some(reason) => Err(self.stay.life.error(reason)),
            None => Ok(()),
        }
    }

    pub(crate) fn demand(&self) -> Demand {
        *self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn valid_for(&self) -> Duration {
        match self.stay.life.lost() {
            Some(_) => Duration::ZERO,
            None => self.stay.life.deadline().since(self.stay.life.clock().now()),
        }
    }

    fn lease_left(&self) -> Option<Duration> {
        self.stay.life.lease_left()
    }

    async fn lost(&self) -> Error {
        let reason = self.stay.life.when_lost().await;
        self.stay.life.error(reason)
    }

    /// Frees the lock, or lets it go at the end of its least time. Fails if the hold was lost before; the hold of another
    /// claim is never touched.
    async fn release(mut self) -> Result<()> {
        let before = self.check();
        if before.is_ok()
            && let Some(rest) = self.stay.life.must_stay()
        {
            return self.stay.detach(rest).await;
        }
        let left = self.stay.leave().await?;
        before?;
        match left {
            Left::Left => Ok(()),
            Left::NotThere => Err(self.stay.life.claim.gone()),
        }
    }

    async fn shrink(&self, to: Demand) -> Result<()> {
        self.check()?;
        let from = self.demand();
        if !from.may_shrink_to(to) {
            return Err(Error::invalid(format!("a hold can shrink but not grow: {from} cannot become {to}")));
        }
        self.stay.keeper.0.engine.shrink(&self.stay.life.claim, to).await?;
        *self.demand.lock().unwrap_or_else(PoisonError::into_inner) = to;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (life, held) = (&self.stay.life, self.stay.now().since(self.granted_at));
        life.let_go();
        self.stay.keeper.0.telemetry.released(&life.claim, self.token, held);
    }
}

/// The proof that a lock (or several, or some permits) is held. Dropping it releases in the background. At the end of `main` the
/// background ends, too, so the drop of the last guard and keeper waits for what was dropped before: up to a second, or the TTL
/// if that is less. A lock that could not be released by then is free when its TTL is over; [`release`](Self::release) says so.
///
/// It cannot stop your code when the hold is lost; it signals the loss: check [`state`](Self::state) before each step, or run
/// the work under [`protect`](Self::protect), and send [`token`](Self::token) with every access to what the lock
/// protects.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    first: Arc<Hold>,
    /// Those of a multi-lock, sorted by name with the first.
    others: Vec<Arc<Hold>>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { first: hold, others: Vec::new() }
    }

    /// This one and that as one, whose locks come after this one's.
    pub(crate) fn and(mut self, other: Guard) -> Self {
        self.others.push(other.first);
        self.others.extend(other.others);
        self
    }

    /// Its task will wait behind it on purpose, and needs no warning.
    pub(crate) fn forget_task(&self) {
        self.holds().for_each(|hold| hold.stay.life.forget_task());
    }

    fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn check(&self) -> Result<()> {
        self.holds().try_for_each(|hold| hold.check())
    }

    /// The lock's name, with its namespace. Of a multi-lock, the first one's.
    pub fn name(&self) -> &str {
        self.first.stay.life.claim.name.as_str()
    }

    /// The claim's id, as `inspect` shows it. Of a multi-lock, the first one's.
    pub fn claim(&self) -> String {
        self.first.stay.life.claim.id.to_string()
    }

    /// The id of every lock's claim, in the order of [`tokens`](Self::tokens).
    pub fn claims(&self) -> Vec<String> {
        self.holds().map(|hold| hold.stay.life.claim.id.to_string()).collect()
    }

    /// The fencing token, if the hold is trusted at this moment. Of a multi-lock, the first lock's (see
    /// [`tokens`](Self::tokens)).
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn token(&self) -> Result<Token> {
        self.check()?;
        Ok(self.first.token)
    }

    /// Every lock's name and token, if all are trusted at this moment.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn tokens(&self) -> Result<Vec<(String, Token)>> {
        self.check()?;
        Ok(self.holds().map(|hold| (hold.stay.life.claim.name.to_string(), hold.token)).collect())
    }

    /// How long the hold may be trusted from this moment on if no further renewal succeeds.
    pub fn valid_for(&self) -> Duration {
        self.holds().map(|hold| hold.valid_for()).min().unwrap_or_default()
    }

    /// How much is left of a fixed lease; `None` without one. Of a multi-lock, the lease that ends first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # use std::time::Duration;
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let guard = keeper.mutex("report").lease(Duration::from_secs(60)).lock().await?;
    /// assert!(guard.lease_left().is_some_and(|left| left <= Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    pub fn lease_left(&self) -> Option<Duration> {
        self.holds().filter_map(|hold| hold.lease_left()).min()
    }

    /// What the clock and the last renewals say at this moment.
    pub fn state(&self) -> State {
        let states = self.holds().map(|hold| hold.state());
        states.max_by_key(|state| *state as u8).unwrap_or(State::Lost)
    }

    /// Resolves with the reason when the hold is lost, before anybody else can be granted.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn lost(&self) -> Error {
        select_all(self.holds().map(|hold| Box::pin(hold.lost()))).await.0
    }

    /// Resolves when somebody asks for this hold to be released ([`Keeper::ask`](crate::Keeper::ask), `lockkeeper evict --ask`):
    /// bring the work to a good end and release. A message brings the request, or the next renewal, so it is seen within a third of
    /// the TTL. Of a multi-lock, when any of its holds is asked for.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # use std::time::Duration;
    /// # let keeper = Keeper::builder().build(Memory::on_tokio_clock().connect())?;
    /// let guard = keeper.mutex("report").lock().await?;
    /// let (operator, claim) = (keeper.clone(), guard.claim());
    /// let asked = tokio::spawn(async move { operator.ask("report", &claim, Duration::from_secs(60)).await });
    /// guard.release_requested().await;
    /// guard.release().await?;
    /// assert!(asked.await.unwrap()?, "it is gone");
    /// # Ok(()) }
    /// ```
    pub async fn release_requested(&self) {
        select_all(self.holds().map(|hold| Box::pin(hold.stay.life.when_asked()))).await;
    }

    /// Whether somebody has asked for this hold to be released; see [`release_requested`](Self::release_requested).
    pub fn is_release_requested(&self) -> bool {
        self.holds().any(|hold| hold.stay.life.is_asked())
    }

    /// Like [`lost`](Self::lost), without borrowing the guard: for a task that watches it while others use and release it. After
    /// a release it resolves, too, at the latest when the last renewal's time is over.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let guard = keeper.mutex("report").lock().await?;
    /// let watching = tokio::spawn(guard.lost_signal());
    /// keeper.close().await;
    /// assert!(watching.await.expect("the task ended").is_lost());
    /// # Ok(()) }
    /// ```
    pub fn lost_signal(&self) -> impl Future<Output = Error> + Send + 'static {
        let lives: Vec<_> = self.holds().map(|hold| Arc::clone(&hold.stay.life)).collect();
        async move {
            let ends = lives.iter().map(|life| Box::pin(async move { life.error(life.when_lost().await) }));
            select_all(ends).await.0
        }
    }

    /// Runs the work and cancels it (drops it at its next await point) when the hold is lost.
    ///
    /// The result counts only if the hold was trusted to the end of the work.
    ///
    /// Cancel safety: dropping the future drops the work; the guard lives on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # let keeper = Keeper::builder().build(Memory::engine())?;
    /// let guard = keeper.mutex("report").lock().await?;
    /// let sum = guard.protect(async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub async fn protect<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            done = work => {
                self.check()?;
                Ok(done)
            }
        }
    }

    /// How long the engine keeps the hold from this moment on even if this process ends: what is left of
    /// [`hold_at_least`](crate::Mutex::hold_at_least), or of the time for which an attached hold was detached. Zero without
    /// either. Of a multi-lock, the shortest.
    pub fn outlives(&self) -> Duration {
        self.holds().map(|hold| hold.stay.life.outlives()).min().unwrap_or_default()
    }

    /// Lets all of them stay for this long, or none.
    pub(crate) async fn hold_at_least(&self, least: Option<Duration>) -> Result<()> {
        let Some(least) = least else { return Ok(()) };
        for hold in self.holds() {
            hold.stay.outlive(least).await?;
        }
        self.holds().for_each(|hold| hold.stay.life.stay(true));
        Ok(())
    }

    /// Detaches the hold from this process: the engine keeps it for this long, and nobody renews it. With the handle
    /// it can be taken over by [`Keeper::attach`](crate::Keeper::attach), in another process or on another machine; if nobody
    /// does, the lock is free when the time is over. See [`Handle`] for an example.
    ///
    /// Cancel safety: when dropped, the hold is released in the background.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where locks end with a connection or a session, [`Error::Invalid`] for less than the shortest TTL
    /// or more than 30 days, a guard of several locks, one that is entered more than once, or one with a fixed lease;
    /// [`Error::Lost`]. After an error the hold is released in the background.
    pub async fn detach(self, duration: Duration) -> Result<Handle> {
        let keeper = self.first.stay.keeper.clone();
        keeper.check_detach(duration)?;
        if !self.others.is_empty() {
            return Err(Error::invalid(
                "a guard of several locks cannot be detached: lock and detach them one by one",
            ));
        }
        if self.lease_left().is_some() {
            return Err(Error::invalid(
                "a hold with a fixed lease cannot be detached: lock it without a lease",
            ));
        }
        let Some(mut hold) = Arc::into_inner(self.first) else {
            return Err(Error::invalid("a hold that is entered more than once cannot be detached"));
        };
        hold.check()?;
        hold.stay.detach(duration).await?;
        Ok(keeper.handle(&hold.stay.life.claim, hold.demand(), hold.token, duration))
    }

    /// Releases like [`release`](Self::release), but at once, whatever [`hold_at_least`](crate::Mutex::hold_at_least) says: the
    /// turn is given back.
    ///
    /// Cancel safety: as [`release`](Self::release).
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn release_at_once(self) -> Result<()> {
        self.holds().for_each(|hold| hold.stay.life.stay(false));
        self.release().await
    }

    /// A writer becomes a reader without letting go: no other writer comes between.
    ///
    /// Cancel safety: when dropped, the hold may be either.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no write hold or is shared by reentrant guards, [`Error::Unsupported`] where the
    /// style cannot, [`Error::Lost`].
    pub async fn downgrade(&self) -> Result<()> {
        for hold in self.holds() {
            if Arc::strong_count(hold) > 1 {
                return Err(Error::invalid("a hold that is entered more than once cannot be downgraded"));
            }
            hold.shrink(Demand::Shared).await?;
        }
        Ok(())
    }

    /// Releases and waits until the engine has confirmed it. A reentrant guard that is not the last just counts down.
    ///
    /// Cancel safety: when dropped, the release goes on in the background.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold was gone before: what was done under it may not have been exclusive.
    /// [`Error::Engine`] if the engine did not reply; the release is tried further in the background.
    pub async fn release(self) -> Result<()> {
        let mut outcome = Ok(());
        for hold in std::iter::once(self.first).chain(self.others) {
            if let Some(last) = Arc::into_inner(hold) {
                let released = last.release().await;
                outcome = outcome.and(released);
            }
        }
        outcome
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = self.holds().map(|hold| (hold.stay.life.claim.name.as_str(), hold.token.0));
        f.debug_map().entries(locks).finish()
    }
}
