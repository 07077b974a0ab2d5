//! Takes over a detached hold: the engine says what is left of it.

use crate::acquire::Stay;
use crate::claim::{Claim, Demand, Token};
use crate::error::{Error, Result};
use crate::guard::{Guard, Hold};
use crate::handle::Handle;
use crate::keeper::{Keeper, LONGEST_HOLD};
use crate::life::Life;
use crate::name::LockName;
use crate::queue::pause;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

impl Keeper {
    /// Takes over a detached hold: this keeper renews it from now on, until the guard is released, dropped or detached again.
    ///
    /// The token stays the same. If this process is killed, the engine keeps the hold for what was left of the time it was
    /// detached for, and at least for the TTL. When two keepers attach the same handle, both share one claim: what one
    /// releases is lost to the other at its next renewal. (The file engine refuses the second while the first process lives.)
    ///
    /// Cancel safety: when dropped, the hold stays detached.
    ///
    /// # Errors
    /// [`Error::Lost`] if the engine has no such claim any more: it expired, was released or evicted. [`Error::Invalid`] for a
    /// handle of another engine, style or namespace, one with another token than the hold's, or one that this keeper has attached
    /// already. [`Error::Engine`].
    pub async fn attach(&self, handle: &Handle) -> Result<Guard> {
        self.check_handle(handle)?;
        let clock = self.0.clock;
        let claim = Claim {
            id: handle.claim,
            name: LockName::under(&self.0.namespace, &handle.name)?,
            demand: handle.demand,
            holder: Arc::clone(&self.1),
            keeper: self.0.id,
            ttl: self.0.ttl,
        };
        let life = Arc::new(Life::new(claim, clock));
        let start = clock.now();
        loop {
            match self.attach_once(&life, handle).await {
                Err(error) if error.is_temporary() && clock.now().since(start) < self.0.ttl / 2 => {
                    clock.sleep(pause(self.0.ttl)).await;
                }
                settled => break settled?,
            }
        }
        self.0.renewals.add(&life);
        life.granted(self.0.telemetry.held(&life.claim));
        let now = clock.now();
        self.0.telemetry.granted(&life.claim, handle.token, now.since(start), life.deadline().since(now));
        let stay = Stay::new(self, life);
        Ok(Guard::new(Arc::new(Hold::new(stay, handle.token, now))))
    }

    /// Renews the claim for no less than the engine keeps it anyway: by the engine's clock, since the handle's time may be another
    /// machine's, and older than the last renewal.
    async fn attach_once(&self, life: &Arc<Life>, handle: &Handle) -> Result<()> {
        let clock = self.0.clock;
        let looked = clock.now();
        let found = self.0.engine.look(&life.claim.name).await?.and_then(|lock| {
            let id = life.claim.id.to_string();
            lock.claims.into_iter().find(|claim| claim.id == id)
        });
        let known = found.as_ref().and_then(|claim| claim.token);
        if known.is_some_and(|token| token != handle.token) {
            return Err(Error::invalid(format!(
                "the token of the handle of '{}' is not the hold's: give the whole line that acquire printed",
                handle.name
            )));
        }
        let left = found.and_then(|claim| claim.ttl_left).unwrap_or_else(|| handle.left());
        life.outlive(looked.plus(left.min(LONGEST_HOLD)), false);
        let sent = clock.now();
        let (renewal, change) = life.renewal(sent);
        let attached = self.0.engine.attach(&renewal, handle.token).await?;
        let attached = attached.ok_or_else(|| life.claim.gone())?;
        life.joined(sent, renewal.ttl, attached.lifeline.as_ref());
        life.confirm(change);
        Ok(())
    }

    fn check_handle(&self, handle: &Handle) -> Result<()> {
        let abilities = self.abilities();
        if self.0.closed.load(SeqCst) {
            return Err(Error::invalid("the keeper is closed; make a new one"));
        }
        let (engine, style) = (&handle.engine, &handle.style);
        if (engine.as_str(), style.as_str()) != (abilities.engine, abilities.style) {
            return Err(Error::invalid(format!(
                "the handle of '{}' is of {engine} in the style '{style}', and this is {} in the style '{}': connect to \
                 the engine that it was acquired on",
                handle.name, abilities.engine, abilities.style
            )));
        }
        if handle.namespace != self.0.namespace {
            return Err(Error::invalid(format!(
                "the handle of '{}' is of the namespace '{}', and this keeper's is '{}': use the same",
                handle.name, handle.namespace, self.0.namespace
            )));
        }
        if self.0.renewals.contains(handle.claim) {
            return Err(Error::invalid(format!(
                "this keeper holds '{}' by this handle already",
                handle.name
            )));
        }
        Ok(())
    }

    /// The handle of a hold that was detached for this long.
    pub(crate) fn handle(&self, claim: &Claim, demand: Demand, token: Token, duration: Duration) -> Handle {
        let abilities = self.abilities();
        let until = SystemTime::now() + duration;
        let until_seconds = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let namespace = self.0.namespace.clone();
        let strip = if namespace.is_empty() { 0 } else { namespace.len() + 1 };
        Handle {
            engine: abilities.engine.into(),
            style: abilities.style.into(),
            namespace,
            name: claim.name.as_str()[strip..].into(),
            claim: claim.id,
            demand,
            token,
            until_seconds,
        }
    }
}
