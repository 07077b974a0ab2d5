//! How the program ends: every exit status and what it means, in one place.

use lockkeeper::Error;
use std::fmt;

/// Done (or, of `run`, the command's own success).
pub(crate) const SUCCESS: u8 = 0;
/// Nothing was there to do, the question was answered with no, or a holder that was asked is still there; of `torture`,
/// a promise did not hold.
pub(crate) const NOTHING_DONE: u8 = 1;
/// Wrong usage: an option, a name, a duration, a URL.
pub(crate) const USAGE: u8 = 64;
/// The engine is not reachable, or failed.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The wait ended without the lock.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The lease ended while the command ran; timeout(1) uses the same status.
pub(crate) const LEASE_ENDED: u8 = 124;
/// The command could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// The table in the help of `run`; docs/cli.md has the same.
pub(crate) const HELP: &str = "\
Exit status:
  the command's own, or 128+N if signal N ended it
  1      evict: nothing to evict, the question was answered with no, or asked and still there;
         torture: a promise did not hold
  64     wrong usage: an option, a name, a duration, a URL, a name in use as another kind of lock
  69     the engine is not reachable, or failed
  75     the lock was not acquired in time, and the command was not started (see -E)
  76     the lock was lost, and the command was ended; renew, release: the engine no longer has the hold
  124    the lease ended, and the command was ended
  126    the command cannot be executed
  127    the command was not found
  128+N  signal N ended the wait";

/// What a command comes to: an exit status, or a failure to report.
pub(crate) type Outcome = Result<u8, Failure>;

/// Why a command failed: the exit status and the message for standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
    /// Whether the engine failed.
    is_of_engine: bool,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), is_of_engine: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Of a wait, before anything runs under the lock or has its handle: nobody has lost anything.
    pub(crate) fn before_hold(error: Error) -> Self {
        let is_lost = error.is_lost();
        let failure = Self::from(error);
        if is_lost { Self { status: UNAVAILABLE, ..failure } } else { failure }
    }

    /// Whether a command was ended because its lock was lost.
    pub(crate) fn is_loss(&self) -> bool {
        self.status == LOST
    }

    /// Names the engine's URL, if its server is not in the message yet: a connection that breaks later is not looked into.
    pub(crate) fn at(mut self, place: &str) -> Self {
        let servers = place.split_once("://").map_or(place, |(_, rest)| rest);
        let servers =
            servers.rsplit('@').next().and_then(|rest| rest.split('/').find(|part| !part.is_empty()));
        let mut servers = servers.unwrap_or(place).split(',');
        if self.is_of_engine && !servers.any(|server| self.message.contains(server)) {
            self.message += &format!(" ({place})");
        }
        self
    }

    /// Ended by a signal; the status is the one a shell reports. The sender knows, so there is no message.
    pub(crate) fn by_signal(signal: i32) -> Self {
        Self::new(by_signal(signal), "")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The status of a process that a signal ended.
pub(crate) fn by_signal(signal: i32) -> u8 {
    128_u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Lost { .. } => LOST,
            Error::Engine { .. } => UNAVAILABLE,
            _ => USAGE,
        };
        Self { status, message: error.to_string(), is_of_engine: status == UNAVAILABLE }
    }
}

/// Prints the failure on standard error, if there is one with a message, and returns the exit status.
pub(crate) fn report(outcome: Outcome) -> u8 {
    match outcome {
        Ok(status) => status,
        Err(failure) => {
            if !failure.message.is_empty() {
                crate::output::warn(&failure.message);
            }
            failure.status
        }
    }
}
