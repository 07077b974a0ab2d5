//! How often those ask who have to ask: together at most twenty times a second, at random moments.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Counts who asks.
#[derive(Debug, Default)]
pub struct Pacer(AtomicUsize);

impl Pacer {
    /// Resolves when it is this one's turn to ask again; sooner if what is in the way ends sooner.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn turn(&self, free_in: Option<Duration>) {
        let _counted = Counted::new(&self.0);
        let asking = self.0.load(SeqCst);
        let pause = Duration::from_millis(50).mul_f64(asking as f64 * rand::random_range(0.5..1.5));
        // A millisecond more, so that what expires has expired.
        let pause = free_in.map_or(pause, |free_in| pause.min(free_in + Duration::from_millis(1)));
        tokio::time::sleep(pause).await;
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
