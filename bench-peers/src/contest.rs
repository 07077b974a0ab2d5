//! One contest: everybody takes turns on the same server, interleaved and repeated; ratios are within a repetition.

use crate::catalog::{Peer, Runs};
use crate::loops::Turns;
use crate::program::Program;
use crate::workload::{MAIN, Setup, sample};
use lockkeeper_bench::Result;
use lockkeeper_bench::Workload;
use lockkeeper_bench::kit::{Count, fresh_name};
use lockkeeper_bench::measure::Latencies;
use lockkeeper_bench::summary::{Sample, Subject, Summary, Unit, curve, figures};
use std::time::{Duration, Instant};

/// The column of the ratios: how many times as good ours is.
pub const RATIO: &str = "lockkeeper is ×";

/// Where waiters look by turns, each has looked once after this, and opened what it needs.
const FIRST_LOOKS: Duration = Duration::from_secs(2);
/// Long enough for a waiter to have asked once.
const MOMENT: Duration = Duration::from_millis(500);

/// A lock with its runs.
pub struct Row {
    peer: &'static Peer,
    /// A Java machine is quick only when it is warm, so it goes on from run to run.
    warm: Option<Program>,
    samples: Vec<Option<Sample>>,
    note: Option<String>,
}

impl Row {
    pub fn of(peer: &'static Peer) -> Self {
        Self { peer, warm: None, samples: Vec::new(), note: None }
    }
}

/// Repeats a workload on one engine.
pub fn run(workload: Workload, url: &str, setup: &Setup, rows: &mut [Row]) -> Vec<Summary> {
    for row in rows.iter_mut() {
        row.samples.clear();
        row.note = None;
    }
    for repetition in 0..setup.repetitions {
        for row in rows.iter_mut() {
            eprintln!("{repetition}: {}, {}", workload.name(), row.peer.name);
            // What failed twice would only fail again.
            let failures = row.samples.iter().filter(|sample| sample.is_none()).count();
            let sample = if failures < 2 { measure(workload, url, setup, row) } else { Err("".into()) };
            if let Err(error) = &sample {
                row.warm = None;
                row.note.get_or_insert_with(|| error.to_string());
                eprintln!("   {error}");
            }
            row.samples.push(sample.ok());
        }
    }
    compare(workload, rows);
    rows.iter().map(|row| row.summary(workload, setup)).collect()
}

fn measure(workload: Workload, url: &str, setup: &Setup, row: &mut Row) -> Result<Sample> {
    let name = fresh_name("peers").replace('/', "-");
    match workload {
        Workload::Crash => kill(row.peer, url, &name, setup),
        Workload::Waiting => relay(row.peer, url, &name, setup),
        _ => {
            let mut program = match row.warm.take() {
                Some(program) => program,
                None => Program::start(row.peer.command(url, setup.ttl)?)?,
            };
            let sample = turns(workload, row.peer, &mut program, url, &name, setup)?;
            row.warm = matches!(row.peer.runs, Runs::Java(_)).then_some(program);
            Ok(sample)
        }
    }
}

fn turns(
    workload: Workload,
    peer: &Peer,
    program: &mut Program,
    url: &str,
    name: &str,
    setup: &Setup,
) -> Result<Sample> {
    let (shape, count) = setup.shape(workload);
    let (milliseconds, most) = (setup.limit.time.as_millis(), setup.limit.turns);
    let placed = workload.placement(&setup.scale).hold()?;
    let prepare = peer.line("t", "turns", &format!("{name} {shape} {count} {milliseconds} {most}"));
    program.call(&prepare, setup.patience)?;
    let requests = Requests::start(url, peer)?;
    let (_, reply) = program.call("t go", setup.patience)?;
    let requests = requests.so_far()?;
    drop(placed);
    let turns: Vec<Turns> = serde_json::from_str(&reply)?;
    Ok(sample(workload, &turns, requests))
}

