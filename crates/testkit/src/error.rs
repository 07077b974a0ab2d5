//! Why a server did not start.

use std::fmt;
use std::io;

/// Why a server did not start; its text is what a failed test shows.
#[derive(Debug)]
pub(crate) enum Error {
    NotInstalled {
        program: String,
        engine: &'static str,
    },
    /// Someone took the port between our look and the server's bind: another port may do.
    PortTaken(String),
    NotReady(String),
    Command {
        program: String,
        output: String,
    },
    Io {
        what: String,
        source: io::Error,
    },
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotInstalled { program, engine } => {
                write!(f, "{program} is not installed: run scripts/install-engines {engine}")
            }
            Error::PortTaken(why) | Error::NotReady(why) => f.write_str(why),
            Error::Command { program, output } => write!(f, "{program} failed:\n{output}"),
            Error::Io { what, source } => write!(f, "cannot {what}: {source}"),
        }
    }
}

/// Names what was tried when an input or output operation fails.
pub(crate) trait Trying<T> {
    fn trying(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Trying<T> for io::Result<T> {
    fn trying(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { what: what.into(), source })
    }
}

/// The value, or a panic with the error's own text.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T>) -> T {
    // A closure would hide the caller's place.
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
