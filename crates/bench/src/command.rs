//! The command line of the bench: `lockkeeper bench` and `lockkeeper-bench` take the same.

use crate::machine::Machine;
use crate::plan::Plan;
use crate::scale::Scale;
use crate::servers::Servers;
use crate::summary::Summary;
use crate::target::{self, Wish};
use crate::{Result, Usage, Workload, helper, markdown, network, report, table};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lockkeeper_testkit::Placement;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const A_DAY: Duration = Duration::from_secs(86_400);

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
    /// The workloads; by default all that measure engines, which is all but 'recovery' and 'serve'
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    pub workloads: Vec<Workload>,
    /// A first look in a few minutes: shorter and fewer runs, fewer waiters
    #[arg(long)]
    pub quick: bool,
    /// How the cost grows: 10 to 10,000 waiters on a lock, 100 to 100,000 locks of a keeper, 2 to 256 keepers, and how soon an
    /// engine is back after an overload
    #[arg(long, conflicts_with = "quick")]
    pub curves: bool,
    /// How often each run is repeated, interleaved with the others
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..))]
    pub repeat: Option<u8>,
    /// Where client and server run while one task locks alone (uncontended), unless the server runs already: 'together' on one
    /// processor, 'apart' on two, or 'free', wherever the system puts them, which repeats badly
    #[arg(long, value_name = "WHERE", default_value = "together", value_parser = placement())]
    pub place: Placement,
    /// Add this to every round trip to the servers that are started, as a network does (such as 250us)
    #[arg(long, value_name = "DURATION", value_parser = network::parse_delay)]
    pub delay: Option<Duration>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page with tables and plots into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Show the figures that a report or --json has saved, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["engines", "url", "workloads", "quick", "curves", "repeat", "place", "delay"])]
    pub from: Option<PathBuf>,
    /// Add the figures of other libraries, as scripts/bench-peers has saved them
    #[arg(long, value_name = "FILE")]
    pub peers: Option<PathBuf>,
    /// Add the figures of a run with --delay, as --json has saved them
    #[arg(long, value_name = "FILE")]
    pub delayed: Option<PathBuf>,
    /// Renew the tables of this Markdown page between its '<!-- bench:… -->' marks
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Everything that came out, as `--json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// lockkeeper's version.
    pub version: String,
    /// Where it ran.
    pub machine: Machine,
    /// How much was measured.
    pub scale: Scale,
    /// How long all of it took.
    #[serde(default)]
    pub seconds: f64,
    /// What came out.
    pub results: Vec<Summary>,
    /// What came out of other libraries, in a run of their own beside lockkeeper.
    #[serde(default)]
    pub peers: Vec<Summary>,
    /// What came out with a delay, in a run of its own.
    #[serde(default)]
    pub delayed: Vec<Summary>,
}

impl Outcome {
    /// Reads what was saved.
    ///
    /// # Errors
    /// When there is no such file, or something else is in it.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
        serde_json::from_str(&text)
            .map_err(|error| Usage(format!("{} is no saved run: {error}", path.display())).into())
    }
}

/// Does what the command line asks.
///
/// Call it before any runtime is entered: the bench starts its own. Helper processes are this program with the
/// same arguments, so this must be reached again with them.
///
/// # Errors
/// [`Usage`] when the command line asks for what cannot be; anything else when nothing could be measured or
/// the report could not be written. A single run that fails is no error: its row says why.
pub fn run(arguments: &Arguments) -> Result<()> {
    if helper::run_if_asked() {
        return Ok(());
    }
    let mut outcome = match &arguments.from {
        Some(path) => Outcome::load(path)?,
        None => measure(arguments)?,
    };
    if let Some(path) = &arguments.peers {
        outcome.peers = Outcome::load(path)?.results;
    }
    if let Some(path) = &arguments.delayed {
        outcome.delayed = Outcome::load(path)?.results;
    }
    show(&outcome, arguments)
}

fn placement() -> impl TypedValueParser<Value = Placement> {
    PossibleValuesParser::new(Placement::NAMES).try_map(|name| name.parse())
}

fn measure(arguments: &Arguments) -> Result<Outcome> {
    if arguments.delay.is_some() && !arguments.url.is_empty() {
        return Err(Usage(
            "--delay needs servers that the bench starts; a running one is behind no proxy".into(),
        )
        .into());
    }
    let machine = Machine::here();
    let mut servers = Servers::with_delay(arguments.delay.unwrap_or_default());
    let targets = targets(arguments, &mut servers)?;
    if targets.is_empty() {
        return Err(Usage("there is no engine to measure".into()).into());
    }
    let started = Instant::now();
    let plan = Plan { workloads: workloads(arguments), scale: scale(arguments), targets };
    let results = plan.run();
    let version = env!("CARGO_PKG_VERSION").into();
    let seconds = started.elapsed().as_secs_f64();
    Ok(Outcome {
        version,
        machine,
        scale: plan.scale,
        seconds,
        results,
        peers: Vec::new(),
        delayed: Vec::new(),
    })
}

fn show(outcome: &Outcome, arguments: &Arguments) -> Result<()> {
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
    } else {
        println!(
            "{}\nmeasured in {:.0} s.{}",
            outcome.machine.line(),
            outcome.seconds,
            outcome.scale.network()
        );
        println!("{}", table::render(&outcome.results));
        if !outcome.peers.is_empty() {
            println!("beside other libraries\n{}", table::render(&outcome.peers));
        }
        if !outcome.delayed.is_empty() {
            println!("over a network\n{}", table::render(&outcome.delayed));
        }
    }
    if let Some(directory) = &arguments.report {
        let page = report::write(outcome, directory)?;
        eprintln!("the report is {}", page.display());
    }
    if let Some(path) = &arguments.markdown {
        let page = std::fs::read_to_string(path)
            .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
        std::fs::write(path, markdown::renew(&page, outcome)?)?;
    }
    Ok(())
}

fn targets(arguments: &Arguments, servers: &mut Servers) -> Result<Vec<target::Target>> {
    let mut targets = Vec::new();
    // A running engine is measured alone, unless others are named as well.
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
    match arguments.workloads.as_slice() {
        [] if arguments.curves => Workload::of_curves(),
        [] => Workload::of_engines(),
        some => some.to_vec(),
    }
}

fn scale(arguments: &Arguments) -> Scale {
    let mut scale = match arguments {
        Arguments { quick: true, .. } => Scale::quick(),
        Arguments { curves: true, .. } => Scale::curves(),
        _ => Scale::full(),
    };
    if let Some(times) = arguments.repeat {
        scale.repetitions = usize::from(times);
        // An explicit count is not cut short.
        scale.budget = A_DAY;
    }
    scale.placement = arguments.place;
    scale.delay = arguments.delay.unwrap_or_default();
    scale
}
