//! The loops that measure a Rust library in this process, in two steps: what is prepared is not counted.

use crate::libraries::{Client, Held, Place, connect};
use futures_util::future::try_join_all;
use lockkeeper_bench::Result;
use lockkeeper_bench::measure::{Latencies, Pace};
use lockkeeper_bench::scale::Limit;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CLIENTS_OF_WAITERS: usize = 4;

/// What one of those who take turns got.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Turns {
    /// How long each turn took, a lock and its release, that ended in time.
    pub waits: Latencies,
    /// The turns, those that ended after the time, too.
    pub all: u64,
    /// From the start to the end of the last turn that ended in time.
    pub seconds: f64,
    /// Turns that ended in time, and before which another had the lock.
    pub hand_overs: u64,
    /// The same, those that ended after the time, too.
    pub all_hand_overs: u64,
}

/// One of those who take turns.
struct Contender {
    client: Arc<dyn Client>,
    name: String,
    number: usize,
}

/// Connections that have had each lock once, and have waited for it where it is contended.
pub struct Prepared(Vec<Contender>);

pub async fn prepare_turns(
    library: &str,
    place: &Place,
    name: &str,
    contended: bool,
    count: usize,
) -> Result<Prepared> {
    let mut clients = Vec::new();
    for _ in 0..if contended { count } else { 1 } {
        clients.push(connect(library, place).await?);
    }
    let mut all = Vec::new();
    for number in 0..count {
        let client = Arc::clone(&clients[number % clients.len()]);
        let name = if contended { name.to_owned() } else { format!("{name}-{number}") };
        client.lock(&name).await?.release().await?;
        all.push(Contender { client, name, number });
    }
    if contended {
        // What a client opens only to wait is no part of a turn either.
        let meet = |contender: &Contender| {
            let client = Arc::clone(&contender.client);
            async move { client.lock(name).await?.release().await }
        };
        try_join_all(all.iter().map(meet)).await?;
    }
    Ok(Prepared(all))
}

impl Prepared {
    pub async fn run(self, limit: Limit) -> Result<Vec<Turns>> {
        let (pace, last) = (Arc::new(Pace::start(limit)), Arc::new(AtomicUsize::new(usize::MAX)));
        let mut tasks = JoinSet::new();
        for contender in self.0 {
            let (pace, last) = (Arc::clone(&pace), Arc::clone(&last));
            tasks.spawn(async move { contender.take_turns(&pace, &last).await });
        }
        let mut all = Vec::new();
        while let Some(task) = tasks.join_next().await {
            all.push(task??);
        }
        Ok(all)
    }
}

impl Contender {
    async fn take_turns(&self, pace: &Pace, last: &AtomicUsize) -> Result<Turns> {
        let mut turns = Turns::default();
        while pace.take() {
            let asked = Instant::now();
            let held = self.client.lock(&self.name).await?;
            let is_hand_over = u64::from(last.swap(self.number, Relaxed) != self.number);
            held.release().await?;
            let took = asked.elapsed();
            turns.all += 1;
            turns.all_hand_overs += is_hand_over;
            if pace.ended_in_time() {
                turns.waits.record(took);
                turns.hand_overs += is_hand_over;
            }
        }
        turns.seconds = pace.seconds();
        Ok(turns)
    }
}

/// A lock with many who wait for it, on its way through them.
pub struct Relay {
    holder: Arc<dyn Client>,
    name: String,
    state: Mutex<State>,
    start: Notify,
    done: Notify,
}

struct State {
    released: Instant,
    left: u64,
    latencies: Latencies,
    error: Option<String>,
}

impl Relay {
    /// A lock that is held, with waiters who have been told to wait.
    pub async fn prepare(
        library: &str,
        place: &Place,
        name: &str,
        count: usize,
        hand_overs: u64,
    ) -> Result<Arc<Self>> {
        let state = State {
            released: Instant::now(),
            left: hand_overs,
            latencies: Latencies::default(),
            error: None,
        };
        let relay = Arc::new(Self {
            holder: connect(library, place).await?,
            name: name.into(),
            state: Mutex::new(state),
            start: Notify::new(),
            done: Notify::new(),
        });
        let held = Arc::new(Notify::new());
        let (holding, told) = (Arc::clone(&relay), Arc::clone(&held));
        tokio::spawn(async move { holding.note(holding.hold(&told).await) });
        held.notified().await;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS_OF_WAITERS {
            clients.push(connect(library, place).await?);
        }
        for number in 0..count {
            let (relay, client) = (Arc::clone(&relay), Arc::clone(&clients[number % clients.len()]));
            tokio::spawn(async move { relay.note(relay.wait(&*client).await) });
        }
        Ok(relay)
    }

    /// Lets the lock go round.
    pub async fn run(&self) -> Result<Latencies> {
        self.start.notify_one();
        self.done.notified().await;
        let state = self.state();
        state.error.clone().map_or_else(|| Ok(state.latencies.clone()), |error| Err(error.into()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            self.state().error = Some(error.to_string());
            self.done.notify_one();
        }
    }

    async fn hold(&self, told: &Notify) -> Result<()> {
        let held = self.holder.lock(&self.name).await?;
        told.notify_one();
        self.start.notified().await;
        self.release(held).await
    }

    async fn wait(&self, client: &dyn Client) -> Result<()> {
        let held = client.lock(&self.name).await?;
        let now = Instant::now();
        let is_done = {
            let mut state = self.state();
            let took = now.duration_since(state.released);
            if state.left > 0 {
                state.latencies.record(took);
            }
            state.left = state.left.saturating_sub(1);
            state.left == 0
        };
        if is_done {
            self.done.notify_one();
        }
        self.release(held).await
    }

    /// The clock starts before the call of release.
    async fn release(&self, held: Box<dyn Held + '_>) -> Result<()> {
        self.state().released = Instant::now();
        held.release().await
    }
}
