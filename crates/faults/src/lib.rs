//! Lets faults loose on locks of lockkeeper, records what every process saw, and judges it.
//!
//! A *cell* is an engine's style, a fault, and the outcome that is stated for the two: safe, safe after a wait, or a break that
//! is documented and must happen. [`run_cell`] runs one on servers of its own; [`torture`] lets the faults
//! of clients and networks loose on an engine that runs already. The workers are processes of their own: the program itself,
//! started again, so its `main` begins with [`answer`].
//!
//! ```no_run
//! lockkeeper_faults::answer();
//! let record = lockkeeper_faults::run_cell("redis", "pause".parse().unwrap(), &Default::default()).unwrap();
//! assert_eq!(record.surprise, None);
//! ```

mod apart;
mod cell;
mod clients;
pub mod command;
mod fault;
mod isolation;
mod judge;
mod network;
mod outcome;
mod page;
mod picture;
mod process;
mod record;
mod resource;
mod results;
mod shim;
mod subject;
pub mod torture;
mod worker;

pub use fault::Fault;
pub use outcome::{Break, Outcome, SOON};
pub use record::{Record, Settings, run_cell};
pub use worker::answer;

use std::fmt;

/// What kept a run from being one, such as a server that is not installed.
#[derive(Debug)]
pub struct Error(pub(crate) String, pub(crate) bool);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into(), false)
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self(text.into(), true)
    }

    /// Whether what was asked for cannot be.
    pub fn is_usage(&self) -> bool {
        self.1
    }
}

/// What may fail.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<lockkeeper::Error> for Error {
    fn from(error: lockkeeper::Error) -> Self {
        Self(error.to_string(), !matches!(error, lockkeeper::Error::Engine { .. }))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}
