//! Waits until those who are to wait stand in the queue.

use crate::Result;
use lockkeeper::Keeper;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);
/// Long enough for somebody to ask once.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

/// Waits until a number of claims wait for the lock, or for a fixed time where waiters cannot be seen.
pub(crate) async fn settle(
    keeper: &Keeper,
    name: &str,
    waiters: usize,
    unseen: Duration,
    longest: Duration,
) -> Result<()> {
    if !keeper.abilities().fair {
        tokio::time::sleep(unseen).await;
        return Ok(());
    }
    let started = Instant::now();
    loop {
        let asked = Instant::now();
        let locks = keeper.inspect(name).await?;
        let waiting: usize = locks.iter().map(|lock| lock.waiters().count()).sum();
        if waiting >= waiters {
            return Ok(());
        }
        if started.elapsed() > longest {
            return Err(format!("only {waiting} of {waiters} waiters came within {longest:?}").into());
        }
        // A look at a long queue takes long, and must not hold up those who join it.
        tokio::time::sleep(PAUSE.max(asked.elapsed() * 4)).await;
    }
}
