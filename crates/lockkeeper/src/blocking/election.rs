//! The election for plain threads.

use super::locks::ways_to_ask;
use super::{Cancel, Guard, wait_for, wait_unless};
use lockkeeper_core::engine::Clock;
use lockkeeper_core::{ClaimView, Result};
use std::time::Duration;

/// One candidate at a time leads; see [`Keeper::election`](super::Keeper::election).
///
/// ```
/// use lockkeeper::blocking::Keeper;
/// # fn main() -> lockkeeper::Result<()> {
/// let election = Keeper::connect("memory:")?.election("scheduler");
/// let leading = election.campaign()?;
/// assert_eq!(election.leader()?.and_then(|leader| leader.token), Some(leading.token()?));
/// leading.release()?; // resigns
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    pub(super) lock: crate::Election,
}

impl Election {
    ways_to_ask!(campaign, try_campaign, campaign_within, campaign_unless(), "to lead");

    /// Who leads, if anybody does.
    ///
    /// # Errors
    /// As [`Election::leader`](crate::Election::leader); [`Error::Invalid`](crate::Error::Invalid) from async code.
    pub fn leader(&self) -> Result<Option<ClaimView>> {
        wait_for(self.lock.leader())?
    }

    /// The leaders from now on: first the present one, then every change; see
    /// [`Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Leaders {
        Leaders(self.lock.observe())
    }
}

/// The leaders of an election, one after the other: an iterator that never ends.
#[derive(Debug)]
pub struct Leaders(crate::Leaders);

impl Leaders {
    /// Waits for the next leader, or `None` when nobody leads any more. The first call says who leads now.
    ///
    /// # Errors
    /// As [`Leaders::changed`](crate::Leaders::changed); [`Error::Invalid`](crate::Error::Invalid) from async code.
    pub fn changed(&mut self) -> Result<Option<ClaimView>> {
        wait_for(self.0.changed())?
    }

    /// Like [`changed`](Self::changed), up to `limit`; `None` if nothing has changed by then.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    pub fn changed_within(&mut self, limit: Duration) -> Result<Option<Option<ClaimView>>> {
        let changed = wait_for(async { Clock::Boot.timeout(limit, self.0.changed()).await })?;
        changed.ok().transpose()
    }
}

impl Iterator for Leaders {
    type Item = Result<Option<ClaimView>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.changed())
    }
}
