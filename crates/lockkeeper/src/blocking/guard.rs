//! The guard for plain threads.

use super::wait_for;
use lockkeeper_core::{Error, Result, State, Token};
use std::time::Duration;

/// The proof that a lock is held; see [`lockkeeper::Guard`](crate::Guard). Dropping it releases in the background.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard(pub(super) crate::Guard);

impl Guard {
    /// The lock's name, with its namespace.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The fencing token, if the hold is trusted at this moment.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn token(&self) -> Result<Token> {
        self.0.token()
    }

    /// How long the hold may be trusted if no further renewal succeeds.
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// What the clock and the last renewals say at this moment.
    pub fn state(&self) -> State {
        self.0.state()
    }

    /// Waits until the hold is lost, up to `limit`; the reason, or `None` if it is still held then.
    ///
    /// # Errors
    /// [`Error::Invalid`] from async code.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<Error>> {
        wait_for(async { tokio::time::timeout(limit, self.0.lost()).await.ok() })
    }

    /// A writer becomes a reader without letting go.
    ///
    /// # Errors
    /// As [`Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(&self) -> Result<()> {
        wait_for(self.0.downgrade())?
    }

    /// Releases and waits for the engine's word: `unlock`. One that was entered again just counts down.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<()> {
        wait_for(self.0.release())?
    }
}