fn relay(peer: &Peer, url: &str, name: &str, setup: &Setup) -> Result<Sample> {
    let mut program = Program::start(peer.command(url, setup.ttl)?)?;
    let (waiters, hand_overs) = (setup.waiters, setup.hand_overs);
    program.call(&peer.line("t", "relay", &format!("{name} {waiters} {hand_overs}")), setup.patience)?;
    std::thread::sleep(FIRST_LOOKS);
    let (requests, started) = (Requests::start(url, peer)?, Instant::now());
    std::thread::sleep(setup.idle);
    let requests = requests.so_far()?.map(|requests| requests / started.elapsed().as_secs_f64());
    let (_, reply) = program.call("t go", setup.patience)?;
    let latencies: Latencies = serde_json::from_str(&reply)?;
    Ok(Sample::default().with_some("idle requests/s", Unit::PerSecond, requests).with_latencies(
        "hand-over ",
        &latencies,
        &[0.5, 0.99],
    ))
}

fn kill(peer: &Peer, url: &str, name: &str, setup: &Setup) -> Result<Sample> {
    let mut holder = Program::start(peer.command(url, setup.short_ttl)?)?;
    let mut waiter = Program::start(peer.command(url, setup.short_ttl)?)?;
    holder.call(&peer.line("h", "lock", name), setup.patience)?;
    waiter.send(&peer.line("w", "lock", name))?;
    if waiter.reply_within("w", MOMENT)?.is_some() {
        return Err("a second holder".into());
    }
    let killed = Instant::now();
    holder.kill()?;
    let (granted, _) = waiter.reply_within("w", setup.patience)?.ok_or("nobody gets the lock of the dead")?;
    let seconds = granted.duration_since(killed).as_secs_f64();
    Ok(Sample::default().with(MAIN[4].1, Unit::Seconds, seconds).with(
        "TTL",
        Unit::Seconds,
        setup.short_ttl.as_secs_f64(),
    ))
}

/// The server's count of requests.
struct Requests {
    runtime: tokio::runtime::Runtime,
    count: Count,
}

impl Requests {
    fn start(url: &str, peer: &Peer) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let count = runtime.block_on(Count::start_for(url, peer.direct))?;
        Ok(Self { runtime, count })
    }

    fn so_far(&self) -> Result<Option<f64>> {
        self.runtime.block_on(self.count.so_far())
    }
}

impl Row {
    fn summary(&self, workload: Workload, setup: &Setup) -> Summary {
        let samples: Vec<Sample> = self.samples.iter().flatten().cloned().collect();
        let (size, size_number) = setup.size(workload);
        let name = self.peer.name;
        Summary {
            workload: workload.name().into(),
            size,
            size_number,
            subject: Subject {
                name: if self.peer.rival.is_none() { format!("lockkeeper {name}") } else { name.into() },
                engine: self.peer.engine.into(),
                is_floor: false,
            },
            runs: samples.len(),
            figures: figures(&samples),
            curve: curve(&samples),
            note: self.note.clone(),
        }
    }
}

/// Adds to everybody else's run how many times as good ours is in the same repetition.
fn compare(workload: Workload, rows: &mut [Row]) {
    let Some((_, main, more_is_better)) = MAIN.iter().find(|main| main.0 == workload) else { return };
    for index in 0..rows.len() {
        let Some(rival) = rows[index].peer.rival else { continue };
        let Some(ours) = rows.iter().position(|row| row.peer.name == rival) else { continue };
        for repetition in 0..rows[index].samples.len() {
            let of = |row: usize| rows[row].samples.get(repetition)?.as_ref()?.get(main);
            let both = of(ours).zip(of(index)).filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0);
            let ratio =
                both.map(|(ours, theirs)| if *more_is_better { ours / theirs } else { theirs / ours });
            if let Some(sample) = &mut rows[index].samples[repetition] {
                *sample = std::mem::take(sample).with_some(RATIO, Unit::Ratio, ratio);
            }
        }
    }
}
