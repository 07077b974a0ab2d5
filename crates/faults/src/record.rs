//! What is kept of a cell that was run.

use crate::cell::{self, Plan, Run};
use crate::fault::Fault;
use crate::outcome::{Outcome, stated};
use crate::subject::{SUBJECTS, Subject};
use crate::{Error, Result, judge, picture};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The TTL of the workers' claims.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How often a known break is given the chance to happen.
const CHANCES: u32 = 12;
const LONG_TTL: Duration = Duration::from_secs(30);
const TOLD: usize = 5;
/// What the kernel calls a file system in memory.
const TMPFS: u64 = 0x0102_1994;
const NAMESPACE: &str = "lockkeeper-faults";

/// How to run a cell.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Decides when and whom the faults strike.
    pub seed: u64,
    /// How often the fault strikes.
    pub rounds: u32,
    /// Strikes for this time instead.
    pub time: Option<Duration>,
    /// How many times longer than stated a recovery may take.
    pub patience: u32,
    /// The TTL of the claims, and so how long faults last.
    pub ttl: Duration,
    /// Where to draw what happened.
    pub picture: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: rand::random(), rounds: 2, time: None, patience: 1, ttl: TTL, picture: None }
    }
}

/// What came of one run of a cell; counts of nothing are left out of its line.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Record {
    /// The day on which it ended.
    pub date: String,
    /// The state of the code it was made with; `+` says that it was changed.
    #[serde(skip_serializing_if = "is_nothing")]
    pub commit: String,
    /// The engine, style and topology.
    pub subject: String,
    /// The fault.
    pub fault: Fault,
    /// What was stated.
    pub stated: String,
    /// In what the run differs from that; `None` if it does not.
    #[serde(skip_serializing_if = "is_nothing")]
    pub surprise: Option<String>,
    /// What was broken, the first few.
    #[serde(skip_serializing_if = "is_nothing")]
    pub findings: Vec<String>,
    /// The seed of the schedule.
    pub seed: u64,
    /// How often the fault struck.
    pub strikes: u64,
    /// How often a lock was held.
    #[serde(skip_serializing_if = "is_nothing")]
    pub holds: u64,
    /// Holds that were lost, and whose holder was told.
    #[serde(skip_serializing_if = "is_nothing")]
    pub lost: u64,
    /// Claims whose place in a fair queue was seen while they waited, and which nobody may overtake.
    #[serde(skip_serializing_if = "is_nothing")]
    pub placed: u64,
    /// Waits that were given up.
    #[serde(skip_serializing_if = "is_nothing")]
    pub cancelled: u64,
    /// Accesses to the resource whose token was checked.
    #[serde(skip_serializing_if = "is_nothing")]
    pub checked: u64,
    /// Those that were refused.
    #[serde(skip_serializing_if = "is_nothing")]
    pub refused: u64,
    /// Updates without a check of tokens.
    #[serde(skip_serializing_if = "is_nothing")]
    pub unfenced: u64,
    /// Those that were lost.
    #[serde(skip_serializing_if = "is_nothing")]
    pub lost_unfenced: u64,
    /// The longest time after a fault until everybody was served again, in milliseconds.
    #[serde(skip_serializing_if = "is_nothing")]
    pub waited_ms: u64,
    /// For how long two believed at the same time in a lock that only one may hold, at the longest, in milliseconds.
    #[serde(skip_serializing_if = "is_nothing")]
    pub overlap_ms: u64,
    /// Whether the servers' data was in memory instead of on a disk.
    #[serde(skip_serializing_if = "is_nothing")]
    pub in_memory: bool,
    /// How long the run took.
    pub seconds: u64,
}

