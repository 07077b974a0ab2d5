//! A paced poll, for systems that do not tell.

use std::time::Duration;

const PACE: Duration = Duration::from_millis(10);

/// Rings at every step.
pub(crate) struct Pace;

impl Pace {
    pub(crate) async fn rings(&mut self) {
        tokio::time::sleep(PACE).await;
    }
}
