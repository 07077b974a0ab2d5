//! Waits until those who are to wait stand in the queue.

use crate::Result;
use lockkeeper::Keeper;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// Long enough for somebody to ask once.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

/// Waits until a number of claims wait for the lock, or for a fixed time where waiters cannot be seen.
pub(crate) async fn settle(keeper: &Keeper, name: &str, waiters: usize, unseen: Duration) -> Result<()> {
    if !keeper.abilities().fair {
        tokio::time::sleep(unseen).await;
        return Ok(());
    }
    let started = Instant::now();
    loop {
        let locks = keeper.inspect(name).await?;
        let waiting: usize = locks.iter().map(|lock| lock.waiters().count()).sum();
        if waiting >= waiters {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("only {waiting} of {waiters} waiters came within {PATIENCE:?}").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
