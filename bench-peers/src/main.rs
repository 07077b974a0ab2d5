//! Measures what people use instead of lockkeeper, side by side with it: same servers, same workloads, one run.
//!
//! `scripts/bench-peers [--quick] [--only redis,etcd] [--workloads uncontended,spread] [--repetitions 9] [--delay 250us] [--json FILE]`

mod contest;
mod libraries;
mod ours;
mod program;

use contest::{Contest, Contestant};
use lockkeeper_bench::command::Outcome;
use lockkeeper_bench::kit::{Servers, Shape};
use lockkeeper_bench::machine::Machine;
use lockkeeper_bench::network::parse_delay;
use lockkeeper_bench::scale::{Limit, Scale};
use lockkeeper_bench::{Result, table};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How clients meet in every contest.
const SHAPES: [Shape; 3] = [Shape::Alone, Shape::Spread(64), Shape::Contended(16)];
const ENGINES: [&str; 5] = ["file", "redis", "zookeeper", "etcd", "postgres"];

struct Options {
    engines: Vec<String>,
    shapes: Vec<Shape>,
    json: Option<PathBuf>,
    scale: Scale,
}

fn options() -> Result<Options> {
    let engines = ENGINES.map(String::from).to_vec();
    let scale = Scale { limit: Limit { turns: 200_000, time: Duration::from_secs(1) }, ..Scale::full() };
    let mut options = Options { engines, shapes: SHAPES.to_vec(), json: None, scale };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--quick" => {
                options.scale.repetitions = 3;
                options.scale.limit.time = Duration::from_millis(250);
            }
            "--only" => options.engines = value()?.split(',').map(Into::into).collect(),
            "--workloads" => {
                let shape = |name: &str| {
                    let named = SHAPES.into_iter().find(|shape| shape.workload().name() == name);
                    named.ok_or_else(|| {
                        format!("unknown workload {name}; known: uncontended, spread, contended")
                    })
                };
                options.shapes = value()?.split(',').map(shape).collect::<Result<_, _>>()?;
            }
            "--repetitions" => options.scale.repetitions = value()?.parse()?,
            "--delay" => options.scale.delay = parse_delay(&value()?)?,
            "--json" => options.json = Some(value()?.into()),
            _ => {
                let known = "--quick, --only ENGINE,…, --workloads NAME,…, --repetitions COUNT, --delay DURATION, \
                             --json FILE";
                return Err(format!("unknown word {word}; known: {known}").into());
            }
        }
    }
    Ok(options)
}

fn main() -> Result<()> {
    let options = options()?;
    let (machine, started) = (Machine::here(), Instant::now());
    let mut servers = Servers::with_delay(options.scale.delay);
    let mut results = Vec::new();
    for shape in options.shapes {
        for engine in &options.engines {
            let url = servers.url(engine)?;
            let contest = Contest { engine, url: &url, shape, scale: &options.scale };
            results.extend(contest.run(contestants(engine)?));
        }
    }
    println!("{}.{}\n{}", machine.line(), options.scale.network(), table::render(&results));
    if let Some(path) = options.json {
        let version = env!("CARGO_PKG_VERSION").into();
        let outcome = Outcome {
            version,
            machine,
            scale: options.scale,
            seconds: started.elapsed().as_secs_f64(),
            results,
            peers: Vec::new(),
            delayed: Vec::new(),
        };
        std::fs::write(path, serde_json::to_string(&outcome)?)?;
    }
    Ok(())
}

/// Ours first, then the others; each says which of ours it is compared with.
fn contestants(engine: &str) -> Result<Vec<Box<dyn Contestant>>> {
    use libraries::*;
    Ok(match engine {
        "file" => vec![ours::style("file", "queue"), library("fd-lock", "file queue", fd_lock)],
        "redis" => vec![
            ours::style("redis", "plain"),
            ours::style("redis", "queue"),
            library("rslock", "redis plain", rslock),
            library("distributed-lock", "redis plain", distributed_lock_redis),
            program::python("redis-py", "redis plain"),
        ],
        "zookeeper" => vec![
            ours::style("zookeeper", "queue"),
            library("zookeeper-client", "zookeeper queue", zookeeper_client),
            program::java("Curator", "zookeeper queue"),
            program::python("kazoo", "zookeeper queue"),
        ],
        "etcd" => vec![ours::style("etcd", "queue"), library("etcd-client", "etcd queue", etcd_client)],
        "postgres" => vec![
            ours::style("postgres", "advisory"),
            library("sqlx PgAdvisoryLock", "postgres advisory", sqlx),
            library("distributed-lock", "postgres advisory", distributed_lock_postgres),
        ],
        _ => return Err(format!("unknown engine {engine}; known: {}", ENGINES.join(", ")).into()),
    })
}
