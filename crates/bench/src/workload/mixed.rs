//! Tasks over one keeper on one lock that several may hold: mostly readers, or a semaphore.

use super::SHARES;
use crate::Result;
use crate::measure::{Latencies, Pace, per_second};
use crate::scale::Limit;
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use lockkeeper::{Guard, Keeper};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// One turn in twenty is a write: 95 % readers.
const TURNS_PER_WRITE: u64 = 20;
const PERMITS: u32 = 8;

pub(crate) async fn read_mostly(url: &str, tasks: usize, limit: Limit) -> Result<Sample> {
    let keeper = connect(url, None).await?;
    let lock = keeper.rwlock(fresh_name("read-mostly"));
    let (reads, writes, seconds) = run(tasks, limit, move |turn| {
        let lock = lock.clone();
        async move {
            let writes = turn % TURNS_PER_WRITE == TURNS_PER_WRITE - 1;
            let guard = if writes { lock.write().await? } else { lock.read().await? };
            Ok((writes, guard))
        }
    })
    .await?;
    close(keeper).await;
    let all = reads.count() + writes.count();
    Ok(Sample::default()
        .with("turns/s", Unit::PerSecond, per_second(all, seconds))
        .with_latencies("read ", &reads, SHARES)
        .with_latencies("write ", &writes, SHARES))
}

pub(crate) async fn semaphore(url: &str, tasks: usize, limit: Limit) -> Result<Sample> {
    let keeper: Keeper = connect(url, None).await?;
    let semaphore = keeper.semaphore(fresh_name("semaphore"), PERMITS);
    let (waits, _, seconds) = run(tasks, limit, move |_| {
        let semaphore = semaphore.clone();
        async move { Ok((false, semaphore.acquire(1).await?)) }
    })
    .await?;
    close(keeper).await;
    Ok(Sample::default()
        .with("turns/s", Unit::PerSecond, per_second(waits.count(), seconds))
        .with_latencies("wait ", &waits, SHARES))
}

/// Turns of all tasks; the waits of the ordinary and of the special ones, and the time.
async fn run<F, A>(tasks: usize, limit: Limit, acquire: F) -> Result<(Latencies, Latencies, f64)>
where
    F: Fn(u64) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<(bool, Guard)>> + Send,
{
    let pace = Arc::new(Pace::start(limit));
    let mut running: JoinSet<Result<[Latencies; 2]>> = JoinSet::new();
    for task in 0..tasks {
        let (pace, acquire) = (Arc::clone(&pace), acquire.clone());
        running.spawn(async move {
            let mut waits = [Latencies::default(), Latencies::default()];
            // Tasks begin at different turns, so that their special ones do not coincide.
            let mut turn = task as u64;
            while pace.take() {
                let asked = Instant::now();
                let (is_special, guard) = acquire(turn).await?;
                let waited = asked.elapsed();
                guard.release().await?;
                if pace.ended_in_time() {
                    waits[usize::from(is_special)].record(waited);
                }
                turn += 1;
                tokio::task::yield_now().await;
            }
            Ok(waits)
        });
    }
    let (mut ordinary, mut special) = (Latencies::default(), Latencies::default());
    while let Some(task) = running.join_next().await {
        let [first, second] = task??;
        ordinary.merge(&first);
        special.merge(&second);
    }
    Ok((ordinary, special, pace.seconds()))
}
