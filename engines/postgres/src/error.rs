//! From errors of the driver to errors for the caller.

use lockkeeper_core::Error;
use lockkeeper_core::engine::NoReply;
use tokio_postgres::error::{Severity, SqlState};

pub(crate) const ENGINE: &str = "postgres";

/// The error of a request that failed: temporary if the same request may succeed later.
pub(crate) fn failed(doing: &'static str, error: tokio_postgres::Error) -> Error {
    let temporary = error.as_db_error().is_none_or(|reply| passes(reply.code().code()));
    if temporary {
        Error::temporary(ENGINE, doing, Driver(error))
    } else {
        Error::permanent(ENGINE, doing, Driver(error))
    }
}

/// Whether the server does not let this user in: a wrong password, or a rule against it.
pub(crate) fn is_login_refused(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|reply| reply.code().code().starts_with("28"))
}

/// Whether the server does not have the prepared statement that it was just given, or has had it before.
pub(crate) fn is_about_names(error: &tokio_postgres::Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) || code == Some(&SqlState::DUPLICATE_PSTATEMENT)
}

/// The error of a request without a reply in time.
pub(crate) fn no_reply(doing: &'static str, error: NoReply) -> Error {
    Error::temporary(ENGINE, doing, error)
}

/// Whether the cause is the state of the server or its resources, and not the request.
fn passes(code: &str) -> bool {
    const PASSING_CLASSES: [&str; 5] = ["08", "40", "53", "55", "57"];
    // A database that is being dropped does not come back by itself.
    code != "57P04" && PASSING_CLASSES.iter().any(|class| code.starts_with(class))
}

/// Whether the server has refused the request, and undone it. After any other error it may have been done.
pub(crate) fn was_refused(error: &Error) -> bool {
    let Error::Engine { source, .. } = error else { return false };
    let reply = source.downcast_ref::<Driver>().and_then(|error| error.0.as_db_error());
    reply.is_some_and(|reply| reply.parsed_severity() == Some(Severity::Error))
}

/// The driver's error with the server's message, which the driver itself leaves out.
#[derive(Debug)]
struct Driver(tokio_postgres::Error);

impl std::fmt::Display for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_db_error() {
            Some(reply) => write!(f, "{} ({})", reply.message(), reply.code().code()),
            None => {
                write!(f, "{}", self.0)?;
                if let Some(source) = std::error::Error::source(&self.0) {
                    write!(f, ": {source}")?;
                }
                if self.0.to_string().contains("TLS handshake") {
                    f.write_str(" (parameters sslmode and sslrootcert)")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Driver {}
