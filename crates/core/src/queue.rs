//! The fair mechanism: claims stand in a queue, and the rule says who holds.

use crate::claim::{Claim, ClaimId, Demand, Token};
use crate::clock::Clock;
use crate::engine::{Abilities, Attached, BoxFuture, Engine, FEW, Grant, Kept, Left, Renewal, one_of};
use crate::error::{Error, Result};
use crate::grant;
use crate::life::{Attempt, Lifeline};
use crate::name::LockName;
use crate::views::LockView;
use rand::RngExt as _;
use std::time::Duration;

/// A claim's place in its lock's queue; a later one is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub u64);

/// The summed weight of the claims ahead: a number, not the queue, or n waiters would cost n².
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ahead(pub u64);

/// What a join found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The claim's place.
    pub place: Place,
    /// Its fencing token, valid once it holds. Grows with the place, across everything (Law 8).
    pub token: Token,
    /// What stands ahead.
    pub ahead: Ahead,
    /// What the claim hangs on beside its TTL, if anything: a session.
    pub lifeline: Option<Lifeline>,
}

/// The few verbs a fair engine implements. The laws below are the safety; the conformance suite checks each.
///
/// 1. **Order is commit order.** No claim ever appears ahead of a place already given.
/// 2. **A dead claim stays dead.** `keep` never revives an expired claim: somebody behind may hold already.
/// 3. **Staleness may hide departures, never arrivals.** A look may count a claim that has just left; it must
///    not miss one that stands ahead.
/// 4. **The claim's id is chosen before anything is sent.** `join` and `leave` are idempotent by it: a second
///    join of the same id finds its place, and a second leave finds nothing.
/// 5. **Trust is counted from the send.** That is the keeper's part; an engine must only see to it that a
///    claim lives at least its TTL from the moment a join or keep reached it.
/// 6. **Everybody agrees on the shape.** The oldest live claim's rules; `join` refuses another one with
///    [`Error::Mismatch`] and leaves nothing behind.
/// 7. **Expiry is judged by the engine's clock**, never by a client's.
/// 8. **Tokens only grow**, across release, crash, expiry, restart and deletion of idle state, and with bounded
///    storage.
/// 9. **Waiters are kept alive too**: `keep` gets them with the holders, all of a keeper's claims in one call.
/// 10. **A wait costs the engine nothing, and a departure wakes only claims that now fit.**
///
/// Futures may be dropped at any await point. After a dropped `join` the claim may or may not be in the
/// queue; the keeper sends `leave`, so `leave` must also overtake or undo a join that is still on its way.
pub trait Queue: Send + Sync + 'static {
    /// What this engine and style can do.
    fn abilities(&self) -> Abilities;

    /// The clock its leases are measured on: [`Clock::Boot`] for everything but the memory engine.
    fn clock(&self) -> Clock;

    /// The TTL it really gives when asked for this one: the same, unless a server negotiates.
    fn ttl(&self, asked: Duration) -> Duration;

    /// Resolves when the claim may join, with what it holds meanwhile: an engine whose joins would stand before its leaves lets few
    /// join at a time. Trust is counted from then on. By default at once.
    fn turn(&self, _claim: &Claim) -> impl Future<Output = Result<impl Send>> + Send {
        std::future::ready(Ok(()))
    }

    /// Appends the claim or finds its place, and looks, in one round trip if the engine can.
    fn join(&self, claim: &Claim) -> impl Future<Output = Result<Joined>> + Send;

    /// Resolves with a fresh look when the weight ahead may have shrunk below `seen`. May wake too often,
    /// never too seldom. Fails with [`Error::Lost`] (see [`Claim::gone`]) if the claim itself is gone.
    ///
    /// The fresh look must also see that the claim itself is still alive, or a dead claim would be granted.
    fn changed(&self, claim: &Claim, place: Place, seen: Ahead)
    -> impl Future<Output = Result<Ahead>> + Send;

    /// Keeps the claims alive for their TTL from now on, holders and waiters alike, in one go; says which
    /// are dead.
    fn keep(&self, renewals: &[Renewal]) -> impl Future<Output = Result<Kept>> + Send;

    /// Takes over a detached claim, which is renewed from now on as a claim of this engine; `None` if it is gone. The token
    /// is the one it was granted with. An engine that remembers its claims enters it.
    fn attach(
        &self,
        renewal: &Renewal,
        _token: Token,
    ) -> impl Future<Output = Result<Option<Attached>>> + Send {
        async move { Ok(Attached::by_renewal(&self.keep(std::slice::from_ref(renewal)).await?)) }
    }

    /// Forgets a claim that was detached, without a leave: its last renewal says how long it lives.
    fn detached(&self, _claim: &Claim) {}

    /// Removes the claim from the queue, wherever it stands, and wakes who fits now.
    fn leave(&self, claim: &Claim) -> impl Future<Output = Result<Left>> + Send;

    /// Lets a holder take less room from now on and wakes who fits now. Fails with [`Error::Lost`] if the
    /// claim is gone.
    fn shrink(&self, claim: &Claim, to: Demand) -> impl Future<Output = Result<()>> + Send;

    /// The locks in use whose name begins with the prefix, sorted by name, at most `at_most`.
    fn list(&self, prefix: &str, at_most: usize) -> impl Future<Output = Result<Vec<LockView>>> + Send;

    /// The lock of exactly this name; `None` if it is free. For engines whose list is a search of everything.
    fn look(&self, name: &LockName) -> impl Future<Output = Result<Option<LockView>>> + Send {
        async move { Ok(one_of(self.list(name.as_str(), FEW).await?, name)) }
    }

    /// Removes somebody's claim by force; `false` if it was not there.
    fn evict(&self, name: &LockName, id: ClaimId) -> impl Future<Output = Result<bool>> + Send;

    /// Notes that somebody asks for a claim to be released, so that `keep` reports it ([`Kept::asked`]); `false` if it is known
    /// not to be there. Where holders listen to messages it is one as well ([`Lifeline::ask_one`]). A style that cannot carry it
    /// says so in its abilities, and refuses.
    fn ask(&self, _name: &LockName, _id: ClaimId) -> impl Future<Output = Result<bool>> + Send {
        std::future::ready(Err(self.abilities().cannot_ask()))
    }

    /// Ends connections and background tasks.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Makes an [`Engine`] of a [`Queue`].
