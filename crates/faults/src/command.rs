//! What `scripts/faults` runs: the matrix, the tour, a long mixed run, the tables of docs/proof.md.

use crate::fault::Fault;
use crate::record::{Record, Settings, cell_name, cells, is_in_memory, run_cell};
use crate::{Error, Result, apart, page, results};
use clap::Parser;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// One fault for each engine, of different kinds: what CI runs, in three minutes at most.
pub const TOUR: [(&str, Fault); 9] = [
    ("file", Fault::Kill),
    ("sqlite", Fault::Pause),
    ("postgres", Fault::Cut),
    ("mysql", Fault::HalfOpenClients),
    ("redis", Fault::CutReplies),
    ("redlock", Fault::NodesKill),
    ("zookeeper", Fault::Reset),
    ("etcd", Fault::Block),
    ("redis:plain", Fault::ServerKill),
];
/// How long one engine is under mixed faults before it is the next one's turn.
const TURN: Duration = Duration::from_secs(90);

/// Lets faults loose on every engine, and compares what happens with what is stated.
///
/// A cell is an engine's style and a fault. Results are kept, and cells that were run are not run again.
#[derive(Debug, Parser)]
#[command(name = "faults")]
pub struct Arguments {
    /// Run only cells whose name contains TEXT, such as 'redis', '/ cut' or 'etcd, three / leader-kill' (may be repeated)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// Leave out cells whose name contains TEXT (may be repeated)
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,

    /// List the cells with their stated outcomes, and what is known of them
    #[arg(long)]
    list: bool,

    /// Run the tour: one fault for each engine
    #[arg(long, conflicts_with = "only")]
    tour: bool,

    /// Instead of the matrix, run mixed faults on each engine in turn for DURATION, such as 90m; such runs add up
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    time: Option<Duration>,

    /// Run cells again that have a result
    #[arg(long)]
    again: bool,

    /// Decide the schedules by N, which every run prints
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Strike N times in each cell
    #[arg(long, value_name = "N", default_value_t = 2)]
    rounds: u32,

    /// Run N cells at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,

    /// Draw the timeline of the one cell that is run
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Keep the results in FILE
    #[arg(long, value_name = "FILE", default_value = "docs/faults.jsonl")]
    results: PathBuf,

    /// Note with each result that it was made with the code of COMMIT
    #[arg(long, value_name = "COMMIT", default_value = "")]
    commit: String,

    /// Write the tables of the page FILE, such as docs/proof.md, from the results, and run nothing
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Run one cell in this process and print its record
    #[arg(long, value_name = "CELL", hide = true)]
    cell: Option<String>,

    /// The TTL of the claims, and so how long faults last
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    ttl: Duration,

    /// Patience of the cell
    #[arg(long, hide = true, default_value_t = 1)]
    patience: u32,
}

