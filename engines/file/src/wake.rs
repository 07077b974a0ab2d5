//! What wakes a waiter: the system tells when a claim's file is closed or removed.

#[cfg(target_os = "linux")]
mod inotify;
mod poll;

use std::path::PathBuf;

/// A watch on some claims, until it is dropped.
pub(crate) enum Watching {
    #[cfg(target_os = "linux")]
    Told(inotify::Watching),
    Paced(poll::Pace),
}

impl Watching {
    /// Watches the files; by a paced poll where the system cannot tell or has no room for another watch.
    pub(crate) fn on(paths: impl Iterator<Item = PathBuf>) -> Self {
        #[cfg(target_os = "linux")]
        match inotify::Watching::on(paths) {
            Ok(watching) => return Self::Told(watching),
            Err(error) => tracing::debug!(%error, "no room for a watch; polling instead"),
        }
        #[cfg(not(target_os = "linux"))]
        drop(paths);
        Self::Paced(poll::Pace)
    }

    /// Resolves when one of the files may have been closed, removed or changed since the watch was set. May ring
    /// too often, never too seldom.
    ///
    /// Cancel safety: a ring is not lost when the future is dropped.
    pub(crate) async fn rings(&mut self) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Told(watching) => watching.rings().await,
            Self::Paced(pace) => pace.rings().await,
        }
    }
}
