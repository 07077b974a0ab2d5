//! A poll, for systems without notifications.

use lockkeeper_core::engine::Clock;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(10);

/// Resolves after every pause.
pub(crate) struct Poll;

impl Poll {
    pub(crate) async fn changed(&mut self) {
        Clock::Boot.sleep(PAUSE).await;
    }
}