/// A cell to run.
type Job = (&'static str, Fault);

impl Arguments {
    /// Does what the command line says; the exit status.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn run(&self) -> Result<u8> {
        if let Some(cell) = &self.cell {
            return self.run_here(cell);
        }
        if let Some(path) = &self.page {
            let renewed = page::renew(&std::fs::read_to_string(path)?, &results::read(&self.results)?)?;
            std::fs::write(path, renewed)?;
            return Ok(0);
        }
        if self.list {
            self.list()?;
            return Ok(0);
        }
        let jobs = self.chosen()?;
        if jobs.is_empty() {
            println!("nothing to run: every chosen cell has a result (--again runs them again)");
            return Ok(0);
        }
        if self.picture.is_some() && jobs.len() != 1 {
            return Err(Error::new(format!("a picture is of one cell, but {} are chosen", jobs.len())));
        }
        self.run_all(jobs)
    }

    fn run_here(&self, cell: &str) -> Result<u8> {
        let (subject, fault) =
            cell.split_once(" / ").ok_or_else(|| Error::new(format!("no cell: {cell}")))?;
        // It ends with the matrix that started it, and its servers and workers with it.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        let settings = Settings {
            seed: self.seed.unwrap_or_default(),
            rounds: self.rounds,
            time: self.time,
            patience: self.patience,
            ttl: self.ttl,
            picture: self.picture.clone(),
        };
        let fault = fault.parse()?;
        apart::enter(fault)?;
        let record = run_cell(subject, fault, &settings)?;
        println!("{}", serde_json::to_string(&record)?);
        Ok(0)
    }

    fn list(&self) -> Result<()> {
        let known = results::read(&self.results)?;
        for (subject, fault, outcome) in
            cells().into_iter().filter(|(subject, fault, _)| self.is_chosen(subject, *fault))
        {
            let name = cell_name(subject, fault);
            let last = known.iter().rev().find(|record| record.name() == name);
            let state = last
                .map_or("not run", |record| if record.surprise.is_some() { "SURPRISE" } else { "as stated" });
            println!("{name:<40} {:<52} {state}", outcome.to_string());
        }
        Ok(())
    }

    fn is_chosen(&self, subject: &str, fault: Fault) -> bool {
        let name = cell_name(subject, fault);
        let has = |text: &String| name.contains(text.as_str());
        (self.only.is_empty() || self.only.iter().any(has)) && !self.skip.iter().any(has)
    }

    fn chosen(&self) -> Result<VecDeque<Job>> {
        if self.tour {
            return Ok(TOUR.into());
        }
        let known = results::read(&self.results)?;
        let is_new = |subject: &str, fault| {
            let name = cell_name(subject, fault);
            let last = known.iter().rev().find(|record| record.name() == name);
            self.again
                || self.time.is_some()
                || self.picture.is_some()
                || last.is_none_or(|record| record.surprise.is_some())
        };
        let all = cells().into_iter().map(|(subject, fault, _)| (subject, fault));
        let wanted = all.filter(|(_, fault)| (*fault == Fault::Mixed) == self.time.is_some());
        let (may, left_out): (VecDeque<_>, VecDeque<_>) = wanted
            .filter(|(subject, fault)| self.is_chosen(subject, *fault) && is_new(subject, *fault))
            .partition(|(_, fault)| !fault.needs_root() || rustix::process::geteuid().is_root());
        if !left_out.is_empty() {
            println!(
                "left out, since only root may have a network, a disk or process ids apart: {} cells",
                left_out.len()
            );
        }
        Ok(may)
    }

    fn run_all(&self, jobs: VecDeque<Job>) -> Result<u8> {
        let seed = self.seed.unwrap_or_else(|| rand::random::<u32>().into());
        let data = if is_in_memory() { "; the servers' data is in memory" } else { "" };
        println!("seed {seed}; {} cells{data}", jobs.len());
        // In any order, so that a part of the matrix has something of everything.
        let mut jobs: Vec<Job> = jobs.into();
        jobs.shuffle(&mut StdRng::seed_from_u64(seed));
        let jobs = VecDeque::from(jobs);
        let started = Instant::now();
        let all = jobs.clone();
        let left = Mutex::new((jobs, 0u64));
        let sums = Mutex::new(Sums::default());
        let next = || {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            // A long run begins again with the first one until its time is over.
            let is_on = self.time.is_some_and(|time| started.elapsed() < time);
            if left.0.is_empty() && is_on {
                left.0.extend(all.iter().copied());
            }
            if self.time.is_some() && !is_on {
                return None;
            }
            left.1 += 1;
            let number = left.1;
            left.0.pop_front().map(|job| (job, seed.wrapping_add(number)))
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(((subject, fault), seed)) = next() {
                        let run = self.run_apart(subject, fault, seed);
                        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                        sums.tell(
                            &cell_name(subject, fault),
                            seed,
                            run.and_then(|mut record| {
                                record.commit.clone_from(&self.commit);
                                results::add(&self.results, &record)?;
                                Ok(record)
                            }),
                        );
                    }
                });
            }
        });
        let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!(
            "{} cells, {} surprises{}; {} holds, {} checked accesses, {:.0} s",
            sums.cells,
            sums.surprises,
            if sums.failed == 0 { String::new() } else { format!(", {} not run", sums.failed) },
            sums.holds,
            sums.checked,
            started.elapsed().as_secs_f64()
        );
        Ok(u8::from(sums.surprises + sums.failed > 0))
    }

    /// In a process of its own, under a clock that can be set if the fault needs one.
    fn run_apart(&self, subject: &str, fault: Fault, seed: u64) -> Result<Record> {
        let folder = TempDir::with_prefix("lockkeeper-faults-")?;
        let mut command = apart::command(fault, folder.path())?;
        command.args(["--cell", &cell_name(subject, fault), "--seed", &seed.to_string()]);
        command.args(["--rounds", &self.rounds.to_string(), "--patience", &self.patience.to_string()]);
        command.args(["--ttl", &humantime::format_duration(self.ttl).to_string()]);
        if self.time.is_some() {
            command.args(["--for", &humantime::format_duration(TURN).to_string()]);
        }
        if let Some(path) = &self.picture {
            command.arg("--picture").arg(path);
        }
        let output = command.stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().filter(|_| output.status.success());
        let record = last.and_then(|line| serde_json::from_str(line).ok());
        record.ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = errors.lines().collect();
            Error::new(format!(
                "it ended with {}: {}",
                output.status,
                lines[lines.len().saturating_sub(4)..].join(" | ")
            ))
        })
    }
}

#[derive(Default)]
struct Sums {
    cells: u64,
    surprises: u64,
    failed: u64,
    holds: u64,
    checked: u64,
}

impl Sums {
    /// Prints what came of a cell.
    fn tell(&mut self, name: &str, seed: u64, run: Result<Record>) {
        let record = match run {
            Ok(record) => record,
            Err(error) => {
                self.failed += 1;
                println!("{name:<40} NOT RUN (seed {seed}): {error}");
                return;
            }
        };
        self.cells += 1;
        self.holds += record.holds;
        self.checked += record.checked;
        let verdict = match &record.surprise {
            None => record.stated.clone(),
            Some(text) => {
                self.surprises += 1;
                format!("SURPRISE (stated: {}): {text}", record.stated)
            }
        };
        println!(
            "{name:<40} {} strikes, {} holds, waited {:.1} s, seed {seed}, {} s: {verdict}",
            record.strikes,
            record.holds,
            record.waited_ms as f64 / 1000.0,
            record.seconds
        );
    }
}

/// The tables' file, for those who only read.
///
/// # Errors
/// When it cannot be read.
pub fn records(path: &Path) -> Result<Vec<Record>> {
    results::read(path)
}
