//! The commands, one file each: arguments and run.

pub(crate) mod acquire;
#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod elect;
pub(crate) mod engines;
pub(crate) mod evict;
pub(crate) mod ls;
pub(crate) mod man;
#[cfg(feature = "mcp")]
pub(crate) mod mcp;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod schema;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod show;
#[cfg(feature = "torture")]
pub(crate) mod torture;
pub(crate) mod watch;

use crate::arguments::{Arguments, Verb};
use crate::exit::{Failure, Outcome, UNAVAILABLE};
use crate::location;
use std::io::IsTerminal;

/// Does what the command line asks.
pub(crate) fn run(arguments: Arguments) -> Outcome {
    if arguments.verbose {
        log_events();
    }
    let options = arguments.options;
    let outcome = match arguments.verb {
        Verb::Run(run) => block_on(run.run(&options)),
        Verb::Acquire(acquire) => block_on(acquire.run(&options)),
        Verb::Renew(renew) => block_on(renew.run(&options)),
        Verb::Release(release) => block_on(release.run(&options)),
        Verb::Elect(elect) => block_on(elect.run(&options)),
        Verb::Ls(ls) => block_on(ls.run(&options)),
        Verb::Show(show) => block_on(show.run(&options)),
        Verb::Watch(watch) => block_on(watch.run(&options)),
        Verb::Evict(evict) => block_on(evict.run(&options)),
        Verb::Engines(engines) => engines.run(&options),
        #[cfg(feature = "bench")]
        Verb::Bench(bench) => bench.run(&options),
        #[cfg(feature = "torture")]
        Verb::Torture(torture) => torture.run(&options),
        #[cfg(feature = "serve")]
        Verb::Serve(serve) => serve.run(&options),
        #[cfg(feature = "mcp")]
        Verb::Mcp(mcp) => block_on(mcp.run(&options)),
        Verb::Schema(schema) => schema.run(),
        Verb::Completions(completions) => completions.run(),
        Verb::Man(man) => man.run(),
    };
    outcome.map_err(|failure| match location::of(&options) {
        Ok(place) => failure.at(&place),
        Err(_) => failure,
    })
}

/// One thread is enough here; renewals have their own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(UNAVAILABLE, format!("could not start: {error}")))?;
    let outcome = runtime.block_on(work);
    // The process ends now; taking the runtime apart would only delay that.
    std::mem::forget(runtime);
    outcome
}

fn log_events() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("debug"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}
