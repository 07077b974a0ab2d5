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
    let memory_before = process::memory_bytes();
    let mut tasks = JoinSet::new();
    for waiter in 0..waiters {
        let (mutex, relay) = (keepers[waiter % keepers.len()].mutex(&name), Arc::clone(&relay));
        tasks.spawn(async move { relay.wait(&mutex).await });
    }
    settle(&holder, &name, waiters, FIRST_LOOKS).await?;
    let memory = (process::memory_bytes() - memory_before).max(0.0) / waiters as f64;

    let requests = Count::start(url).await?;
    let (started, cpu_before) = (Instant::now(), process::cpu_seconds());
    tokio::time::sleep(scale.idle).await;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), process::cpu_seconds() - cpu_before);
    let requests = requests.so_far().await?.map(|requests| requests / seconds);

    relay.release(guard).await?;
    let failed = tokio::select! {
        () = relay.done.notified() => None,
        failed = first_failure(&mut tasks) => failed,
    };
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
        .with_latencies("hand-over ", &latencies, super::SHARES))
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
