//! Many who wait on one lock: what they cost while nothing happens, then how quickly it goes from hand to hand.

use super::settle::settle;
use crate::counters::Count;
use crate::measure::Latencies;
use crate::scale::Scale;
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use crate::{Result, process};
use lockkeeper::{Guard, Keeper, Mutex};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The number of keepers over which waiters are spread, so that the lock goes from one keeper to another.
const KEEPERS: usize = 4;

/// Where waiters look by turns, each keeper has looked once after this, and opened a connection for it, which is not to be counted.
const FIRST_LOOKS: Duration = Duration::from_secs(2);

/// The lock on its way through the waiters.
struct Relay {
    state: StdMutex<State>,
    done: Notify,
}

struct State {
    released: Instant,
    left: u64,
    latencies: Latencies,
}

impl Relay {
    fn new(handovers: u64) -> Self {
        let state = State { released: Instant::now(), left: handovers, latencies: Latencies::default() };
        Self { state: StdMutex::new(state), done: Notify::new() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock starts before the call of release.
    async fn release(&self, guard: Guard) -> Result<()> {
        self.state().released = Instant::now();
        Ok(guard.release().await?)
    }

    /// Waits, notes how long the hand-over took, and passes the lock on.
    async fn wait(&self, mutex: &Mutex) -> Result<()> {
        let guard = mutex.lock().await?;
        let now = Instant::now();
        let left = {
            let mut state = self.state();
            let handover = now.duration_since(state.released);
            state.latencies.record(handover);
            state.left = state.left.saturating_sub(1);
            state.left
        };
        if left == 0 {
            self.done.notify_one();
        }
        self.release(guard).await
    }
}

pub(crate) async fn run(url: &str, waiters: usize, scale: &Scale) -> Result<Sample> {
    let name = fresh_name("waiting");
    let holder = connect(url, None).await?;
    let mut keepers: Vec<Keeper> = Vec::new();
    for _ in 0..KEEPERS.min(waiters) {
        keepers.push(connect(url, None).await?);
    }
    let guard = holder.mutex(&name).lock().await?;
    let relay = Arc::new(Relay::new(scale.handovers.min(waiters as u64)));
    let (memory_before, asked) = (process::memory_bytes(), Instant::now());
    let mut tasks = JoinSet::new();
    for waiter in 0..waiters {
        let (mutex, relay) = (keepers[waiter % keepers.len()].mutex(&name), Arc::clone(&relay));
        tasks.spawn(async move { relay.wait(&mutex).await });
    }
    settle(&holder, &name, waiters, FIRST_LOOKS, scale.patience / 2).await?;
    // Where waiters cannot be seen, it is not known when all of them wait.
    let joined = holder.abilities().fair.then(|| asked.elapsed().as_secs_f64());
    let memory = (process::memory_bytes() - memory_before).max(0.0) / waiters as f64;

    let requests = Count::start(url).await?;
    let (started, cpu_before) = (Instant::now(), process::cpu_seconds());
    tokio::time::sleep(scale.idle).await;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), process::cpu_seconds() - cpu_before);
    let requests = requests.so_far().await?.map(|requests| requests / seconds);

    let (served, handing_over) = (Instant::now(), Count::start(url).await?);
    relay.release(guard).await?;
    let longest = if scale.handover_time.is_zero() { scale.patience } else { scale.handover_time };
    let failed = tokio::select! {
        () = relay.done.notified() => None,
        () = tokio::time::sleep(longest) => None,
        failed = first_failure(&mut tasks) => failed,
    };
    let served = served.elapsed().as_secs_f64();
    let handed_over = relay.state().latencies.count();
    let each = handing_over.so_far().await?.map(|requests| requests / handed_over.max(1) as f64);
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    for keeper in keepers.into_iter().chain([holder]) {
        close(keeper).await;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let latencies = relay.state().latencies.clone();
    Ok(Sample::default()
        .with_some("idle requests/s", Unit::PerSecond, requests)
        .with("idle CPU", Unit::Processor, cpu / seconds)
        .with("memory/waiter", Unit::Bytes, memory)
        .with_some("all wait after", Unit::Seconds, joined)
        .with_latencies("hand-over ", &latencies, super::SHARES)
        .with_some("requests/hand-over", Unit::Ratio, each)
        .with("served", Unit::Count, handed_over as f64)
        .with("served in", Unit::Seconds, served))
}

/// The first waiter's error; nothing if all have had their turn.
async fn first_failure(tasks: &mut JoinSet<Result<()>>) -> Option<crate::Error> {
    while let Some(task) = tasks.join_next().await {
        match task {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Some(error),
            Err(error) => return Some(error.into()),
        }
    }
    None
}