#[derive(Debug)]
pub struct QueueEngine<Q>(pub Q);

/// How often a join that does not wait is sent again after a temporary error; it finds its own claim by the id.
pub(crate) const TRIES: u32 = 3;

impl<Q: Queue> QueueEngine<Q> {
    async fn join(&self, attempt: &Attempt) -> Result<Joined> {
        let _turn = self.0.turn(attempt.claim()).await?;
        // Law 5: trust is counted from the first send, for a lost reply's join may have counted.
        let sent = self.0.clock().now();
        let mut tries = 1;
        loop {
            attempt.sending();
            match self.0.join(attempt.claim()).await {
                Ok(joined) => {
                    attempt.joined(sent, joined.lifeline.as_ref());
                    return Ok(joined);
                }
                Err(error) if error.is_temporary() && attempt.may_retry(sent, tries) => {
                    tries += 1;
                    self.0.clock().sleep(pause(attempt.claim().ttl)).await;
                }
                Err(error) => {
                    if matches!(error, Error::Mismatch { .. }) {
                        attempt.absent();
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn wait(&self, attempt: &Attempt, joined: &Joined, seen: Ahead) -> Result<Ahead> {
        loop {
            let look = tokio::select! {
                look = self.0.changed(attempt.claim(), joined.place, seen) => look,
                error = attempt.lost() => return Err(error),
            };
            match look {
                Err(error) if error.is_temporary() => {
                    tracing::debug!(claim = %attempt.claim().id, %error, "could not look at the queue; trying again");
                    self.0.clock().sleep(pause(attempt.claim().ttl)).await;
                }
                settled => return settled,
            }
        }
    }
}

/// A longer TTL is no reason for longer pauses.
const LONG_TTL: Duration = Duration::from_secs(10);

/// A short pause after a failure that may pass, at random so that many clients do not come back together.
pub(crate) fn pause(ttl: Duration) -> Duration {
    ttl.min(LONG_TTL).mul_f64(rand::rng().random_range(0.01..0.05))
}

impl<Q: Queue> crate::engine::sealed::Sealed for QueueEngine<Q> {}

impl<Q: Queue> Engine for QueueEngine<Q> {
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }

    fn ttl(&self, asked: Duration) -> Duration {
        self.0.ttl(asked)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, Result<Option<Grant>>> {
        Box::pin(async move {
            let demand = attempt.claim().demand;
            let joined = self.join(attempt).await?;
            let mut ahead = joined.ahead;
            while !grant::fits(ahead.0, demand.weight(), demand.limit()) {
                if !attempt.may_wait() {
                    return Ok(None);
                }
                ahead = self.wait(attempt, &joined, ahead).await?;
            }
            Ok(Some(Grant { token: joined.token }))
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Result<Kept>> {
        Box::pin(self.0.keep(renewals))
    }

    fn attach<'a>(&'a self, renewal: &'a Renewal, token: Token) -> BoxFuture<'a, Result<Option<Attached>>> {
        Box::pin(self.0.attach(renewal, token))
    }

    fn detached(&self, claim: &Claim) {
        self.0.detached(claim);
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Left>> {
        Box::pin(self.0.leave(claim))
    }

    fn shrink<'a>(&'a self, claim: &'a Claim, to: Demand) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.shrink(claim, to))
    }

    fn inspect<'a>(&'a self, prefix: &'a str, at_most: usize) -> BoxFuture<'a, Result<Vec<LockView>>> {
        Box::pin(self.0.list(prefix, at_most))
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockView>>> {
        Box::pin(self.0.look(name))
    }

    fn evict<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.0.evict(name, id))
    }

    fn ask<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.0.ask(name, id))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }
}
