//! One acquire: makes a claim, arms its departure, lets the engine do its part, and begins anew when the claim is lost.

use crate::claim::{Claim, ClaimId, Demand};
use crate::clock::Moment;
use crate::engine::{Left, Renewal};
use crate::error::{Error, LostReason, Result};
use crate::guard::Hold;
use crate::keeper::{Keeper, LONGEST_HOLD, MIN_TTL, check_ttl};
use crate::life::{Attempt, Life};
use crate::name::LockName;
use crate::owner::Owner;
use crate::queue::pause;
use crate::telemetry;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tracing::Instrument as _;

/// How long to wait for a grant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    Try,
    Within(Duration),
    Forever,
}

/// The longest pause before a wait joins again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a wait goes on before an event says that its own keeper holds the lock.
const QUIET_WAIT: Duration = Duration::from_millis(100);

/// An engine that has not replied for this long, or for a quarter of a shorter TTL, is away.
const SILENCE: Duration = Duration::from_secs(1);

/// Since when the engine does not reply to a wait.
#[derive(Debug, Default)]
struct Outage {
    since: Option<Moment>,
    /// How many claims in a row failed in it.
    failures: u32,
}

impl Outage {
    /// A claim that is over: the engine may have replied meanwhile, which ended the outage, and failed after that.
    fn note(&mut self, life: &Life, asked: Moment, error: Option<&Error>, now: Moment) {
        if life.has_replied() {
            *self = Self::default();
        }
        let is_away = match error {
            Some(Error::Lost { reason, .. }) => *reason == LostReason::Expired,
            Some(error) => error.is_temporary(),
            None => life.doubted() || is_silent(life, asked, now),
        };
        if is_away {
            self.since.get_or_insert(now);
            self.failures += 1;
        }
    }

    /// Longer after each failure, at random so that many clients do not come back together.
    fn next_pause(&self, ttl: Duration) -> Duration {
        (pause(ttl) * 2u32.saturating_pow(self.failures)).min(ttl / 2).min(LONGEST_PAUSE)
    }
}

/// Whether the engine has left the claim without any reply for longer than a reply takes. A wait that ends sooner is too short to
/// know.
fn is_silent(life: &Life, asked: Moment, now: Moment) -> bool {
    life.at_engine() && !life.has_replied() && now.since(asked) >= SILENCE.min(life.claim.ttl / 4)
}

/// What a face requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) demand: Demand,
    pub(crate) terms: Terms,
    pub(crate) wait: Wait,
}

/// How long the claims and holds of a face last, where it says so.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    /// A hold ends after this time, however long the work takes.
    pub(crate) lease: Option<Duration>,
    /// A hold lasts this long, however short the work is.
    pub(crate) at_least: Option<Duration>,
    /// How long a claim lives without a renewal, unless as the keeper says.
    pub(crate) ttl: Option<Duration>,
}

/// Who requests: the keeper for anybody, or for one owner that may hold the lock already.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) keeper: Keeper,
    pub(crate) owner: Option<Owner>,
}

impl From<&Keeper> for Requester {
    fn from(keeper: &Keeper) -> Self {
        Self { keeper: keeper.clone(), owner: None }
    }
}

impl Requester {
    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Option<Arc<Hold>>> {
        match &self.owner {
            Some(owner) => owner.enter(request).await,
            None => self.keeper.acquire(request).await,
        }
    }

    /// For a wait without a limit, which ends with a hold or an error.
    pub(crate) async fn request_without_limit(&self, request: Request<'_>) -> Result<Arc<Hold>> {
        let hold = self.request(Request { wait: Wait::Forever, ..request }).await?;
        hold.ok_or_else(|| Error::invalid("the engine gave up a wait without limit; please report this"))
    }
}

impl Keeper {
    /// Acquires, with one claim after the other: a wait outlives its claim. What ends it is its own limit or, without
    /// one, an engine that stays away for longer than the outage limit.
    pub(crate) async fn acquire(&self, request: Request<'_>) -> Result<Option<Arc<Hold>>> {
        let start = self.0.clock.now();
        let ends_at = match request.wait {
            Wait::Within(limit) => start.plus(limit),
            Wait::Try | Wait::Forever => Moment::NEVER,
        };
        let mut outage = Outage::default();
        let full_name = self.0.full_prefix(request.name);
        let _waiting = self.0.telemetry.waiting(&full_name);
        loop {
            let error = match self.acquire_once(&request, start, ends_at, &mut outage).await {
                Err(error) if error.is_temporary() || error.is_lost() => error,
                settled => return settled,
            };
            let now = self.0.clock.now();
            let gives_up_at = match request.wait {
                Wait::Try => now,
                Wait::Within(_) => ends_at,
                Wait::Forever => outage.since.map_or(Moment::NEVER, |since| since.plus(self.0.outage_limit)),
            };
            if now >= gives_up_at {
                return Err(self.ended(error));
            }
            self.0.telemetry.joins_again(&full_name, &error);
            let pause = outage.next_pause(self.0.ttl);
            self.0.clock.sleep_until(now.plus(pause).min(gives_up_at)).await;
        }
    }

