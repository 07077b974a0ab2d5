//! The workloads: what each is called, at which sizes it runs, and who can do it.

pub(crate) mod contended;
mod crash;
pub(crate) mod hold;
mod holding;
mod mixed;
mod pause;
pub(crate) mod processes;
mod recovery;
pub(crate) mod serve;
mod settle;
mod spread;
pub(crate) mod uncontended;
mod waiting;

use crate::floors::Floor;
use crate::helper::{self, Task};
use crate::runtime::{self, Threads};
use crate::scale::Scale;
use crate::summary::Sample;
use crate::{Result, measure::Latencies};
use lockkeeper::views::Abilities;
use lockkeeper_testkit::Placement;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shares of which latencies are shown.
pub(crate) const SHARES: &[f64] = &[0.5, 0.99];

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Workload {
    /// One keeper, one lock: lock and release.
    Uncontended,
    /// Tasks on locks of their own over one keeper.
    Spread,
    /// Keepers of one process on one lock.
    Contended,
    /// Processes on one lock.
    Processes,
    /// 19 readers for one writer on one read-write lock.
    ReadMostly,
    /// Tasks on a semaphore of eight permits.
    Semaphore,
    /// Many who wait on one lock: what they cost while nothing happens, then how quickly it goes from hand to hand.
    Waiting,
    /// Many locks held by one keeper: what their renewals cost.
    Holding,
    /// The holder is killed: how long until the next one holds.
    Crash,
    /// The holder is stopped beyond its TTL and resumed: what it knows, and when.
    Pause,
    /// More tasks on one lock than an engine can serve, for a while: how soon other locks are as quick as before.
    Recovery,
    /// `lockkeeper serve` before the engine: what its hop adds, and what waiters and sessions cost it.
    Serve,
}

/// A size at which a workload runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) number: usize,
    /// Of what; empty where there is only one size.
    pub(crate) of: &'static str,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.of.is_empty() { Ok(()) } else { write!(f, "{} {}", self.number, self.of) }
    }
}

