//! How the program ends: every exit status and what it means, told once.

use lockkeeper::Error;

/// All went well (or, of `run`, the command said so).
pub(crate) const SUCCESS: u8 = 0;
/// There was nothing to do, or the answer to a question was no.
pub(crate) const NOTHING_DONE: u8 = 1;
/// Wrong usage: an option, a name, a duration, a URL.
pub(crate) const USAGE: u8 = 64;
/// The engine is not reachable or did not do its part.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The wait ended without the lock.
pub(crate) const NOT_GRANTED: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The command could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// The table that the help texts show.
pub(crate) const HELP: &str = "\
Exit status:
  the command's own, 128+N if signal N ended it (of 'run')
  1    nothing was there to evict, or the question was answered with no
  64   wrong usage: an option, a name, a duration, an engine's URL
  69   the engine is not reachable, or failed
  75   the wait ended without the lock; the command was not started
  76   the lock was lost, so the command was ended
  126  the command is not executable
  127  the command was not found";

/// What a verb comes to: an exit status, or a failure to tell.
pub(crate) type Outcome = Result<u8, Failure>;

/// Why a verb failed: the exit status and what to say on standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Ended by a signal, as a shell tells it. There is nothing to say: whoever sent it knows.
    pub(crate) fn by_signal(signal: i32) -> Self {
        Self::new(by_signal(signal), "")
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
        Self::new(status, error.to_string())
    }
}

/// Tells the outcome on standard error, if it needs telling, and returns the exit status.
pub(crate) fn tell(outcome: Outcome) -> u8 {
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
