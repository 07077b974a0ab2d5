//! One cell: workers on an engine, one kind of fault again and again, and what came of it.

mod alarm;
mod strikes;

use alarm::Alarm;

use crate::apart;
use crate::clients::Kind;
use crate::fault::Fault;
use crate::judge::{self, Finding};
use crate::outcome::{Break, Outcome, SOON};
use crate::process::Worker;
use crate::resource::{Resource, Sums};
use crate::shim::Shim;
use crate::subject::Servers;
use crate::worker::Task;
use crate::{Error, Result};
use lockkeeper::Connect;
use lockkeeper::views::Abilities;
use lockkeeper_conformance::checker::Rule;
use lockkeeper_conformance::history::History;
use lockkeeper_core::engine::Clock;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROCESSES: u32 = 3;
/// So as to have 2,000 of them.
const WAITING_PROCESSES: u32 = 4;
const WAITERS: usize = 500;
/// How long they wait and hold in turn.
const WAITING: Duration = Duration::from_secs(10);
const CANCELLERS: usize = 4;
const START: Duration = Duration::from_secs(90);
/// How long the workers go on after the last fault.
const QUIET: Duration = Duration::from_millis(1500);
/// How long to look for what was left behind, after the TTL.
const ORPHANS: Duration = Duration::from_secs(20);

/// What to run.
pub(crate) struct Plan<'a> {
    /// The engine, as its users reach it.
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) ttl: Duration,
    /// Its servers, if faults may strike them.
    pub(crate) servers: Option<&'a Servers>,
    pub(crate) fault: Fault,
    /// What `mixed` chooses from.
    pub(crate) mixture: Vec<Fault>,
    pub(crate) outcome: Outcome,
    pub(crate) seed: u64,
    /// How often it strikes; for a known break, at most.
    pub(crate) rounds: u32,
    /// Strikes for this time instead.
    pub(crate) time: Option<Duration>,
    /// How many times longer than usual recoveries may take: a test on a busy machine is patient.
    pub(crate) patience: u32,
}

/// One fault, as it happened.
#[derive(Debug, Clone)]
pub(crate) struct Strike {
    pub(crate) fault: Fault,
    pub(crate) whom: String,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// How long it took afterwards until everybody was served again.
    pub(crate) waited: Duration,
}

/// What came of a cell.
pub(crate) struct Run {
    pub(crate) history: History,
    pub(crate) strikes: Vec<Strike>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) sums: Sums,
    pub(crate) seconds: f64,
}

struct Stage<'a> {
    plan: &'a Plan<'a>,
    folder: TempDir,
    resource: Resource,
    abilities: Abilities,
    workers: Vec<Worker>,
    /// Those that were killed.
    dead: Vec<Worker>,
    random: StdRng,
    shim: Option<Shim>,
    environment: Vec<(String, String)>,
    strikes: Vec<Strike>,
    findings: Vec<Finding>,
    ahead: i64,
}

/// Runs the cell.
pub(crate) fn run(plan: &Plan<'_>) -> Result<Run> {
    let started = Instant::now();
    let folder = TempDir::with_prefix_in("lockkeeper-faults-", apart::scratch())?;
    let resource = Resource::listen(&folder.path().join("resource"))?;
    let (shim, environment) = match plan.fault {
        Fault::ClientClock => {
            let shim = Shim::build(folder.path())?;
            (Some(shim.clone()), shim.environment())
        }
        fault if fault.sets_server_clock() => (
            Some(Shim::inherited().ok_or_else(|| Error::new("servers were started without the clock"))?),
            Vec::new(),
        ),
        _ => (None, Vec::new()),
    };
    let abilities = abilities(plan)?;
    let random = StdRng::seed_from_u64(plan.seed);
    let (workers, dead, strikes, findings) = Default::default();
    let alarm = Alarm::start()?;
    let mut stage = Stage {
        plan,
        folder,
        resource,
        abilities,
        workers,
        dead,
        random,
        shim,
        environment,
        strikes,
        findings,
        ahead: 0,
    };
    stage.open()?;
    stage.strike_all()?;
    let history = stage.close()?;
    stage.findings.extend(judge::judge(
        &history,
        stage.strikes.last().map_or(0, |strike| strike.until_ns),
        stage.bound(),
    ));
    let must_keep = plan.fault.loses_nothing(stage.abilities);
    let lost = judge::losses(&history).filter(|_| must_keep);
    // A hold is lost by a delay of its renewals that no wait would show.
    let limit = plan.ttl / if lost.is_some() { 8 } else { 4 };
    stage.findings.extend(lost);
    let is_late = stage.findings.iter().any(|finding| finding.rule == Rule::Liveness);
    if let Some(why) = alarm.exceeds(limit).filter(|_| is_late) {
        return Err(Error::new(format!(
            "the machine was too busy to judge how soon locks are granted: {why}"
        )));
    }
    let sums = stage.resource.sums();
    stage.findings.extend(judge::of_resource(&sums));
    let Stage { strikes, mut findings, .. } = stage;
    findings.sort_by_key(|finding| finding.at_ns);
    Ok(Run { history, strikes, findings, sums, seconds: started.elapsed().as_secs_f64() })
}