    /// The error of a wait that ends without a grant. A claim that was lost while it waited is no loss to the caller, who never
    /// held.
    pub(crate) fn ended(&self, error: Error) -> Error {
        if error.is_lost() { self.stayed_away() } else { error }
    }

    fn stayed_away(&self) -> Error {
        Error::temporary(self.abilities().engine, "wait for the lock", "the engine does not reply")
    }

    /// One claim, walked: make it, arm its departure, let the engine do its part; the same departure and renewal then go
    /// into the hold.
    async fn acquire_once(
        &self,
        request: &Request<'_>,
        start: Moment,
        ends_at: Moment,
        outage: &mut Outage,
    ) -> Result<Option<Arc<Hold>>> {
        let claim = self.claim(request)?;
        // An engine on this machine may never have to wait; a loop of locks must not starve its neighbours.
        tokio::task::consume_budget().await;
        let span = telemetry::claiming(&claim);
        let asked = self.0.clock.now();
        let life = Arc::new(Life::new(claim, self.0.clock));
        let stay = Stay::new(self, life);
        let attempt = Attempt { stay, asked, may_wait: !matches!(request.wait, Wait::Try) };
        let mut acquiring = self.0.engine.acquire(&attempt);
        if !span.is_none() {
            acquiring = Box::pin(acquiring.instrument(span));
        }
        let grant = tokio::select! {
            biased;
            grant = acquiring => grant,
            never = self.warn_of_itself(&attempt.stay.life.claim, asked) => match never {},
            () = self.0.clock.sleep_until(ends_at) => Ok(None),
        };
        let stay = attempt.stay;
        outage.note(&stay.life, asked, grant.as_ref().err(), self.0.clock.now());
        let Some(grant) = grant? else {
            self.0.telemetry.not_granted(&stay.life.claim, self.0.clock.now().since(start));
            if matches!(request.wait, Wait::Try) {
                self.warn_of_own_hold(&stay.life.claim);
            }
            let is_away = outage.since.is_some();
            stay.give_up().await;
            return if is_away { Err(self.stayed_away()) } else { Ok(None) };
        };
        stay.life.granted_at(self.0.clock.now());
        stay.start_lease(request.terms.lease).await;
        stay.hold_at_least(request.terms.at_least)
            .await
            .inspect_err(|error| outage.note(&stay.life, asked, Some(error), self.0.clock.now()))?;
        let now = self.0.clock.now();
        if let Some(reason) = stay.life.lost_at(now) {
            let late = stay.life.error(reason);
            outage.note(&stay.life, asked, Some(&late), now);
            return Err(late);
        }
        stay.life.granted(self.0.telemetry.held(&stay.life.claim));
        let valid_for = stay.life.deadline().since(now);
        self.0.telemetry.granted(&stay.life.claim, grant.token, now.since(start), valid_for);
        Ok(Some(Arc::new(Hold::new(stay, grant.token, now))))
    }

    /// Says once that the wait is for a lock that this keeper holds itself.
    async fn warn_of_itself(&self, claim: &Claim, asked: Moment) -> std::convert::Infallible {
        self.0.clock.sleep_until(asked.plus(QUIET_WAIT)).await;
        self.warn_of_own_hold(claim);
        std::future::pending().await
    }

    fn warn_of_own_hold(&self, claim: &Claim) {
        if let Some(held) = self.0.renewals.hold_of(&claim.name) {
            self.0.telemetry.held_here(claim, &held.claim, held.is_taken_by_this_task());
        }
    }

    /// Whether a guard of this keeper holds the lock: the reason why a `try_lock` or a timed lock of the same program got
    /// nothing, if it is so.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name.
    pub fn holds(&self, name: &str) -> Result<bool> {
        let name = LockName::under(&self.0.namespace, name)?;
        Ok(self.0.renewals.hold_of(&name).is_some())
    }

    fn claim(&self, request: &Request<'_>) -> Result<Claim> {
        if self.0.closed.load(SeqCst) {
            return Err(Error::invalid("the keeper is closed; make a new one"));
        }
        let ttl = self.check_terms(&request.terms)?;
        Ok(Claim {
            id: ClaimId::random(),
            name: LockName::under(&self.0.namespace, request.name)?,
            demand: request.demand,
            holder: Arc::clone(&self.1),
            keeper: self.0.id,
            ttl,
        })
    }

    /// Refuses terms that the engine cannot keep; returns the TTL of a claim.
    pub(crate) fn check_terms(&self, terms: &Terms) -> Result<Duration> {
        if terms.lease.is_some_and(|lease| lease < MIN_TTL) {
            return Err(Error::invalid(format!("a lease of less than {MIN_TTL:?} is too short")));
        }
        if let Some(least) = terms.at_least {
            self.check_outliving("keep a hold beyond its release", least)?;
            if terms.lease.is_some_and(|lease| lease < least) {
                return Err(Error::invalid("a lease that ends before the hold may end: give a longer lease"));
            }
        }
        match terms.ttl {
            None => Ok(self.0.ttl),
            Some(ttl) => {
                let abilities = self.abilities();
                check_ttl(ttl, &abilities)?;
                if !abilities.detach {
                    return Err(abilities
                        .cannot("give a lock a TTL of its own", "connect another keeper with that TTL"));
                }
                Ok(self.0.engine.ttl(ttl))
            }
        }
    }

