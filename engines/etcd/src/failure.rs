//! What a call to etcd can fail with, and whether another try may succeed.

use lockkeeper_core::Error;
use std::fmt;
use std::time::Duration;
use tonic::{Code, Status};

/// A failed call.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    status: Box<Status>,
    silence: bool,
    hopeless: bool,
    /// Earlier tries of the same request failed, too, and may still take effect.
    pub(crate) retried: bool,
}

impl Failure {
    /// No answer within the time limit.
    pub(crate) fn silence(limit: Duration) -> Self {
        let status = Status::deadline_exceeded(format!("no answer within {limit:?}"));
        Self { status: Box::new(status), silence: true, hopeless: false, retried: false }
    }

    /// Another try would fail in the same way.
    pub(crate) fn give_up(&mut self) {
        self.hopeless = true;
    }

    pub(crate) fn is_silence(&self) -> bool {
        self.silence
    }

    /// The server no longer knows our token, or its users have changed since we got it.
    pub(crate) fn is_about_login(&self) -> bool {
        let text = self.status.message();
        self.status.code() == Code::Unauthenticated || text.contains("revision of auth store is old")
    }

    /// The lease is gone, so nothing can be bound to it.
    pub(crate) fn is_lease_not_found(&self) -> bool {
        self.status.code() == Code::NotFound && self.status.message().contains("lease")
    }

    /// Whether the same call may succeed, on this server or another, now or later.
    pub(crate) fn may_pass(&self) -> bool {
        if self.hopeless {
            return false;
        }
        self.is_about_login()
            || matches!(
                self.status.code(),
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
                    | Code::Unknown
                    | Code::Internal
                    | Code::Aborted
                    | Code::ResourceExhausted
            )
    }

    /// As an error of the engine; `doing` finishes the sentence 'could not …'.
    pub(crate) fn into_error(self, doing: &'static str) -> Error {
        if self.may_pass() {
            Error::temporary("etcd", doing, self.to_string())
        } else {
            Error::permanent("etcd", doing, self.to_string())
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status: Box::new(status), silence: false, hopeless: false, retried: false }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status.message())?;
        let mut cause = std::error::Error::source(&*self.status);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