fn is_nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Runs a cell of the table on servers of its own, and judges it.
///
/// # Errors
/// When the fault does not apply to the subject, or the servers are not installed.
///
/// # Panics
/// When a server does not start.
pub fn run_cell(subject: &str, fault: Fault, settings: &Settings) -> Result<Record> {
    let subject = Subject::find(subject)?;
    let stated = stated(subject.name, fault)?;
    let outcome = stated.ok_or_else(|| Error::new(format!("{fault} does not apply to {}", subject.name)))?;
    let servers = subject.start()?;
    let plan = Plan {
        url: subject.url(&servers),
        namespace: NAMESPACE.into(),
        ttl: ttl(fault, settings.ttl),
        servers: Some(&servers),
        fault,
        mixture: mixture(subject.name),
        outcome,
        seed: settings.seed,
        rounds: match outcome {
            Outcome::KnownBreak(_) => CHANCES,
            _ if fault == Fault::PauseShort => 1,
            _ => settings.rounds,
        },
        time: settings.time,
        patience: settings.patience,
    };
    let run = cell::run(&plan)?;
    if let Some(path) = &settings.picture {
        std::fs::write(path, picture::draw(&run))?;
    }
    Ok(Record::of(subject.name, &plan, &run))
}

fn ttl(fault: Fault, usual: Duration) -> Duration {
    match fault {
        // To renew 2,000 claims three times in two seconds is more than some databases can do, and the times by which servers
        // miss packets do not all follow the TTL.
        Fault::Waiters | Fault::Overload | Fault::CutPackets => lockkeeper::DEFAULT_TTL,
        // Longer than the times that servers have by themselves.
        Fault::PauseShort => LONG_TTL,
        _ => usual,
    }
}

/// What a long run may mix: faults that break nothing, and that need no special start.
fn mixture(subject: &str) -> Vec<Fault> {
    let special = [Fault::PauseShort, Fault::Cancels, Fault::ClientClock, Fault::Mixed];
    let is_safe = |fault: &Fault| {
        let outcome = stated(subject, *fault).ok().flatten();
        let is_plain = !fault.sets_server_clock() && !fault.needs_root() && !fault.has_waiters();
        matches!(outcome, Some(Outcome::Safe | Outcome::SafeWaits(_))) && is_plain
    };
    Fault::ALL.into_iter().filter(|fault| !special.contains(fault)).filter(is_safe).collect()
}

/// The cells to which a fault applies.
pub(crate) fn cells() -> Vec<(&'static str, Fault, Outcome)> {
    let mut cells = Vec::new();
    for subject in SUBJECTS {
        for fault in Fault::ALL {
            if let Ok(Some(outcome)) = stated(subject.name, fault) {
                cells.push((subject.name, fault, outcome));
            }
        }
    }
    cells
}

/// A cell's name, as it is asked for and shown.
pub(crate) fn cell_name(subject: &str, fault: Fault) -> String {
    format!("{subject} / {fault}")
}

/// Whether the folder of the servers' data is in memory: that of temporary files.
pub(crate) fn is_in_memory() -> bool {
    rustix::fs::statfs(std::env::temp_dir()).is_ok_and(|folder| folder.f_type as u64 == TMPFS)
}

impl Record {
    pub(crate) fn of(subject: &str, plan: &Plan<'_>, run: &Run) -> Self {
        let counts = judge::Counts::of(&run.history);
        let waited = run.strikes.iter().map(|strike| strike.waited).max().unwrap_or_default();
        let overlap = run.findings.iter().map(|finding| finding.overlap).max().unwrap_or_default();
        let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        Self {
            date: now.split('T').next().unwrap_or_default().to_owned(),
            commit: String::new(),
            subject: subject.into(),
            fault: plan.fault,
            stated: plan.outcome.to_string(),
            surprise: judge::surprise(plan.outcome, &run.findings, &run.sums),
            findings: run.findings.iter().take(TOLD).map(|finding| finding.text.clone()).collect(),
            seed: plan.seed,
            strikes: run.strikes.len() as u64,
            holds: counts.holds,
            lost: counts.lost,
            placed: counts.placed,
            cancelled: counts.cancelled,
            checked: run.sums.checked,
            refused: run.sums.refused,
            unfenced: run.sums.unfenced,
            lost_unfenced: run.sums.lost_unfenced,
            waited_ms: waited.as_millis() as u64,
            overlap_ms: overlap.as_millis() as u64,
            in_memory: is_in_memory(),
            seconds: run.seconds.round() as u64,
        }
    }

    /// The cell's name.
    pub fn name(&self) -> String {
        cell_name(&self.subject, self.fault)
    }
}
