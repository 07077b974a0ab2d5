//! Measures what people use instead of lockkeeper, side by side with it on the same servers, or puts both under the same faults.

mod catalog;
mod contest;
mod faults;
mod libraries;
mod loops;
mod options;
mod page;
mod peer;
mod program;
mod workload;

use contest::Row;
use lockkeeper_bench::command::Outcome;
use lockkeeper_bench::kit::Servers;
use lockkeeper_bench::machine::Machine;
use lockkeeper_bench::{Result, table};
use options::Options;
use std::time::Instant;
use workload::Setup;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("peer") => peer::serve(&words[1..]),
        Some("faults") => faults::run(&Options::read_for_faults(&words[1..])?),
        _ => bench(Options::read(&words)?),
    }
}

fn bench(options: Options) -> Result<()> {
    let outcome = if options.from.is_empty() { measure(&options)? } else { saved(&options)? };
    println!("{}.{}\n{}", outcome.machine.line(), outcome.scale.network(), table::render(&outcome.results));
    println!("\n{}", page::table(&outcome));
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string(&outcome)?)?;
    }
    if let Some(path) = &options.markdown {
        let name = if outcome.scale.delay.is_zero() { "loopback" } else { "network" };
        let page = std::fs::read_to_string(path)?;
        std::fs::write(path, page::renew(&page, name, &page::table(&outcome))?)?;
    }
    Ok(())
}

/// Several saved runs as one.
fn saved(options: &Options) -> Result<Outcome> {
    let mut outcomes = options.from.iter().map(|path| Outcome::load(path));
    let mut outcome = outcomes.next().ok_or("no file")??;
    for other in outcomes {
        let other = other?;
        outcome.seconds += other.seconds;
        outcome.results.extend(other.results);
    }
    Ok(outcome)
}

fn measure(options: &Options) -> Result<Outcome> {
    let (machine, started) = (Machine::here(), Instant::now());
    let mut servers = Servers::with_delay(options.scale.delay);
    let setup = Setup::new(options.scale.clone());
    let mut results = Vec::new();
    for engine in &options.engines {
        let url = servers.url(engine)?;
        let peers = catalog::MEASURED.iter().filter(|peer| peer.engine == engine.as_str());
        let mut rows: Vec<Row> = peers.map(Row::of).collect();
        for &workload in &options.workloads {
            results.extend(contest::run(workload, &url, &setup, &mut rows));
        }
    }
    results.sort_by_key(|summary| workload::MAIN.iter().position(|main| main.0.name() == summary.workload));
    Ok(Outcome {
        version: lockkeeper_version(),
        machine,
        scale: options.scale.clone(),
        seconds: started.elapsed().as_secs_f64(),
        results,
        peers: Vec::new(),
        delayed: Vec::new(),
    })
}

/// As its manifest says.
fn lockkeeper_version() -> String {
    let manifest = include_str!("../../Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    line.map_or_else(String::new, |line| line.trim_end_matches('"').into())
}
