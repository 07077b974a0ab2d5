//! What wakes a waiter: the kernel reports when a claim's file is closed or removed.

#[cfg(target_os = "linux")]
mod inotify;
mod poll;

use std::path::PathBuf;

/// A watch on some claims, until it is dropped.
pub(crate) enum Watching {
    #[cfg(target_os = "linux")]
    Notified(inotify::Watching),
    Polled(poll::Poll),
}

impl Watching {
    /// Watches the files; by a poll where the system has no notification or no room for another watch.
    pub(crate) fn on(paths: impl Iterator<Item = PathBuf>) -> Self {
        #[cfg(target_os = "linux")]
        match inotify::Watching::on(paths) {
            Ok(watching) => return Self::Notified(watching),
            Err(error) => tracing::debug!(%error, "no room for a watch; polling instead"),
        }
        #[cfg(not(target_os = "linux"))]
        drop(paths);
        Self::Polled(poll::Poll)
    }

    /// Resolves when one of the files may have been closed, removed or changed since the watch was set. May resolve
    /// too often, never too seldom.
    ///
    /// Cancel safety: a change is not lost when the future is dropped.
    pub(crate) async fn changed(&mut self) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Notified(watching) => watching.changed().await,
            Self::Polled(poll) => poll.changed().await,
        }
    }
}
