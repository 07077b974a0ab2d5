//! What every connection has: the server's process behind it, who drives it, and what ends with it.

use crate::config::{Backends, Settings};
use crate::fault::{ENGINE, too_late};
use lockkeeper_core::drive::{Drive, Watched};
use lockkeeper_core::{Error, Lifeline, Result};
use std::sync::Arc;
use std::time::Duration;

/// It is never repaired: when the connection breaks, its lifeline ends.
pub(crate) struct Backing {
    /// The server's process; 0 as long as it is not known.
    pub(crate) backend: i32,
    pub(crate) lifeline: Lifeline,
    pub(crate) line: Arc<Watched>,
    limit: Duration,
    backends: Backends,
}

fn pooled() -> Error {
    Error::permanent(
        ENGINE,
        "keep one session",
        "the server's process behind this connection changes: there is a transaction pooler in between; \
         connect to PostgreSQL itself, or to a pooler in session mode",
    )
}

impl Backing {
    pub(crate) fn new(settings: &Settings, drive: Drive, lifeline: Lifeline) -> Self {
        Self {
            backend: 0,
            lifeline,
            line: settings.watch.over(drive),
            limit: settings.limits.request,
            backends: settings.backends.clone(),
        }
    }

    /// Enters the process behind it, which no other connection of the keeper may have.
    pub(crate) fn enter(&mut self, backend: i32) -> Result<()> {
        if !self.backends.enter(backend) {
            return Err(pooled());
        }
        self.backend = backend;
        Ok(())
    }

    /// Lets another connection have the process behind it.
    pub(crate) fn leave(&mut self) -> i32 {
        self.backends.forget(self.backend);
        std::mem::take(&mut self.backend)
    }

    /// The statement was answered by another process than ours.
    pub(crate) fn is_pooled(&self) -> Error {
        self.abort();
        pooled()
    }

    /// Refuses a pooler that gives each transaction another process: session locks would be anybody's.
    pub(crate) fn check_backend(&self, backend: i32) -> Result<()> {
        if backend == self.backend {
            return Ok(());
        }
        Err(self.is_pooled())
    }

    /// Cuts the connection; what it held is lost at once.
    pub(crate) fn abort(&self) {
        self.line.drive().close();
    }

    /// From now on the runtime of the caller drives the connection, unless another user's does.
    pub(crate) fn come_here(&self) {
        self.line.drive().come_here();
    }

    /// A server that does not answer in time may be cut off; the house watches.
    pub(crate) async fn within<T, E>(
        &self,
        doing: &'static str,
        request: impl Future<Output = Result<T, E>>,
        fault: fn(&'static str, E) -> Error,
    ) -> Result<T> {
        self.line.ask(request).await.map_err(|error| match self.line.was_late() {
            true => too_late(doing, self.limit),
            false => fault(doing, error),
        })
    }

    /// The same for what may take as long as it takes.
    pub(crate) async fn at_last<T, E>(
        &self,
        doing: &'static str,
        request: impl Future<Output = Result<T, E>>,
        fault: fn(&'static str, E) -> Error,
    ) -> Result<T> {
        self.line.ask_at_last(request).await.map_err(|error| fault(doing, error))
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if self.backend != 0 {
            self.backends.forget(self.backend);
        }
        self.abort();
    }
}
