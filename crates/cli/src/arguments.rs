//! The options that every verb has, and the list of verbs.

#[cfg(feature = "bench")]
use crate::commands::bench;
use crate::commands::{completions, engines, evict, ls, man, run, schema, show, watch};
use crate::exit::{self, HELP};
use clap::{Args, Parser, Subcommand};
use lockkeeper::{Connect, Keeper};
use lockkeeper_core::engine::parse_duration;
use std::time::Duration;

/// Locks across processes and machines, for any command.
///
/// 'lockkeeper run NAME -- COMMAND' runs a command while it holds a lock. The locks live in an engine: files on
/// this machine unless --engine names another, such as redis://host.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, after_help = HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Place,

    /// Tell what happens on standard error (RUST_LOG chooses what)
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Where the locks are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The engine's URL; see 'lockkeeper engines' [default: files of this user's]
    #[arg(
        short,
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKEEPER_URL",
        hide_env_values = true,
        help_heading = "Everywhere"
    )]
    pub(crate) engine: Option<String>,

    /// Keeps applications apart; empty for bare names [default: lockkeeper]
    #[arg(long, global = true, value_name = "TEXT", help_heading = "Everywhere")]
    pub(crate) namespace: Option<String>,

    /// How long a lock outlives its holder's last sign of life [default: 10s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_duration, help_heading = "Everywhere")]
    pub(crate) ttl: Option<Duration>,
}

impl Place {
    /// A keeper on the engine, under the name of whoever asks.
    pub(crate) async fn connect(&self, holder: Option<String>) -> lockkeeper::Result<Keeper> {
        // An empty variable is as good as none.
        let url = self.engine.clone().filter(|url| !url.is_empty());
        let mut connect = Connect::to(url.unwrap_or_else(lockkeeper::default_url));
        if let Some(ttl) = self.ttl {
            connect = connect.ttl(ttl);
        }
        if let Some(namespace) = &self.namespace {
            connect = connect.namespace(namespace);
        }
        if let Some(holder) = holder {
            connect = connect.holder(holder);
        }
        connect.connect().await
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(run::Run),
    Ls(ls::Ls),
    Show(show::Show),
    Watch(watch::Watch),
    Evict(evict::Evict),
    Engines(engines::Engines),
    #[cfg(feature = "bench")]
    Bench(Box<bench::Bench>),
    Schema(schema::Schema),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Reads the command line; otherwise says what is wrong (or the help asked for) and returns the exit status.
pub(crate) fn parse() -> Result<Arguments, u8> {
    Arguments::try_parse().map_err(|error| {
        let text = error.render();
        if !error.use_stderr() {
            return exit::tell(crate::output::print(&text.to_string()).map(|_| exit::SUCCESS));
        }
        let text = text.to_string();
        crate::output::warn(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
        exit::USAGE
    })
}
