//! The runtimes that the loops run on; each run gets a new one, so that none inherits another's tasks.

use crate::Result;
use std::time::Duration;

/// How long tasks may take to end when a run is over.
const GOODBYE: Duration = Duration::from_millis(500);

/// How many threads a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// One: a request and its reply need no other thread, so the driver's own cost is plain to see.
    One,
    /// One per processor, as in most applications.
    Many,
}

/// Runs a measurement to its end, or gives it up when it hangs.
///
/// # Errors
/// The measurement's own, or that it hung.
pub fn run<T>(
    threads: Threads,
    patience: Duration,
    measurement: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Many => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let outcome = runtime.block_on(async { tokio::time::timeout(patience, measurement).await });
    runtime.shutdown_timeout(GOODBYE);
    outcome.map_err(|_| format!("did not end within {patience:?}"))?
}