    /// Says before anything is claimed whether the engine can keep a hold for this long without its process:
    /// [`Guard::detach`](crate::Guard::detach) refuses the same.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where locks end with a connection or a session, [`Error::Invalid`] for less than the shortest TTL
    /// or more than 30 days.
    pub fn check_detach(&self, duration: Duration) -> Result<()> {
        self.check_outliving("detach a hold", duration)
    }

    fn check_outliving(&self, what: &'static str, duration: Duration) -> Result<()> {
        let abilities = self.abilities();
        if !abilities.detach {
            return Err(abilities.cannot(
                what,
                "its locks end with a connection or a session; the styles 'queue' and 'row' of databases can, and \
                 'lockkeeper engines' lists all that can",
            ));
        }
        let least = abilities.min_ttl.max(MIN_TTL);
        if duration < least || duration > LONGEST_HOLD {
            return Err(Error::invalid(format!(
                "cannot {what} for {duration:?}: {} takes {least:?} to 30 days",
                abilities.engine
            )));
        }
        Ok(())
    }
}

/// A claim's stay at the engine. Dropped in whatever way, it leaves: a wait, a guard, a lost hold alike.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) keeper: Keeper,
    pub(crate) life: Arc<Life>,
    settled: bool,
}

impl Stay {
    pub(crate) fn new(keeper: &Keeper, life: Arc<Life>) -> Self {
        Self { keeper: keeper.clone(), life, settled: false }
    }

    /// Leaves now and waits for it, so that the next `try` does not find a claim that is about to leave; in the background
    /// if the engine does not reply soon.
    async fn give_up(mut self) {
        self.keeper.0.renewals.remove(&self.life);
        if self.life.at_engine() {
            let limit = self.life.claim.ttl / 4;
            let keeper = &self.keeper.0;
            let left = keeper.clock.timeout(limit, keeper.engine.release(&self.life.claim)).await;
            self.settled = matches!(left, Ok(Ok(_)));
        }
    }

    /// Starts a fixed lease at the grant. The engine gets to know if it ends before the TTL would.
    async fn start_lease(&self, lease: Option<Duration>) {
        let Some(lease) = lease else { return };
        let keeper = &self.keeper.0;
        self.life.lease_ends(keeper.clock.now().plus(lease));
        keeper.renewals.add(&self.life);
        if lease < self.life.claim.ttl {
            let ttl = self.life.ttl_from(keeper.clock.now());
            let renewal = Renewal::new(Arc::new(self.life.claim.clone()), ttl);
            // If it fails the client's own deadline still ends the hold, and the TTL the claim.
            let _ = keeper.clock.timeout(lease / 4, keeper.engine.renew(&[renewal])).await;
        }
    }

    /// The engine keeps the claim for at least this long, whatever becomes of this process.
    pub(crate) async fn outlive(&self, least: Duration) -> Result<()> {
        let change = self.life.outlive(self.now().plus(least), false);
        self.keeper.0.renewals.renew_now();
        self.life.when_confirmed(change).await
    }

    /// Lets the claim stay for this long, whether it is released, dropped or its process killed.
    async fn hold_at_least(&self, least: Option<Duration>) -> Result<()> {
        let Some(least) = least else { return Ok(()) };
        self.outlive(least).await?;
        self.life.stay(true);
        Ok(())
    }

    /// The engine keeps the claim for this long and no longer, and this keeper renews it no further. Rounds of renewals
    /// follow each other, so that none that was sent before ends it sooner.
    pub(crate) async fn detach(&mut self, duration: Duration) -> Result<()> {
        let (keeper, life) = (&self.keeper.0, &self.life);
        let change = life.outlive(keeper.clock.now().plus(duration), true);
        keeper.renewals.renew_now();
        life.when_confirmed(change).await?;
        keeper.renewals.remove(life);
        keeper.engine.detached(&life.claim);
        self.settled = true;
        Ok(())
    }

    /// Leaves and says whether the claim was still there. A leave without a reply is sent again as long as the claim is
    /// trusted.
    pub(crate) async fn leave(&mut self) -> Result<Left> {
        let (keeper, life) = (&self.keeper.0, &self.life);
        keeper.renewals.remove(life);
        let mut was_sent = false;
        let left = loop {
            match keeper.engine.release(&life.claim).await {
                Err(error) if error.is_temporary() && life.lost().is_none() => {
                    was_sent = true;
                    keeper.clock.sleep(pause(life.claim.ttl)).await;
                }
                // The engine keeps a trusted claim, so an earlier leave has removed it.
                Ok(Left::NotThere) if was_sent => break Left::Left,
                settled => break settled?,
            }
        };
        self.settled = true;
        Ok(left)
    }

    pub(crate) fn now(&self) -> Moment {
        self.keeper.0.clock.now()
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if !self.settled {
            self.keeper.0.renewals.remove(&self.life);
            self.keeper.0.departures.send(&self.life);
        }
    }
}
