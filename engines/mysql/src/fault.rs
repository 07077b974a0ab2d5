//! What the driver's errors mean for the caller.

use crate::collision::is_collision;
use lockkeeper_core::{Error, Result};
use std::time::Duration;

pub(crate) const ENGINE: &str = "mysql";

/// The error for a request that failed: temporary if the same request may succeed later.
pub(crate) fn fault(doing: &'static str, error: mysql_async::Error) -> Error {
    let temporary = match &error {
        mysql_async::Error::Io(_) | mysql_async::Error::Driver(_) => true,
        mysql_async::Error::Server(told) => passes(told.code),
        mysql_async::Error::Other(_) | mysql_async::Error::Url(_) => false,
    };
    if temporary { Error::temporary(ENGINE, doing, error) } else { Error::permanent(ENGINE, doing, error) }
}

/// The server or its resources are in trouble, not the request.
fn passes(code: u16) -> bool {
    const TOO_MANY_CONNECTIONS: u16 = 1040;
    const SHUTTING_DOWN: u16 = 1053;
    const TOO_MANY_OF_THIS_USER: u16 = 1203;
    const INTERRUPTED: u16 = 1317;
    const KILLED: u16 = 1927;
    const STATEMENT_TOO_LONG: u16 = 1969;
    [TOO_MANY_CONNECTIONS, SHUTTING_DOWN, TOO_MANY_OF_THIS_USER, INTERRUPTED, KILLED, STATEMENT_TOO_LONG]
        .contains(&code)
        || is_collision(code)
}

/// Whether the server undid a statement because it collided with another.
pub(crate) fn collided<T>(outcome: &Result<T>) -> bool {
    let Err(Error::Engine { source, .. }) = outcome else { return false };
    matches!(source.downcast_ref(), Some(mysql_async::Error::Server(told)) if is_collision(told.code))
}

/// The error for a request without an answer in time.
pub(crate) fn too_late(doing: &'static str, limit: Duration) -> Error {
    Error::temporary(ENGINE, doing, format!("no answer within {limit:?}"))
}

/// The error for a request on a connection that has been cut.
pub(crate) fn cut(doing: &'static str) -> Error {
    Error::temporary(ENGINE, doing, "the connection is broken")
}
