//! Whether a connection still replies, judged by the connection and not by who still waits.

use crate::clock::{Clock, Moment};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Watches the replies on one connection. A request that had no reply for the limit, while nothing else came
/// either, makes the connection silent for good, whether its caller waited to the end or gave up.
#[derive(Debug)]
pub struct Replies {
    limit: Duration,
    /// Nanoseconds on the boot clock.
    last: AtomicU64,
    is_silent: AtomicBool,
}

/// A request had no reply within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoReply(Duration);

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no reply within {:?}", self.0)
    }
}

impl std::error::Error for NoReply {}

impl Replies {
    /// For a connection that is silent when no reply comes for this long. To let a renewal that was given up count,
    /// take less than a quarter of the TTL.
    pub fn new(limit: Duration) -> Self {
        Self { limit, last: AtomicU64::new(0), is_silent: AtomicBool::new(false) }
    }

    /// Sends one request and waits for its reply, at most for the limit.
    ///
    /// Cancel safety: that of the request.
    ///
    /// # Errors
    /// [`NoReply`] when the limit has passed.
    pub async fn request<T>(&self, request: impl Future<Output = T>) -> Result<T, NoReply> {
        let mut sent = Sent { replies: self, at: Clock::Boot.now(), has_reply: false };
        let reply = Clock::Boot.timeout(self.limit, request).await.map_err(|_| NoReply(self.limit))?;
        sent.has_reply = true;
        Ok(reply)
    }

    /// Something came from the server unasked.
    pub fn received(&self) {
        self.last.store(Clock::Boot.now().as_nanos(), SeqCst);
    }

    /// Whether requests over the connection are in vain.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(SeqCst)
    }

    /// The same as a reply that did not come: requests over the connection are in vain from now on.
    pub fn give_up(&self) {
        self.is_silent.store(true, SeqCst);
    }

    /// Gives up if nothing has been received since then.
    pub fn give_up_unless_received_since(&self, at: Moment) {
        if self.last.load(SeqCst) < at.as_nanos() {
            self.give_up();
        }
    }
}

/// A request under way.
struct Sent<'a> {
    replies: &'a Replies,
    at: Moment,
    has_reply: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if self.has_reply {
            return self.replies.received();
        }
        let last = Moment::from_nanos(self.replies.last.load(SeqCst)).max(self.at);
        if Clock::Boot.now().since(last) >= self.replies.limit {
            self.replies.give_up();
        }
    }
}