impl Stage<'_> {
    fn bound(&self) -> Duration {
        let bound = match self.plan.outcome {
            Outcome::Safe => SOON,
            Outcome::SafeWaits(time) => time,
            // To see that it is stuck takes no longer than that.
            Outcome::KnownBreak(Break::Stuck) => SOON,
            Outcome::KnownBreak(_) | Outcome::MayBreak(_) => SOON * 4,
        };
        bound * self.plan.patience
    }

    fn open(&mut self) -> Result<()> {
        let processes = if self.plan.fault.has_waiters() { WAITING_PROCESSES } else { PROCESSES };
        for _ in 0..processes {
            self.add_worker()?;
        }
        let started = Instant::now();
        for worker in &self.workers {
            if !worker.is_ready_within(START * self.plan.patience) {
                return Err(Error::new("a worker could not connect in time"));
            }
        }
        if !self.resource.beat(&self.numbers(), started, START * self.plan.patience) {
            let errors: String = self.workers.iter().map(Worker::error).collect();
            return Err(Error::new(format!("a worker did not get its own lock, before any fault{errors}")));
        }
        Ok(())
    }

    fn numbers(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.task.process).collect()
    }

    fn add_worker(&mut self) -> Result<()> {
        let process = 1 + (self.workers.len() + self.dead.len()) as u32;
        let task = Task {
            url: self.plan.url.clone(),
            namespace: self.plan.namespace.clone(),
            ttl_ms: self.plan.ttl.as_millis() as u64,
            process,
            seed: self.random.random(),
            history: self.path(&format!("history-{process}")),
            resource: self.path("resource"),
            clients: clients(self.plan.fault, self.abilities),
        };
        self.workers.push(Worker::start(task, &self.environment)?);
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn strike_all(&mut self) -> Result<()> {
        let started = Instant::now();
        let mut round = 0;
        while self.plan.time.map_or(round < self.plan.rounds, |time| started.elapsed() < time) {
            round += 1;
            let fault = match self.plan.fault {
                Fault::Mixed => *self
                    .plan
                    .mixture
                    .choose(&mut self.random)
                    .ok_or_else(|| Error::new("no fault applies"))?,
                fault => fault,
            };
            self.strike(fault)?;
            if self.is_broken_as_stated()? {
                break;
            }
        }
        thread::sleep(QUIET);
        Ok(())
    }

    /// Whether there is nothing more to wait for.
    fn is_broken_as_stated(&self) -> Result<bool> {
        let Outcome::KnownBreak(stated) = self.plan.outcome else { return Ok(false) };
        Ok(match stated.rule() {
            None => self.resource.sums().lost_unfenced > 0,
            Some(rule) => {
                // A step that one worker records while another one's are read is not seen, but what follows from it is.
                let until_ns = Clock::Boot.now().as_nanos();
                let mut history = self.recorded()?;
                history.events.retain(|event| event.at_ns < until_ns);
                let found = judge::broken(&history);
                found.iter().chain(&self.findings).any(|finding| finding.rule == rule)
            }
        })
    }

    /// Ends the workers, and looks for what they left behind.
    fn close(&mut self) -> Result<History> {
        let deadline = Instant::now() + self.bound() + ORPHANS;
        self.workers.iter_mut().for_each(Worker::ask_to_stop);
        for worker in &mut self.workers {
            if !worker.ends_by(deadline) {
                let number = worker.task.process;
                self.findings.push(Finding::liveness(
                    Clock::Boot.now().as_nanos(),
                    format!("worker {number} did not end well"),
                ));
            }
        }
        // Dead claims that are kept stay behind, and nothing is gained by waiting for them.
        if self.plan.outcome != Outcome::KnownBreak(Break::Stuck)
            && let Some(left) = runtime()?.block_on(left_behind(self.plan))?
        {
            self.findings.push(Finding::orphans(left));
        }
        self.recorded()
    }

    fn recorded(&self) -> Result<History> {
        let mut parts = vec![self.resource.recorder().history()];
        for worker in self.workers.iter().chain(&self.dead) {
            parts.push(worker.history()?);
        }
        Ok(History::merge(parts))
    }
}

/// The clients of each worker.
fn clients(fault: Fault, abilities: Abilities) -> Vec<Kind> {
    let mut clients = vec![Kind::Own];
    if fault.has_waiters() {
        clients.extend([Kind::Waiter; WAITERS]);
        return clients;
    }
    clients.extend([Kind::Mutex, Kind::Mutex, Kind::Several, Kind::Lease, Kind::Cancel, Kind::Steady]);
    if fault == Fault::Cancels {
        clients.extend([Kind::Cancel; CANCELLERS]);
    }
    if abilities.shared {
        clients.extend([Kind::ReadWrite, Kind::ReadWrite]);
    }
    if abilities.permits {
        clients.extend([Kind::Permits, Kind::Permits]);
    }
    clients
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What the engine and style can do; connects, so that what a style needs is made once.
fn abilities(plan: &Plan<'_>) -> Result<Abilities> {
    let connect = Connect::to(&plan.url).namespace(&plan.namespace).ttl(plan.ttl).retry_for(START);
    runtime()?.block_on(async {
        let keeper = connect.connect().await?;
        let abilities = keeper.abilities();
        keeper.close().await;
        Ok(abilities)
    })
}

/// What is still claimed when the workers have ended and the TTL is over.
async fn left_behind(plan: &Plan<'_>) -> Result<Option<String>> {
    let connect = Connect::to(&plan.url).namespace(&plan.namespace).ttl(plan.ttl).retry_for(START);
    let keeper = connect.connect().await?;
    let deadline = Instant::now() + plan.ttl + ORPHANS;
    loop {
        let found = match keeper.inspect("").await {
            Ok(locks) if locks.is_empty() => break,
            Ok(locks) => {
                locks.iter().map(|lock| format!("{}: {} claims", lock.name, lock.claims.len())).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if Instant::now() > deadline {
            return Ok(Some(found.join(", ")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    keeper.close().await;
    Ok(None)
}
