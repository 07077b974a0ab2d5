//! What can go wrong, sorted by what the caller does next.

use crate::claim::Shape;
use std::fmt;

/// The result of everything in lockkeeper that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a hold or a place in the queue is no longer ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// No renewal was confirmed before the deadline, so somebody else may be granted soon.
    Expired,
    /// The engine no longer has the claim: it expired there, was evicted, or its session ended.
    Gone,
    /// The fixed lease asked for has run out.
    LeaseEnded,
    /// The keeper was closed while the hold was alive.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "no renewal was confirmed in time",
            Self::Gone => "the engine no longer has the claim (it expired there or was evicted)",
            Self::LeaseEnded => "its fixed lease has ended",
            Self::Closed => "its keeper was closed",
        })
    }
}

/// An error, sorted by what the caller does next.
///
/// 'Held by somebody else' and 'timed out' are not errors: they are `None`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// **Stop**: the hold is gone, somebody else may hold the lock now.
    #[error("lost the lock '{name}': {reason}")]
    Lost {
        /// The lock.
        name: String,
        /// Why it was lost.
        reason: LostReason,
    },
    /// **Fix the program**: two users of one lock disagree on what kind of lock it is.
    #[error(
        "the lock '{name}' is in use as {ruling}, so it cannot be claimed as {wanted}: \
         let every user of the name agree, or choose another name"
    )]
    Mismatch {
        /// The lock.
        name: String,
        /// The shape this claim asked for.
        wanted: Shape,
        /// The shape of the oldest live claim, which rules.
        ruling: Shape,
    },
    /// **Fix the input**: nothing was sent to the engine.
    #[error("{0}")]
    Invalid(String),
    /// **Choose another engine or style**: this one cannot do it.
    #[error("{engine} cannot {what}; {instead}")]
    Unsupported {
        /// The engine and style.
        engine: String,
        /// What was asked for.
        what: &'static str,
        /// What can do it.
        instead: &'static str,
    },
    /// **Try again or call the operator**: the engine did not do its part.
    #[error("{engine}: could not {doing}: {source}")]
    Engine {
        /// Which engine.
        engine: &'static str,
        /// What we were doing, to finish the sentence 'could not …'.
        doing: &'static str,
        /// Whether the same call may succeed later.
        temporary: bool,
        /// What the driver said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// An engine failure that may pass: a broken connection, a time-out, a server that is restarting.
    pub fn temporary(
        engine: &'static str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Engine { engine, doing, temporary: true, source: source.into() }
    }

    /// An engine failure that will not pass by itself: no permission, a wrong set-up.
    pub fn permanent(
        engine: &'static str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Engine { engine, doing, temporary: false, source: source.into() }
    }

    /// A wrong input; the text says what to do instead.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// The same error for another caller that waited for the same thing.
    #[doc(hidden)]
    #[must_use]
    pub fn copy(&self) -> Self {
        match self {
            Self::Lost { name, reason } => Self::Lost { name: name.clone(), reason: *reason },
            Self::Mismatch { name, wanted, ruling } => {
                Self::Mismatch { name: name.clone(), wanted: *wanted, ruling: *ruling }
            }
            Self::Invalid(text) => Self::Invalid(text.clone()),
            Self::Unsupported { engine, what, instead } => {
                Self::Unsupported { engine: engine.clone(), what, instead }
            }
            Self::Engine { engine, doing, temporary, source } => {
                Self::Engine { engine, doing, temporary: *temporary, source: source.to_string().into() }
            }
        }
    }

    /// Whether the same call may succeed later without any change.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Engine { temporary: true, .. })
    }

    /// Whether the hold (or the place in the queue) is gone.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}
