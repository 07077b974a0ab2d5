//! How much is measured: every workload is bounded in count and in time.

use lockkeeper_testkit::Placement;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The end of one measured run: whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The maximum number of turns.
    pub turns: u64,
    /// The maximum duration.
    pub time: Duration,
}

/// The bounds of every workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// How often each run is repeated, interleaved with those of the other engines.
    pub repetitions: usize,
    /// How often the long ones (processes, waiting, holding, pause) are repeated.
    pub long_repetitions: usize,
    /// The end of each run.
    pub limit: Limit,
    /// Locks of the spread workload.
    pub spread: Vec<usize>,
    /// Keepers on one lock.
    pub keepers: Vec<usize>,
    /// Processes on one lock.
    pub processes: Vec<usize>,
    /// Waiters on one lock.
    pub waiters: Vec<usize>,
    /// How long the waiters are watched while nothing happens.
    pub idle: Duration,
    /// Hand-overs through the waiters after that.
    pub handovers: u64,
    /// How long the waiters have for these; zero for as long as it takes.
    #[serde(default)]
    pub handover_time: Duration,
    /// Locks held by one keeper.
    pub held: usize,
    /// The same at several sizes, for a curve.
    #[serde(default)]
    pub held_at: Vec<usize>,
    /// How long the keeper has to get them.
    #[serde(default)]
    pub holding_time: Duration,
    /// Tasks that overload an engine.
    #[serde(default)]
    pub overload: Vec<usize>,
    /// Tasks on the read-write lock and on the semaphore.
    pub tasks: usize,
    /// Holders killed where the lock is then free at once.
    pub kills: usize,
    /// Holders killed where it is free when the TTL ends.
    pub slow_kills: usize,
    /// The TTL of the claims which are to expire; an engine may ask for more.
    pub short_ttl: Duration,
    /// Clients of the server at the same time, each with locks of its own.
    #[serde(default)]
    pub served_clients: usize,
    /// Waiters at the server.
    #[serde(default)]
    pub served_waiters: usize,
    /// Sessions at the server.
    #[serde(default)]
    pub served_sessions: usize,
    /// How long the sessions are watched.
    #[serde(default)]
    pub served_time: Duration,
    /// A run that takes longer than this has hung, and is given up.
    pub patience: Duration,
    /// When this is over, nothing is repeated any more, so that a slow machine gets through in time, too.
    #[serde(default)]
    pub budget: Duration,
    /// Where client and server run while one task locks alone.
    #[serde(default)]
    pub placement: Placement,
    /// By how much longer a round trip to a server takes than on this machine alone.
    #[serde(default)]
    pub delay: Duration,
}

impl Scale {
    /// Figures to quote: every engine in a quarter of an hour.
    pub fn full() -> Self {
        Self {
            repetitions: 3,
            long_repetitions: 1,
            limit: Limit { turns: 200_000, time: Duration::from_millis(500) },
            spread: vec![64, 1_000],
            keepers: vec![2, 16, 128],
            processes: vec![16],
            waiters: vec![200, 1_000],
            idle: Duration::from_secs(3),
            handovers: 100,
            handover_time: Duration::ZERO,
            held: 10_000,
            held_at: Vec::new(),
            holding_time: Duration::from_secs(15),
            overload: vec![2_000],
            tasks: 64,
            kills: 20,
            slow_kills: 3,
            short_ttl: Duration::from_secs(1),
            served_clients: 64,
            served_waiters: 10_000,
            served_sessions: 1_000,
            served_time: Duration::from_secs(10),
            patience: Duration::from_secs(90),
            budget: Duration::from_secs(480),
            placement: Placement::Together,
            delay: Duration::ZERO,
        }
    }

    /// A sentence about the network, if there was one.
    pub fn network(&self) -> String {
        if self.delay.is_zero() {
            return String::new();
        }
        format!(" Every round trip to a server took {:?} longer than on this machine alone.", self.delay)
    }

    /// A first look: every engine in a few minutes.
    pub fn quick() -> Self {
        Self {
            repetitions: 2,
            limit: Limit { turns: 20_000, time: Duration::from_millis(250) },
            spread: vec![64],
            keepers: vec![2, 16],
            processes: vec![8],
            waiters: vec![200],
            idle: Duration::from_millis(750),
            handovers: 50,
            held: 500,
            kills: 7,
            slow_kills: 1,
            served_waiters: 500,
            served_sessions: 100,
            served_time: Duration::from_millis(3_400),
            patience: Duration::from_secs(15),
            budget: Duration::from_secs(120),
            ..Self::full()
        }
    }

    /// How the cost grows with the waiters on a lock, the locks of a keeper, and the keepers on a lock; and how soon an engine is
    /// back after an overload.
    pub fn curves() -> Self {
        Self {
            repetitions: 1,
            limit: Limit { turns: 20_000, time: Duration::from_secs(2) },
            keepers: vec![2, 8, 32, 128, 256],
            waiters: vec![10, 100, 1_000, 10_000],
            idle: Duration::from_secs(5),
            handovers: u64::MAX,
            handover_time: Duration::from_secs(20),
            held_at: vec![100, 1_000, 10_000, 100_000],
            holding_time: Duration::from_secs(60),
            patience: Duration::from_secs(240),
            ..Self::full()
        }
    }

    /// As little as there can be, for tests.
    pub fn tiny() -> Self {
        Self {
            repetitions: 2,
            long_repetitions: 1,
            limit: Limit { turns: 60, time: Duration::from_secs(20) },
            spread: vec![4],
            keepers: vec![3],
            processes: vec![2],
            waiters: vec![5],
            idle: Duration::from_millis(20),
            handovers: 5,
            held: 20,
            overload: vec![20],
            tasks: 8,
            kills: 2,
            slow_kills: 1,
            served_clients: 4,
            served_waiters: 5,
            served_sessions: 4,
            served_time: Duration::from_millis(20),
            patience: Duration::from_secs(60),
            // Tests that run beside each other would move each other's servers.
            placement: Placement::Free,
            ..Self::full()
        }
    }
}
