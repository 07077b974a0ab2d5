//! `lockkeeper torture`: lets faults loose on an engine, to see whether its locks can be trusted.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, NOTHING_DONE, Outcome, SUCCESS, UNAVAILABLE, USAGE};
use crate::output::{self, Reader};
use clap::Args;
use lockkeeper_faults::Fault;
use lockkeeper_faults::torture::{Prepared, Torture as Settings, Verdict};
use serde::Serialize;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lockkeeper torture --engine redis://10.0.0.7           every fault, some five minutes
  lockkeeper torture --engine etcd://a,b,c --only cut    one of them
  lockkeeper torture --ttl 10s --rounds 5 --json         with the TTL you use

Faults: pause, kill, block and client-files strike processes; client-clock sets their wall clock (needs
a C compiler, cc); cancels gives up waits; cut, cut-requests, cut-replies, delay, reset, tear, half-open
and half-open-clients strike the network, by a proxy on this machine.

Exit status:
  0   every promise held, but for what the engine's page says
  1   one did not
  64  wrong usage, or a fault that cannot be let loose on this engine
  69  the engine is not reachable";

/// Let faults loose on an engine, and see whether its locks hold
///
/// Starts processes that lock, stops and kills them in the middle of their holds, cuts their network, and judges what they
/// saw: never two holders, tokens that grow, each loss noticed in time, nobody forgotten, nothing left behind. Uses names of
/// its own, and does nothing to the engine's servers.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Torture {
    /// Only this fault (may be repeated)
    #[arg(long, value_name = "FAULT")]
    only: Vec<Fault>,
    /// Let each fault strike N times
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Decide by N when and whom the faults strike [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    engine: &'static str,
    style: &'static str,
    ttl_seconds: f64,
    seed: u64,
    held: bool,
    faults: Vec<Verdict>,
}

impl Torture {
    /// Runs the faults one after the other, each in a namespace of its own.
    pub(crate) fn run(self, options: &EngineOptions) -> Outcome {
        if options.namespace.is_some() && std::env::var_os("LOCKKEEPER_NAMESPACE").is_none() {
            return Err(Failure::usage("torture has a namespace of its own"));
        }
        let url = options.url()?.map_or_else(lockkeeper::default_url, str::to_owned);
        let mut settings = Settings::of(url).rounds(self.rounds).only(self.only.clone());
        settings = self.seed.into_iter().fold(settings, Settings::seed);
        settings = options.ttl.into_iter().fold(settings, Settings::ttl);
        let seed = settings.chosen_seed();
        let failed = |error: lockkeeper_faults::Error| {
            Failure::new(if error.is_usage() { USAGE } else { UNAVAILABLE }, error.to_string())
        };
        let prepared = settings.prepare().map_err(failed)?;
        let (engine, style, ttl) = (prepared.abilities.engine, prepared.abilities.style, prepared.ttl());
        self.say(&introduction(engine, style, ttl, seed, &prepared))?;
        let mut faults = Vec::new();
        for fault in &prepared.faults {
            let verdict = prepared.run(*fault).map_err(failed)?;
            let sign = match (verdict.held, &verdict.known) {
                (true, None) => "held  ",
                (true, Some(_)) => "known ",
                (false, _) => "BROKEN",
            };
            faults.push(verdict);
            let words = &faults[faults.len() - 1].words;
            if self.say(&format!("{sign} {fault}: {words}\n"))? == Reader::Gone {
                break;
            }
        }
        let held = faults.iter().all(|verdict| verdict.held);
        self.say(&conclusion(&faults))?;
        if self.json {
            let ttl_seconds = ttl.as_secs_f64();
            output::print_json(&Report { engine, style, ttl_seconds, seed, held, faults })?;
        }
        Ok(if held { SUCCESS } else { NOTHING_DONE })
    }

    /// For people, as it comes.
    fn say(&self, text: &str) -> Result<Reader, Failure> {
        if self.json { Ok(Reader::There) } else { output::print(text) }
    }
}

fn introduction(engine: &str, style: &str, ttl: Duration, seed: u64, prepared: &Prepared) -> String {
    let mut without = String::new();
    if !prepared.has_network {
        without += "; its network cannot be reached by a proxy, and is left alone";
    }
    if !prepared.has_clock {
        without += "; without a C compiler, cc, the clock is left alone";
    }
    let faults = prepared.faults.len();
    let faults = if faults == 1 { "1 fault".to_owned() } else { format!("{faults} faults") };
    format!("{engine} {style}, TTL {ttl:?}, seed {seed}: {faults}{without}\n")
}

fn conclusion(faults: &[Verdict]) -> String {
    let sum = |of: fn(&Verdict) -> u64| faults.iter().map(of).sum::<u64>();
    let broken = faults.iter().filter(|verdict| !verdict.held).count();
    let known = faults.iter().filter(|verdict| verdict.known.is_some()).count();
    let held = match (broken, known) {
        (0, 0) => "Every promise held".to_owned(),
        (0, _) => "Every promise held, but for what the engine's page says".to_owned(),
        _ => format!("{broken} faults broke a promise"),
    };
    format!(
        "{held}: {} strikes during {} holds. Of {} updates without a check of tokens {} were lost{}.\n",
        sum(|verdict| verdict.record.strikes),
        sum(|verdict| verdict.record.holds),
        sum(|verdict| verdict.record.unfenced),
        sum(|verdict| verdict.record.lost_unfenced),
        if broken == 0 { ", with it none" } else { "" },
    )
}
