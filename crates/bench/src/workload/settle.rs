//! Waits until those who are to wait stand in the queue.

use crate::Result;
use lockkeeper::Keeper;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// Where nobody can see who waits, they get this long, enough for each keeper's first look, which opens a connection.
const BLIND: Duration = Duration::from_secs(2);

/// Waits until so many wait for the lock.
pub(crate) async fn settle(keeper: &Keeper, name: &str, waiters: usize) -> Result<()> {
    if !keeper.abilities().fair {
        tokio::time::sleep(BLIND).await;
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
