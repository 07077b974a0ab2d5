//! Many locks held by one keeper: what it costs to keep them.

use crate::counters::Count;
use crate::measure::per_second;
use crate::scale::Scale;
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use crate::{Result, process};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lockkeeper::{Guard, MIN_TTL, State};
use std::time::{Duration, Instant};

/// Locks asked for at the same time.
const ASKING: usize = 64;

pub(crate) async fn run(url: &str, locks: usize, scale: &Scale) -> Result<Sample> {
    // Renewals come at a third of the TTL: three rounds are watched.
    let least = connect(url, None).await?;
    let ttl = (scale.idle * 2).max(least.abilities().min_ttl).max(MIN_TTL * 3);
    close(least).await;
    let keeper = connect(url, Some(ttl)).await?;
    let name = fresh_name("holding");
    let (memory_before, started) = (process::memory_bytes(), Instant::now());
    let asking = stream::iter(0..locks)
        .map(|number| {
            let mutex = keeper.mutex(format!("{name}/{number}"));
            async move { mutex.lock().await }
        })
        .buffer_unordered(ASKING);
    // The slowest part is to get them all; what is kept is measured with as many as there are by then.
    let longest = if scale.holding_time.is_zero() { Duration::from_secs(15) } else { scale.holding_time };
    let guards: Vec<Guard> = asking.take_until(tokio::time::sleep(longest)).try_collect().await?;
    if guards.is_empty() {
        return Err(format!("got no lock within {longest:?}").into());
    }
    let asked_seconds = started.elapsed().as_secs_f64();
    let memory = (process::memory_bytes() - memory_before).max(0.0) / guards.len() as f64;

    let requests = Count::start(url).await?;
    let (started, cpu_before) = (Instant::now(), process::cpu_seconds());
    tokio::time::sleep(ttl).await;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), process::cpu_seconds() - cpu_before);
    let requests = requests.so_far().await?.map(|requests| requests / seconds);
    let lost = guards.iter().filter(|guard| guard.state() == State::Lost).count();
    let sample = Sample::default()
        .with("held", Unit::Count, guards.len() as f64)
        .with("locks/s", Unit::PerSecond, per_second(guards.len() as u64, asked_seconds))
        .with_some("renewal requests/s", Unit::PerSecond, requests)
        .with("CPU", Unit::Processor, cpu / seconds)
        .with("memory/lock", Unit::Bytes, memory)
        .with("lost", Unit::Count, lost as f64)
        .with("TTL", Unit::Seconds, ttl.as_secs_f64());
    drop(guards);
    close(keeper).await;
    Ok(sample)
}
