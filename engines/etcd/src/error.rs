//! What a request to etcd can fail with, and whether another try may succeed.

use lockkeeper_core::Error;
use lockkeeper_core::engine::{NoReply, Password};
use std::fmt;
use std::sync::Arc;
use tonic::{Code, Status};

/// A request that failed.
#[derive(Debug, Clone)]
pub(crate) struct RequestError {
    cause: Cause,
    is_final: bool,
}

#[derive(Debug, Clone)]
enum Cause {
    /// An error reply of the server, or of the driver.
    Status(Box<Status>),
    NoReply(NoReply),
    /// There is no connection.
    Connect(Arc<Error>),
}

impl RequestError {
    /// The reply to a login. A refused one may pass, if another password may come.
    pub(crate) fn of_login(status: Status, password: &Password) -> Self {
        let error = Self::from(status);
        if error.is_temporary() {
            return error;
        }
        Self::from(password.refused(Error::permanent("etcd", "log in", error.to_string())))
    }

    /// Another try would fail in the same way.
    pub(crate) fn into_final(self) -> Self {
        Self { is_final: true, ..self }
    }

    fn status(&self) -> Option<&Status> {
        match &self.cause {
            Cause::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The server did not reply in time.
    pub(crate) fn is_no_reply(&self) -> bool {
        matches!(self.cause, Cause::NoReply(_))
    }

    /// The driver's error, not the server's: the connection has broken.
    pub(crate) fn is_of_connection(&self) -> bool {
        self.status().is_some_and(|status| std::error::Error::source(status).is_some())
    }

    /// The server no longer knows our token, or its users have changed since we got it.
    pub(crate) fn is_about_login(&self) -> bool {
        self.status().is_some_and(|status| {
            status.code() == Code::Unauthenticated
                || status.message().contains("revision of auth store is old")
        })
    }

    /// The lease is gone, so nothing can be bound to it.
    pub(crate) fn is_lease_not_found(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code() == Code::NotFound && status.message().contains("lease"))
    }

    /// Whether the same request may succeed, on this member or another, now or later.
    pub(crate) fn is_temporary(&self) -> bool {
        if self.is_final {
            return false;
        }
        match &self.cause {
            Cause::NoReply(_) => true,
            Cause::Connect(error) => error.is_temporary(),
            Cause::Status(status) => {
                self.is_about_login()
                    || matches!(
                        status.code(),
                        Code::Unavailable
                            | Code::DeadlineExceeded
                            | Code::Cancelled
                            | Code::Unknown
                            | Code::Internal
                            | Code::Aborted
                            | Code::ResourceExhausted
                    )
            }
        }
    }

    /// As an error of the engine; `doing` finishes the sentence 'could not …'.
    pub(crate) fn into_error(self, doing: &'static str) -> Error {
        match &self.cause {
            Cause::Connect(error) if matches!(**error, Error::Invalid(_)) => {
                Error::invalid(error.to_string())
            }
            _ if self.is_temporary() => Error::temporary("etcd", doing, self.to_string()),
            _ => Error::permanent("etcd", doing, self.to_string()),
        }
    }
}

impl From<Status> for RequestError {
    fn from(status: Status) -> Self {
        Self { cause: Cause::Status(Box::new(status)), is_final: false }
    }
}

impl From<NoReply> for RequestError {
    fn from(none: NoReply) -> Self {
        Self { cause: Cause::NoReply(none), is_final: false }
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self { cause: Cause::Connect(Arc::new(error)), is_final: false }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::NoReply(none) => none.fmt(f),
            Cause::Connect(error) => error.fmt(f),
            Cause::Status(status) => {
                f.write_str(status.message())?;
                write_causes(f, std::error::Error::source(&**status))
            }
        }
    }
}

fn write_causes(
    f: &mut fmt::Formatter<'_>,
    mut cause: Option<&(dyn std::error::Error + 'static)>,
) -> fmt::Result {
    while let Some(error) = cause {
        write!(f, ": {error}")?;
        cause = error.source();
    }
    Ok(())
}

/// An error with all its causes.
pub(crate) struct WithCauses<'a>(pub(crate) &'a (dyn std::error::Error + 'static));

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        write_causes(f, self.0.source())
    }
}
