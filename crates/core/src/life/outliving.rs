//! How long a claim stays at the engine although its process does not renew it: detached holds, and holds with a least time.

use super::Life;
use crate::clock::Moment;
use crate::engine::Renewal;
use crate::error::Error;
use crate::sync::MutexGuard;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a claim lives at least, whatever becomes of this process.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Outliving {
    until: Option<Moment>,
    /// The claim is to end at that moment and not later, since nobody renews it further.
    is_last: bool,
    /// A release before that moment leaves the claim at the engine until then.
    stays: bool,
    /// How often this was changed, and which of these changes the engine has confirmed.
    requested: u32,
    confirmed: u32,
}

impl Life {
    fn outliving(&self) -> MutexGuard<'_, Outliving> {
        self.outliving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From its next renewal on the claim lives at least until this moment; if that renewal is the last one, not longer.
    /// Returns what to wait for with [`when_confirmed`](Self::when_confirmed).
    pub(crate) fn outlive(&self, until: Moment, is_last: bool) -> u32 {
        let mut outliving = self.outliving();
        outliving.until = Some(until);
        outliving.is_last = is_last;
        outliving.requested += 1;
        outliving.requested
    }

    /// The claim is not to leave before that moment.
    pub(crate) fn stay(&self, stays: bool) {
        self.outliving().stays = stays;
    }

    /// How much longer the claim is to stay at the engine, if it may not leave yet.
    pub(crate) fn must_stay(&self) -> Option<Duration> {
        let Outliving { until: Some(until), stays: true, .. } = *self.outliving() else { return None };
        Some(until.since(self.clock.now())).filter(|rest| !rest.is_zero())
    }

    /// How long the claim lives at least from now on, whatever becomes of this process.
    pub(crate) fn outlives(&self) -> Duration {
        self.outliving().until.map_or(Duration::ZERO, |until| until.since(self.clock.now()))
    }

    /// The renewal to send now, and which change it confirms.
    pub(crate) fn renewal(&self, now: Moment) -> (Renewal, u32) {
        let Outliving { until, is_last, requested, .. } = *self.outliving();
        let outlives = until.map_or(Duration::ZERO, |until| until.since(now));
        let ttl = if is_last { outlives } else { self.ttl_from(now) };
        let renewal = Renewal::new(Arc::new(self.claim.clone()), ttl).outlives(outlives);
        (renewal.held_for(self.held_for(now)), requested)
    }

    /// The engine has confirmed a renewal with this change.
    pub(crate) fn confirm(&self, change: u32) {
        let mut outliving = self.outliving();
        if outliving.confirmed < change {
            outliving.confirmed = change;
            drop(outliving);
            self.changed.notify_waiters();
        }
    }

    /// Resolves when the engine has confirmed this change, or the claim is over.
    pub(crate) async fn when_confirmed(&self, change: u32) -> Result<(), Error> {
        loop {
            let changed = self.changed.notified();
            if self.outliving().confirmed >= change {
                return Ok(());
            }
            if let Some(reason) = self.lost() {
                return Err(self.error(reason));
            }
            changed.await;
        }
    }
}
