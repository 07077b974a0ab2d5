//! What the driver's errors mean for the caller.

use crate::messages::Refusal;
use lockkeeper_core::Error;
use tokio_postgres::error::Severity;

pub(crate) const ENGINE: &str = "postgres";

/// The error for a request that failed: temporary if the same request may succeed later.
pub(crate) fn fault(doing: &'static str, error: tokio_postgres::Error) -> Error {
    let temporary = error.as_db_error().is_none_or(|told| passes(told.code().code()));
    if temporary {
        Error::temporary(ENGINE, doing, Told(error))
    } else {
        Error::permanent(ENGINE, doing, Told(error))
    }
}

/// The same for what the server says on a connection of ours.
pub(crate) fn refused(doing: &'static str, refusal: Box<Refusal>) -> Error {
    if passes(&refusal.code) {
        Error::temporary(ENGINE, doing, refusal)
    } else {
        Error::permanent(ENGINE, doing, refusal)
    }
}

/// The error for a request whose connection has ended.
pub(crate) fn ended(doing: &'static str, error: std::io::Error) -> Error {
    Error::temporary(ENGINE, doing, error)
}

/// The error for a connection that could not be opened, but may be later.
pub(crate) fn could_not_connect(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::temporary(ENGINE, "connect", error)
}

/// The server or its resources are in trouble, not the request.
fn passes(code: &str) -> bool {
    const PASSING_CLASSES: [&str; 5] = ["08", "40", "53", "55", "57"];
    // A database that is being dropped does not come back by itself.
    code != "57P04" && PASSING_CLASSES.iter().any(|class| code.starts_with(class))
}

/// Whether the server has refused the request, and undone it. After any other failure it may have been done.
pub(crate) fn was_refused(error: &Error) -> bool {
    let Error::Engine { source, .. } = error else { return false };
    let told = source.downcast_ref::<Told>().and_then(|told| told.0.as_db_error());
    told.is_some_and(|told| told.parsed_severity() == Some(Severity::Error))
}

/// The driver says no more than 'db error' by itself; people want the server's own words.
#[derive(Debug)]
struct Told(tokio_postgres::Error);

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_db_error() {
            Some(told) => write!(f, "{} ({})", told.message(), told.code().code()),
            None => match std::error::Error::source(&self.0) {
                Some(source) => write!(f, "{}: {source}", self.0),
                None => write!(f, "{}", self.0),
            },
        }
    }
}

impl std::error::Error for Told {}

/// The error for a request without an answer in time.
pub(crate) fn too_late(doing: &'static str, limit: std::time::Duration) -> Error {
    Error::temporary(ENGINE, doing, format!("no answer within {limit:?}"))
}
