//! `lockkeeper bench`: measures engines on this machine.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, Outcome, SUCCESS, UNAVAILABLE, USAGE};
use clap::Args;
use lockkeeper_bench::Usage;
use lockkeeper_bench::command::{self, Arguments};

const EXAMPLES: &str = "\
Examples:
  lockkeeper bench --quick                        every engine whose server is installed
  lockkeeper bench --engines file,redis:plain --report bench-report
  lockkeeper bench --delay 250us                  the same over a network
  lockkeeper bench --engine redis://10.0.0.7 --workloads uncontended,contended";

/// Measure engines on this machine, each beside the raw floor of its driver
///
/// Servers are started on free ports with throw-away data and stopped at the end. With --engine (or
/// LOCKKEEPER_URL) that running engine is measured instead.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    #[command(flatten)]
    arguments: Arguments,
}

impl Bench {
    /// Measures and shows; not within a runtime, since the bench starts its own.
    pub(crate) fn run(mut self, options: &EngineOptions) -> Outcome {
        let from_environment = |name: &str| std::env::var_os(name).is_some();
        let namespace_given = options.namespace.is_some() && !from_environment("LOCKKEEPER_NAMESPACE");
        if namespace_given || options.ttl.is_some() && !from_environment("LOCKKEEPER_TTL") {
            return Err(Failure::usage("bench has a namespace and TTLs of its own"));
        }
        let is_saved = self.arguments.from.is_some();
        let named = options.url()?.map(str::to_owned).filter(|_| !is_saved);
        // --engines starts servers, so the URL in the environment is not meant.
        if self.arguments.engines.is_empty() {
            self.arguments.url.extend(named);
        }
        command::run(&self.arguments).map_err(|error| {
            Failure::new(if error.is::<Usage>() { USAGE } else { UNAVAILABLE }, error.to_string())
        })?;
        Ok(SUCCESS)
    }
}
