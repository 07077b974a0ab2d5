//! The unfair mechanism: every claim tries, one wins, the others try again when the lock may be free.

use crate::claim::{Claim, ClaimId, Demand, Token};
use crate::clock::{Clock, Moment};
use crate::engine::{
    Abilities, Attached, BoxFuture, Engine, FEW, Grant, Kept, Left, Renewal, foreign_id, one_of,
};
use crate::error::{Error, Result};
use crate::life::{Attempt, Lifeline};
use crate::name::LockName;
use crate::queue::pause;
use crate::views::LockView;
use std::time::Duration;

/// What an attempt found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempted {
    /// The claim holds.
    Granted(Grant),
    /// It holds, and is known to live its TTL as counted from this moment only: the attempt took several sends (RedLock:
    /// several nodes, several rounds), or the grant came from a wait that was sent then. It may hang on a lifeline as well.
    GrantedAsOf(Grant, Moment, Option<Lifeline>),
    /// It holds, and hangs on this lifeline: a connection which frees the lock at the moment it breaks, or a session.
    GrantedOn(Grant, Lifeline),
    /// Somebody else holds; nothing of this claim is left at the engine. The engine may know how long the
    /// present hold can last at most.
    Busy {
        /// How long the present hold lives unless it is renewed.
        free_in: Option<Duration>,
    },
}

/// The few verbs a plain engine implements. The laws of [`Queue`](crate::engine::Queue) hold here, too, but for order:
/// a claim exists at the engine only while it holds.
///
/// Futures may be dropped at any await point; the keeper sends `leave` after that.
pub trait Race: Send + Sync + 'static {
    /// What this engine and style can do.
    fn abilities(&self) -> Abilities;

    /// The clock its leases are measured on: [`Clock::Boot`] for everything but the memory engine.
    fn clock(&self) -> Clock;

    /// The TTL it really gives when asked for this one: the same, unless a server negotiates.
    fn ttl(&self, asked: Duration) -> Duration;

    /// Tries to take the lock, in one round trip if the engine can. A second attempt of the same id finds
    /// its own hold (Law 4).
    fn attempt(&self, claim: &Claim) -> impl Future<Output = Result<Attempted>> + Send;

    /// Resolves when it is worth another try: on a message, or at the latest after `free_in`. Losers back off
    /// at random, so it may be late; it must not wait for ever, and fails when the engine does not reply.
    fn changed(&self, claim: &Claim, free_in: Option<Duration>) -> impl Future<Output = Result<()>> + Send;

    /// Keeps the claims alive for their TTL from now on, in one go; says which are dead.
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

    /// Frees the lock if this claim holds it, and nobody else's hold (Q7).
    fn leave(&self, claim: &Claim) -> impl Future<Output = Result<Left>> + Send;

    /// Lets a writer become a reader and wakes who may try now. Fails with [`Error::Lost`] if the claim is gone.
    fn shrink(&self, _: &Claim, _: Demand) -> impl Future<Output = Result<()>> + Send {
        let cannot = self.abilities().cannot("downgrade a writer to a reader", "the style 'queue' can");
        std::future::ready(Err(cannot))
    }

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

    /// Removes a claim of another client by force, which is named as `list` shows it; `false` if it was not there.
    fn evict_foreign(&self, name: &LockName, claim: &str) -> impl Future<Output = Result<bool>> + Send {
        async move { self.evict(name, foreign_id(claim)?).await }
    }

    /// Ends connections and background tasks.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Makes an [`Engine`] of a [`Race`].
#[derive(Debug)]
pub struct RaceEngine<R>(pub R);

impl<R: Race> RaceEngine<R> {
    fn check(&self, demand: Demand) -> Result<()> {
        let abilities = self.0.abilities();
        let engine = || format!("{} in the style '{}'", abilities.engine, abilities.style);
        match demand {
            Demand::Exclusive => Ok(()),
            Demand::Shared if abilities.shared => Ok(()),
            Demand::Permits { .. } if abilities.permits => Ok(()),
            Demand::Shared => Err(Error::Unsupported {
                engine: engine(),
                what: "share a lock among readers",
                instead: "the style 'queue' can",
            }),
            Demand::Permits { .. } => Err(Error::Unsupported {
                engine: engine(),
                what: "count permits",
                instead: "the style 'queue' can, on every engine that has it",
            }),
        }
    }

    /// One attempt, sent again with the same id after a failure that may pass.
    ///
    /// Law 5: counted from the first send, for a lost reply's attempt may have counted.
    async fn attempt(&self, attempt: &Attempt, sent: Moment) -> Result<Attempted> {
        let mut tries = 1;
        loop {
            attempt.sending();
            match self.0.attempt(attempt.claim()).await {
                Ok(outcome) => {
                    match &outcome {
                        Attempted::Granted(_) => attempt.joined(sent, None),
                        Attempted::GrantedAsOf(_, moment, lifeline) => {
                            attempt.joined(*moment, lifeline.as_ref())
                        }
                        Attempted::GrantedOn(_, lifeline) => attempt.joined(sent, Some(lifeline)),
                        Attempted::Busy { .. } => attempt.refused(),
                    }
                    return Ok(outcome);
                }
                Err(error) if error.is_temporary() && attempt.may_retry(sent, tries) => {
                    attempt.failed();
                    tries += 1;
                    self.0.clock().sleep(pause(attempt.claim().ttl)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<R: Race> crate::engine::sealed::Sealed for RaceEngine<R> {}

impl<R: Race> Engine for RaceEngine<R> {
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
            self.check(attempt.claim().demand)?;
            let mut sent = attempt.asked;
            loop {
                let free_in = match self.attempt(attempt, sent).await? {
                    Attempted::Granted(grant)
                    | Attempted::GrantedAsOf(grant, ..)
                    | Attempted::GrantedOn(grant, _) => {
                        return Ok(Some(grant));
                    }
                    Attempted::Busy { free_in } => free_in,
                };
                if !attempt.may_wait() {
                    return Ok(None);
                }
                // A wait that is given up may have something under way at the engine; its leave settles that.
                attempt.sending();
                if let Err(error) = self.0.changed(attempt.claim(), free_in).await {
                    if !error.is_temporary() {
                        return Err(error);
                    }
                    attempt.failed();
                    tracing::debug!(claim = %attempt.claim().id, %error, "could not wait for a change; trying again");
                    self.0.clock().sleep(pause(attempt.claim().ttl)).await;
                }
                sent = self.0.clock().now();
            }
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
        Box::pin(async move {
            let locks = self.0.list(prefix, at_most).await?;
            Ok(locks.into_iter().map(LockView::held_since_joined).collect())
        })
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockView>>> {
        Box::pin(async move { Ok(self.0.look(name).await?.map(LockView::held_since_joined)) })
    }

    fn evict<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.0.evict(name, id))
    }

    fn ask<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.0.ask(name, id))
    }

    fn evict_foreign<'a>(&'a self, name: &'a LockName, claim: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.0.evict_foreign(name, claim))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }
}
