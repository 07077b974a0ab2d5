//! What a driver's error means for the caller: try again, or call the operator.

use lockkeeper_core::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::io;

/// The driver's error as ours.
pub fn error(engine: &'static str, doing: &'static str, error: RedisError) -> Error {
    if is_temporary(&error) {
        Error::temporary(engine, doing, error)
    } else {
        Error::permanent(engine, doing, error)
    }
}

/// Whether the same request may succeed later.
fn is_temporary(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => {
            true
        }
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
        ),
        ErrorKind::Extension => {
            matches!(error.code(), Some("OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" | "UNBLOCKED"))
        }
        _ => false,
    }
}

/// Whether the server does not let this user in.
pub(crate) fn is_login_refused(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
}

/// Whether the connection it came from is of no use any more: it is closed, or leads to the wrong server.
pub(crate) fn closes_the_connection(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

/// An error of the connection.
pub(crate) fn io_error(kind: io::ErrorKind, text: impl Into<String>) -> RedisError {
    io::Error::new(kind, text.into()).into()
}