impl Workload {
    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Spread => "spread",
            Self::Contended => "contended",
            Self::Processes => "processes",
            Self::ReadMostly => "read-mostly",
            Self::Semaphore => "semaphore",
            Self::Waiting => "waiting",
            Self::Holding => "holding",
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::Recovery => "recovery",
            Self::Serve => "serve",
        }
    }

    /// What it shows, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            Self::Uncontended => "One keeper locks and releases one lock that nobody else wants.",
            Self::Spread => "Many tasks over one keeper, each with a lock of its own.",
            Self::Contended => {
                "Keepers, each with its own connection, want the same lock; it is held for no time."
            }
            Self::Processes => "Processes want the same lock; each should get its turn.",
            Self::ReadMostly => "Tasks on one read-write lock; every twentieth turn is a write.",
            Self::Semaphore => "Tasks on a semaphore of eight permits, one each.",
            Self::Waiting => {
                "One lock with many who wait: their cost while nothing happens, then the time from the call of \
                 release to the return of the next one's lock."
            }
            Self::Holding => "Locks held by one keeper while nothing happens: the cost of keeping them.",
            Self::Crash => {
                "The process that holds is killed with SIGKILL: the time until the next one holds."
            }
            Self::Pause => {
                "The process that holds is stopped beyond its TTL, and resumed: 'distrust to grant' is how long \
                 before the next grant its own trust had ended."
            }
            Self::Recovery => {
                "64 locks of a keeper's own, then tasks of other keepers that all want one lock at once and hold it for no time, then the \
                 64 again: how long after the tasks have gone they are at 80 % of their former rate."
            }
            Self::Serve => {
                "lockkeeper serve in a process of its own before the engine: what a call through it takes longer and costs more \
                 processor time, on both sides, than a direct one; pairs of many clients; then what those who wait, and sessions \
                 with their heartbeats, cost the server."
            }
        }
    }

    /// Those of a run that names none: of the engines as they are used, not of the server before them.
    pub fn of_engines() -> Vec<Self> {
        Self::all().into_iter().filter(|workload| !matches!(workload, Self::Serve | Self::Recovery)).collect()
    }

    /// Those that show how the cost grows.
    pub fn of_curves() -> Vec<Self> {
        vec![Self::Waiting, Self::Holding, Self::Contended, Self::Recovery]
    }

    /// All of them, in the order of a report.
    pub fn all() -> Vec<Self> {
        <Self as clap::ValueEnum>::value_variants().to_vec()
    }

    pub(crate) fn sizes(self, scale: &Scale) -> Vec<Size> {
        let sizes = |numbers: &[usize], of| numbers.iter().map(|&number| Size { number, of }).collect();
        match self {
            Self::Spread => sizes(&scale.spread, "locks"),
            Self::Contended => sizes(&scale.keepers, "keepers"),
            Self::Processes => sizes(&scale.processes, "processes"),
            Self::ReadMostly | Self::Semaphore => sizes(&[scale.tasks], "tasks"),
            Self::Waiting => sizes(&scale.waiters, "waiters"),
            Self::Holding if scale.held_at.is_empty() => sizes(&[scale.held], "locks"),
            Self::Holding => sizes(&scale.held_at, "locks"),
            Self::Recovery => sizes(&scale.overload, "tasks"),
            Self::Uncontended | Self::Crash | Self::Pause | Self::Serve => sizes(&[1], ""),
        }
    }

    pub(crate) fn repetitions(self, scale: &Scale) -> usize {
        match self {
            // Many holders are killed within one run.
            Self::Crash => 1,
            Self::Processes | Self::Waiting | Self::Holding | Self::Pause | Self::Recovery | Self::Serve => {
                scale.long_repetitions
            }
            _ => scale.repetitions,
        }
    }

    /// Where client and server are to be. Many tasks need all processors; with one, where the system puts the two sides decides more
    /// than what they do.
    pub fn placement(self, scale: &Scale) -> Placement {
        if self == Self::Uncontended { scale.placement } else { Placement::Free }
    }

    /// Why an engine is not asked to do this.
    pub(crate) fn beyond(self, abilities: &Abilities) -> Option<&'static str> {
        match self {
            Self::ReadMostly if !abilities.shared => Some("has no read-write locks"),
            Self::Semaphore if !abilities.permits => Some("has no semaphores"),
            Self::Processes | Self::Crash | Self::Pause if !abilities.across_processes => {
                Some("its locks live in one process")
            }
            _ => None,
        }
    }

    /// One run on an engine.
    pub(crate) fn run(self, url: &str, size: usize, scale: &Scale) -> Result<Sample> {
        match self {
            Self::Waiting | Self::Holding | Self::Recovery => {
                let task =
                    Task::Measure { url: url.into(), workload: self, size, scale: Box::new(scale.clone()) };
                helper::measure(&task, self.patience(scale))
            }
            _ => self.run_here(url, size, scale),
        }
    }

    /// How long a run may take before it is given up.
    fn patience(self, scale: &Scale) -> Duration {
        match self {
            Self::Recovery => scale.patience + recovery::LONGEST,
            _ => scale.patience,
        }
    }

    /// One run on an engine, in this process.
    pub(crate) fn run_here(self, url: &str, size: usize, scale: &Scale) -> Result<Sample> {
        match self {
            Self::Uncontended => {
                runtime::run(Threads::One, scale.patience, uncontended::on_engine(url, scale.limit))
            }
            Self::Spread => {
                runtime::run(Threads::Many, scale.patience, spread::on_engine(url, size, scale.limit))
            }
            Self::Contended => {
                runtime::run(Threads::Many, scale.patience, contended::run(url, size, scale.limit))
            }
            Self::Processes => processes::run(url, size, scale),
            Self::ReadMostly => {
                runtime::run(Threads::Many, scale.patience, mixed::read_mostly(url, size, scale.limit))
            }
            Self::Semaphore => {
                runtime::run(Threads::Many, scale.patience, mixed::semaphore(url, size, scale.limit))
            }
            Self::Waiting => runtime::run(Threads::Many, scale.patience, waiting::run(url, size, scale)),
            Self::Holding => runtime::run(Threads::Many, scale.patience, holding::run(url, size, scale)),
            Self::Crash => runtime::run(Threads::Many, scale.patience, crash::run(url, scale)),
            Self::Pause => runtime::run(Threads::Many, scale.patience, pause::run(url, scale)),
            Self::Recovery => {
                runtime::run(Threads::Many, self.patience(scale), recovery::run(url, size, scale))
            }
            Self::Serve => runtime::run(Threads::Many, scale.patience * 2, serve::run(url, scale)),
        }
    }

    /// Whether the workload has a raw floor.
    pub(crate) fn has_floor(self) -> bool {
        matches!(self, Self::Uncontended | Self::Spread)
    }

    /// One run of a floor, on the same server and with the same loop.
    pub(crate) fn run_floor(self, floor: Floor, url: &str, size: usize, scale: &Scale) -> Result<Sample> {
        match self {
            Self::Spread => {
                runtime::run(Threads::Many, scale.patience, spread::on_floor(floor, url, size, scale.limit))
            }
            _ => runtime::run(Threads::One, scale.patience, uncontended::on_floor(floor, url, scale.limit)),
        }
    }
}

/// The name of the number that is compared with the floor's.
pub(crate) const PAIRS: &str = "pairs/s";

/// What every loop of pairs reports.
pub(crate) fn pairs_sample(latencies: &Latencies, seconds: f64, shares: &[f64]) -> Sample {
    use crate::summary::Unit;
    let rate = crate::measure::per_second(latencies.count(), seconds);
    Sample::default().with(PAIRS, Unit::PerSecond, rate).with_latencies("", latencies, shares)
}
