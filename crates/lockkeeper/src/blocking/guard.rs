//! The guard for plain threads.

use super::wait_for;
use lockkeeper_core::engine::Clock;
use lockkeeper_core::{Error, Handle, Result, State, Token};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The proof that a lock is held; see [`lockkeeper::Guard`](crate::Guard). Dropping it releases in the background; the drop of
/// the last guard and keeper waits up to a second for that, so that a guard dropped at the end of `main` frees its lock.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard(pub(super) crate::Guard);

impl Guard {
    /// The lock's name, with its namespace.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The claim's id, as `inspect` shows it. Of a multi-lock, the first one's.
    pub fn claim(&self) -> String {
        self.0.claim()
    }

    /// The id of every lock's claim, in the order of [`tokens`](Self::tokens).
    pub fn claims(&self) -> Vec<String> {
        self.0.claims()
    }

    /// The fencing token, if the hold is trusted at this moment. Of a multi-lock, the first lock's (see
    /// [`tokens`](Self::tokens)).
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn token(&self) -> Result<Token> {
        self.0.token()
    }

    /// Every lock's name and token, if all are trusted at this moment.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn tokens(&self) -> Result<Vec<(String, Token)>> {
        self.0.tokens()
    }

    /// How much is left of a fixed lease; `None` without one. Of a multi-lock, the lease that ends first.
    pub fn lease_left(&self) -> Option<Duration> {
        self.0.lease_left()
    }

    /// How long the hold may be trusted if no further renewal succeeds.
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// What the clock and the last renewals say at this moment.
    pub fn state(&self) -> State {
        self.0.state()
    }

    /// Waits until the hold is lost; the reason.
    ///
    /// # Errors
    /// [`Error::Invalid`] from async code.
    pub fn lost(&self) -> Result<Error> {
        wait_for(self.0.lost())
    }

    /// Waits until the hold is lost, up to `limit`; the reason, or `None` if it is still held then.
    ///
    /// # Errors
    /// [`Error::Invalid`] from async code.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<Error>> {
        wait_for(async { Clock::Boot.timeout(limit, self.0.lost()).await.ok() })
    }

    /// Like [`lost`](Self::lost), without borrowing the guard: for a thread that watches it while others use and release it.
    ///
    /// ```
    /// # use lockkeeper::blocking::Keeper;
    /// # fn main() -> lockkeeper::Result<()> {
    /// let keeper = Keeper::connect("memory:")?;
    /// let guard = keeper.mutex("report").lock()?;
    /// let signal = guard.lost_signal();
    /// let watching = std::thread::spawn(move || signal.wait());
    /// keeper.close()?;
    /// assert!(watching.join().expect("the thread ended")?.is_lost());
    /// # Ok(()) }
    /// ```
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal(Box::pin(self.0.lost_signal()))
    }

    /// Waits until somebody asks for this hold to be released; see
    /// [`Guard::release_requested`](crate::Guard::release_requested).
    ///
    /// # Errors
    /// [`Error::Invalid`] from async code.
    pub fn release_requested(&self) -> Result<()> {
        wait_for(self.0.release_requested())
    }

    /// Whether somebody has asked for this hold to be released.
    pub fn is_release_requested(&self) -> bool {
        self.0.is_release_requested()
    }

    /// A writer becomes a reader without letting go.
    ///
    /// # Errors
    /// As [`Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(&self) -> Result<()> {
        wait_for(self.0.downgrade())?
    }

    /// How long the engine keeps the hold from this moment on even if this process ends; see
    /// [`Guard::outlives`](crate::Guard::outlives).
    pub fn outlives(&self) -> Duration {
        self.0.outlives()
    }

    /// Detaches the hold from this process: the engine keeps it for this long. The handle takes it over again, with
    /// [`Keeper::attach`](super::Keeper::attach).
    ///
    /// # Errors
    /// As [`Guard::detach`](crate::Guard::detach); [`Error::Invalid`] also if the thread has entered the lock more than once.
    pub fn detach(self, duration: Duration) -> Result<Handle> {
        wait_for(self.0.detach(duration))?
    }

    /// Releases at once, whatever `hold_at_least` says.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release).
    pub fn release_at_once(self) -> Result<()> {
        wait_for(self.0.release_at_once())?
    }

    /// Releases and waits for the engine's word: `unlock`. One that was entered again just counts down.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<()> {
        wait_for(self.0.release())?
    }
}

/// The loss of a hold, for a thread that does not have its guard; see [`Guard::lost_signal`]. After a release it comes, too, at
/// the latest when the last renewal's time is over.
#[must_use = "nothing is noticed until it is waited for"]
pub struct LostSignal(Pin<Box<dyn Future<Output = Error> + Send>>);

impl LostSignal {
    /// Waits until the hold is lost; the reason.
    ///
    /// # Errors
    /// [`Error::Invalid`] from async code.
    pub fn wait(self) -> Result<Error> {
        wait_for(self.0)
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LostSignal")
    }
}
