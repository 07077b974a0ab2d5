//! Keepers of one process, each with its own connection, on one lock.

use super::SHARES;
use crate::counters::Count;
use crate::measure::{Latencies, Pace, jain, per_second};
use crate::scale::Limit;
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use crate::{Result, process};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lockkeeper::{Keeper, Mutex};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Connections made at the same time.
const CONNECTING: usize = 8;
/// What is measured of a turn here.
pub(crate) const WAIT: &str = "wait ";

/// What one contender got.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Turns {
    /// How long each turn took that ended in time.
    pub waits: Latencies,
    /// How many there were, those which ended after the time, too.
    pub all: u64,
    /// From the start to the end of the last turn that counts.
    pub seconds: f64,
}

/// Locks and releases until the pace ends.
pub(crate) async fn contend(mutex: &Mutex, pace: &Pace) -> Result<Turns> {
    let mut turns = Turns::default();
    while pace.take() {
        let asked = Instant::now();
        let guard = mutex.lock().await?;
        let waited = asked.elapsed();
        guard.release().await?;
        turns.all += 1;
        if pace.ended_in_time() {
            turns.waits.record(waited);
        }
        // The others are to have their chance even where nothing has to be waited for.
        tokio::task::yield_now().await;
    }
    turns.seconds = pace.seconds();
    Ok(turns)
}

/// Hand-overs, waits and fairness.
pub(crate) fn sample(contenders: &[Turns], what: &str) -> Sample {
    let seconds = contenders.iter().map(|turns| turns.seconds).fold(0.0, f64::max);
    let counts: Vec<u64> = contenders.iter().map(|turns| turns.waits.count()).collect();
    let mut waits = Latencies::default();
    contenders.iter().for_each(|turns| waits.merge(&turns.waits));
    Sample::default()
        .with("hand-overs/s", Unit::PerSecond, per_second(waits.count(), seconds))
        .with_latencies(what, &waits, SHARES)
        .with("fewest turns", Unit::Count, counts.iter().copied().min().unwrap_or_default() as f64)
        .with("most turns", Unit::Count, counts.iter().copied().max().unwrap_or_default() as f64)
        .with("Jain", Unit::Ratio, jain(&counts))
}

/// A keeper that has locked this lock once: connections that an engine opens at its first lock, what it asks on them,
/// and what it makes at the first use of a name, are no part of a hand-over.
pub(crate) async fn connect_and_warm_up(url: &str, name: &str) -> Result<Keeper> {
    let keeper = connect(url, None).await?;
    keeper.mutex(name).lock().await?.release().await?;
    Ok(keeper)
}

pub(crate) async fn run(url: &str, count: usize, limit: Limit) -> Result<Sample> {
    let name = fresh_name("contended");
    let connecting = (0..count).map(|_| connect_and_warm_up(url, &name));
    let keepers: Vec<Keeper> = stream::iter(connecting).buffer_unordered(CONNECTING).try_collect().await?;
    let requests = Count::start(url).await?;
    let cpu_before = process::cpu_seconds();
    let pace = Arc::new(Pace::start(limit));
    let mut tasks = JoinSet::new();
    for keeper in &keepers {
        let (mutex, pace) = (keeper.mutex(&name), Arc::clone(&pace));
        tasks.spawn(async move { contend(&mutex, &pace).await });
    }
    let mut contenders = Vec::new();
    while let Some(task) = tasks.join_next().await {
        contenders.push(task??);
    }
    let cpu = process::cpu_seconds() - cpu_before;
    let requests = requests.so_far().await?;
    futures_util::future::join_all(keepers.into_iter().map(close)).await;
    let all: u64 = contenders.iter().map(|turns| turns.all).sum();
    let each = requests.map(|requests| requests / all.max(1) as f64);
    let sample = sample(&contenders, WAIT).with_some("requests/hand-over", Unit::Ratio, each);
    Ok(sample.with("CPU/hand-over", Unit::Seconds, cpu / all.max(1) as f64))
}
