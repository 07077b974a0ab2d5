//! The command line.

use crate::workload::MAIN;
use lockkeeper_bench::network::parse_delay;
use lockkeeper_bench::scale::{Limit, Scale};
use lockkeeper_bench::{Result, Workload};
use std::path::PathBuf;
use std::time::Duration;

const ENGINES: [&str; 5] = ["redis", "zookeeper", "etcd", "postgres", "file"];
const KNOWN: &str = "--quick, --only ENGINE,…, --workloads NAME,…, --repetitions COUNT, --delay DURATION, --json FILE, \
                     --from FILE,…, --markdown FILE";

/// What is asked for.
pub struct Options {
    pub engines: Vec<String>,
    pub workloads: Vec<Workload>,
    pub scale: Scale,
    pub json: Option<PathBuf>,
    /// Saved runs to show; nothing is measured then.
    pub from: Vec<PathBuf>,
    /// A page whose table is to be renewed.
    pub markdown: Option<PathBuf>,
}

impl Options {
    /// Those of `faults`, whose own proxies stand between a program and its server.
    pub fn read_for_faults(words: &[String]) -> Result<Self> {
        let options = Self::read(words)?;
        if !options.scale.delay.is_zero() {
            return Err(
                "faults takes no --delay: it puts every program under the same faults, and measures no speed"
                    .into(),
            );
        }
        Ok(options)
    }

    pub fn read(words: &[String]) -> Result<Self> {
        let limit = Limit { turns: 200_000, time: Duration::from_secs(1) };
        let mut options = Self {
            engines: ENGINES.map(String::from).to_vec(),
            workloads: MAIN.map(|main| main.0).to_vec(),
            scale: Scale { limit, repetitions: 5, ..Scale::full() },
            json: None,
            from: Vec::new(),
            markdown: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--quick" {
                options.scale.repetitions = 2;
                options.scale.limit.time = Duration::from_millis(250);
                continue;
            }
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--only" => options.engines = value()?.split(',').map(engine).collect::<Result<_>>()?,
                "--workloads" => {
                    options.workloads = value()?.split(',').map(workload).collect::<Result<_>>()?;
                }
                "--repetitions" => options.scale.repetitions = value()?.parse()?,
                "--delay" => options.scale.delay = parse_delay(value()?)?,
                "--json" => options.json = Some(value()?.into()),
                "--from" => options.from = value()?.split(',').map(PathBuf::from).collect(),
                "--markdown" => options.markdown = Some(value()?.into()),
                _ => return Err(format!("unknown word {word}; known: faults, {KNOWN}").into()),
            }
        }
        Ok(options)
    }
}

fn engine(name: &str) -> Result<String> {
    if ENGINES.contains(&name) {
        return Ok(name.into());
    }
    Err(format!("unknown engine {name}; known: {}", ENGINES.join(", ")).into())
}

fn workload(name: &str) -> Result<Workload> {
    let names = MAIN.map(|main| main.0.name());
    let found = MAIN.iter().find(|main| main.0.name() == name);
    Ok(found.ok_or_else(|| format!("unknown workload {name}; known: {}", names.join(", ")))?.0)
}
