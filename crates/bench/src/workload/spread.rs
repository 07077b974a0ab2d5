//! Many tasks over one keeper, each with a lock of its own.

use super::uncontended::Mutexes;
use super::{SHARES, pairs_sample};
use crate::Result;
use crate::floors::{Floor, Pairs, repeat};
use crate::measure::{Latencies, Pace};
use crate::scale::Limit;
use crate::summary::Sample;
use crate::target::{close, connect};
use std::sync::Arc;
use tokio::task::JoinSet;

pub(crate) async fn on_engine(url: &str, locks: usize, limit: Limit) -> Result<Sample> {
    let keeper = connect(url, None).await?;
    let sample = measure(Arc::new(Mutexes::of(&keeper, locks)), locks, limit).await;
    close(keeper).await;
    sample
}

pub(crate) async fn on_floor(floor: Floor, url: &str, locks: usize, limit: Limit) -> Result<Sample> {
    measure(floor.connect(url).await?, locks, limit).await
}

pub(crate) async fn measure(pairs: Arc<dyn Pairs>, locks: usize, limit: Limit) -> Result<Sample> {
    let pace = Arc::new(Pace::start(limit));
    let mut tasks = JoinSet::new();
    for lock in 0..locks {
        let (pairs, pace) = (Arc::clone(&pairs), Arc::clone(&pace));
        tasks.spawn(async move { repeat(&*pairs, lock, &pace).await });
    }
    let mut latencies = Latencies::default();
    while let Some(task) = tasks.join_next().await {
        latencies.merge(&task??.waits);
    }
    Ok(pairs_sample(&latencies, pace.seconds(), SHARES))
}
