//! Two transactions that waited for each other, or one that waited for too long: the server undid it, and it may be tried again.

use rand::random_range;
use std::time::Duration;

/// How often.
const TRIES: u32 = 10;

/// Whether this error of the server's is one.
pub(crate) fn is_collision(code: u16) -> bool {
    const WAITED_TOO_LONG: u16 = 1205;
    const DEADLOCK: u16 = 1213;
    code == WAITED_TOO_LONG || code == DEADLOCK
}

/// The collisions of one request so far.
#[derive(Default)]
pub(crate) struct Collisions(u32);

impl Collisions {
    /// After a collision: waits for a moment, the longer the more there were. `false` if there were too many.
    pub(crate) async fn once_more(&mut self) -> bool {
        if self.0 == TRIES {
            return false;
        }
        self.0 += 1;
        tokio::time::sleep(Duration::from_micros(random_range(100..2000) * u64::from(self.0))).await;
        true
    }
}
