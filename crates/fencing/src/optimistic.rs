//! Optimistic writes, without a lock: read a version, write only if it is unchanged, else try again.

use rand::RngExt as _;
use std::time::Duration;

/// How one try went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try<T> {
    /// The write succeeded against the version it read.
    Done(T),
    /// Somebody else has written since: read again.
    Changed,
}

/// How often and with what pauses to try.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until run() is called"]
pub struct Optimistic {
    tries: u32,
    first_pause: Duration,
    longest_pause: Duration,
}

impl Default for Optimistic {
    fn default() -> Self {
        Self { tries: 10, first_pause: Duration::from_millis(1), longest_pause: Duration::from_millis(250) }
    }
}

impl Optimistic {
    /// Ten tries, with pauses at random that begin below 2 ms and grow.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many tries in all; at least one is made.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// The first pause's mean and the longest one's; each is drawn at random, so that rivals do not meet again.
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest);
        self
    }

    /// Runs the try, which reads, computes and writes against the version it read, until it is done; `None` if somebody else
    /// was quicker every time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use lockkeeper_fencing::optimistic::{Optimistic, Try};
    /// use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    /// let amount = AtomicU64::new(5); // its value is its version here
    /// let sold = Optimistic::new().run(async || {
    ///     let read = amount.load(SeqCst);
    ///     let written = amount.compare_exchange(read, read - 1, SeqCst, SeqCst);
    ///     Ok::<_, std::io::Error>(if written.is_ok() { Try::Done(read - 1) } else { Try::Changed })
    /// });
    /// assert_eq!(sold.await.unwrap(), Some(4));
    /// # }
    /// ```
    ///
    /// Cancel safety: dropped between tries it has no effect; dropped in a try, whatever dropping that does.
    ///
    /// # Errors
    /// The first error of a try.
    pub async fn run<T, E>(
        self,
        mut attempt: impl AsyncFnMut() -> Result<Try<T>, E>,
    ) -> Result<Option<T>, E> {
        let mut pause = self.first_pause;
        for left in (0..self.tries.max(1)).rev() {
            if let Try::Done(done) = attempt().await? {
                return Ok(Some(done));
            }
            if left > 0 {
                tokio::time::sleep(pause.mul_f64(rand::rng().random_range(0.0..2.0))).await;
                pause = (pause * 2).min(self.longest_pause);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_gives_up_after_its_tries_and_stops_at_an_error() {
        let mut tries = 0;
        let patience = Optimistic::new().tries(3).pauses(Duration::ZERO, Duration::ZERO);
        let never = patience.clone().run(async || {
            tries += 1;
            Ok::<Try<()>, ()>(Try::Changed)
        });
        assert_eq!(never.await, Ok(None));
        assert_eq!(tries, 3);
        assert_eq!(patience.run(async || Err::<Try<()>, _>("broken")).await, Err("broken"));
    }
}
