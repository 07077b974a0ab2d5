//! The command line of the bench: `lockkeeper bench` and `lockkeeper-bench` take the same.

use crate::machine::Machine;
use crate::plan::Plan;
use crate::scale::Scale;
use crate::servers::Servers;
use crate::summary::Summary;
use crate::target::{self, Wish};
use crate::{Result, Workload, helper, report, table};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Wrong usage, or nothing to measure.
const USAGE: u8 = 64;

/// What to measure, and how to show it.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The engines, or single styles of them, whose servers are started for the bench; by default all of this
    /// build whose servers are installed
    #[arg(long, value_name = "ENGINE[:STYLE],…", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// An engine that runs already; may be given several times
    #[arg(long, value_name = "URL")]
    pub url: Vec<String>,
    /// The workloads; by default all
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    pub workloads: Vec<Workload>,
    /// A first look in a few minutes: shorter and fewer runs, fewer waiters
    #[arg(long)]
    pub quick: bool,
    /// How often each run is repeated, interleaved with the others
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..))]
    pub repeat: Option<u8>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page with tables and plots into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Everything that came out, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// lockkeeper's version.
    pub version: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// How much was measured.
    pub scale: Scale,
    /// What came out.
    pub results: Vec<Summary>,
}

/// Does what the command line asks.
///
/// Call it before any runtime is entered: the bench starts its own. Helper processes are this program with the
/// same arguments, so this must be reached again with them.
pub fn run(arguments: Arguments) -> ExitCode {
    if helper::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    match measure_and_show(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockkeeper bench: {error}");
            ExitCode::from(USAGE)
        }
    }
}

fn measure_and_show(arguments: &Arguments) -> Result<()> {
    let machine = Machine::here();
    let mut servers = Servers::default();
    let targets = targets(arguments, &mut servers)?;
    if targets.is_empty() {
        return Err("there is no engine to measure".into());
    }
    let plan = Plan { workloads: workloads(arguments), scale: scale(arguments), targets };
    let results = plan.run();
    let outcome = Outcome { version: env!("CARGO_PKG_VERSION"), machine, scale: plan.scale, results };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        println!("{}", outcome.machine.line());
        println!("{}", table::render(&outcome.results));
    }
    if let Some(directory) = &arguments.report {
        let page = report::write(&outcome, directory)?;
        eprintln!("the report is {}", page.display());
    }
    Ok(())
}

fn targets(arguments: &Arguments, servers: &mut Servers) -> Result<Vec<target::Target>> {
    let mut targets = Vec::new();
    // Whoever names a running engine wants that one, and others only if named as well.
    if arguments.url.is_empty() || !arguments.engines.is_empty() {
        let wishes: Vec<Wish> = arguments.engines.iter().map(|text| Wish::parse(text)).collect();
        targets = target::start(&wishes, servers)?;
    }
    for url in &arguments.url {
        targets.push(target::at(url)?);
    }
    Ok(targets)
}

fn workloads(arguments: &Arguments) -> Vec<Workload> {
    if arguments.workloads.is_empty() { Workload::all() } else { arguments.workloads.clone() }
}

fn scale(arguments: &Arguments) -> Scale {
    let mut scale = if arguments.quick { Scale::quick() } else { Scale::full() };
    if let Some(times) = arguments.repeat {
        scale.repetitions = usize::from(times);
    }
    scale
}
