//! What a driver's error means for us: try again, or call the operator.

use lockkeeper_core::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The driver's error as ours.
pub fn failure(engine: &'static str, doing: &'static str, error: RedisError) -> Error {
    if may_pass(&error) {
        Error::temporary(engine, doing, error)
    } else {
        Error::permanent(engine, doing, error)
    }
}

/// Whether the same request may succeed later.
pub(crate) fn may_pass(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => true,
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

/// Whether the connection it came from is to be given up: it is dead, silent, or leads to the wrong server.
pub(crate) fn spoils_the_connection(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}
