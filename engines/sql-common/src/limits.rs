//! How long an engine waits for its server, all derived from the TTL.

use std::time::Duration;

/// The time limits of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For one request: long enough for a busy server, well below the TTL.
    pub request: Duration,
    /// For a new connection, its set-up included.
    pub connect: Duration,
    /// How often waiters are looked after without any message.
    pub look: Duration,
    /// For the replies that a renewal needs: less than the quarter of the TTL after which the core gives a renewal up.
    pub renewal: Duration,
    /// After how long without a sign of life the server ends a session that holds locks: longer than the TTL, so that the
    /// client's trust has ended before.
    pub takeover: Duration,
}

impl Limits {
    /// The limits for claims of this TTL.
    pub fn for_ttl(ttl: Duration) -> Self {
        Self {
            request: (ttl / 2).clamp(Duration::from_millis(100), Duration::from_secs(5)),
            connect: (ttl / 2).clamp(Duration::from_secs(2), Duration::from_secs(10)),
            look: (ttl / 3).min(Duration::from_secs(5)),
            renewal: ttl / 5,
            takeover: ttl + (ttl / 4).max(Duration::from_millis(100)),
        }
    }
}
