//! The options that every command has, and the list of commands.

#[cfg(feature = "bench")]
use crate::commands::bench;
#[cfg(feature = "mcp")]
use crate::commands::mcp;
#[cfg(feature = "serve")]
use crate::commands::serve;
#[cfg(feature = "torture")]
use crate::commands::torture;
use crate::commands::{
    acquire, completions, elect, engines, evict, ls, man, release, renew, run, schema, show, watch,
};
use crate::complete;
use crate::exit::{self, Failure};
use crate::{location, waiting};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use clap_complete::ArgValueCompleter;
use lockkeeper::{Connect, Keeper};
use lockkeeper_core::DEFAULT_OUTAGE_LIMIT;
use lockkeeper_core::engine::{Address, parse_duration};
use std::time::Duration;

/// The variables that set an option; the manual pages list them.
pub(crate) const ENVIRONMENT: [(&str, &str); 8] = [
    ("LOCKKEEPER_URL", "The engine's URL, as --engine."),
    ("LOCKKEEPER_SERVER", "The URL of a server, as --server."),
    ("LOCKKEEPER_LISTEN", "Where serve listens, as its --listen."),
    ("LOCKKEEPER_TOKENS", "The file of the tokens that serve asks for, as its --tokens."),
    ("LOCKKEEPER_NAMESPACE", "The namespace, as --namespace. It must not be empty."),
    ("LOCKKEEPER_TTL", "The TTL, as --ttl."),
    ("LOCKKEEPER_HANDLE", "The handle that renew and release work on."),
    ("RUST_LOG", "Which events --verbose prints, such as 'lockkeeper_core=trace'."),
];

/// Locks across processes and machines, for any command.
///
/// 'lockkeeper run NAME -- COMMAND' runs a command while it holds a lock. The locks live in an engine: files on
/// this machine unless --engine names another, such as redis://host.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version,
    after_help = "'lockkeeper help run' lists the exit statuses.",
    max_term_width = 100
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) options: EngineOptions,

    /// Print events on standard error (RUST_LOG selects which)
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Which engine to use, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct EngineOptions {
    /// URL of the engine; see 'lockkeeper engines' [default: the user's files on this machine]
    #[arg(
        short,
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKEEPER_URL",
        hide_env_values = true,
        add = ArgValueCompleter::new(complete::engines),
        help_heading = "Common options"
    )]
    pub(crate) engine: Option<String>,

    /// URL of a lockkeeper server to use instead of an engine, such as http://localhost:7670
    #[cfg(feature = "serve")]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKEEPER_SERVER",
        hide_env_values = true,
        help_heading = "Common options"
    )]
    pub(crate) server: Option<String>,

    /// Prefix that keeps applications apart; '' for bare names [default: lockkeeper]
    #[arg(
        long,
        global = true,
        value_name = "TEXT",
        env = "LOCKKEEPER_NAMESPACE",
        hide_env_values = true,
        help_heading = "Common options"
    )]
    pub(crate) namespace: Option<String>,

    /// How long a lock outlives the last renewal by its holder [default: 10s]
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        env = "LOCKKEEPER_TTL",
        hide_env_values = true,
        value_parser = parse_duration,
        help_heading = "Common options"
    )]
    pub(crate) ttl: Option<Duration>,
}

impl EngineOptions {
    /// The URL that was given; `None` for the default engine.
    ///
    /// An empty URL is refused: it is a variable that was not set, and local files in its stead would end exclusion
    /// between machines without a word.
    pub(crate) fn url(&self) -> Result<Option<&str>, Failure> {
        if let Some(server) = self.server()? {
            return Ok(Some(server));
        }
        match self.engine.as_deref() {
            Some("") if is_empty("LOCKKEEPER_URL") => Err(Failure::usage(
                "LOCKKEEPER_URL is empty: set it to an engine's URL, such as redis://host, \
                 or unset it to lock with files on this machine",
            )),
            Some("") => Err(Failure::usage(
                "--engine is empty: give an engine's URL, such as redis://host, \
                 or leave the option out to lock with files on this machine",
            )),
            url => Ok(url),
        }
    }

    /// The URL of a server, which is used instead of an engine.
    #[cfg(feature = "serve")]
    pub(crate) fn server(&self) -> Result<Option<&str>, Failure> {
        match self.server.as_deref() {
            Some(url) if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) => {
                Err(Failure::usage(
                    "the URL of a server begins with http:// or https://, such as http://localhost:7670; --engine names engines",
                ))
            }
            server => Ok(server),
        }
    }

    /// This build has no client for servers.
    #[cfg(not(feature = "serve"))]
    pub(crate) fn server(&self) -> Result<Option<&str>, Failure> {
        Ok(None)
    }

    /// Connects a keeper to the engine, with this text as the holder shown to operators.
    pub(crate) async fn connect(&self, holder: Option<String>) -> Result<Keeper, Failure> {
        Ok(self.settings(holder)?.connect().await?)
    }

    /// Like [`connect`](Self::connect), as part of a wait for a lock: an engine that does not reply is tried again up to
    /// `limit`, or without one for as long as a wait outlives an outage.
    pub(crate) async fn connect_within(
        &self,
        holder: Option<String>,
        limit: Option<Duration>,
    ) -> Result<Keeper, Failure> {
        let limit = match (limit, self.url()?) {
            (Some(limit), _) => limit,
            (None, Some(url)) => {
                Address::parse(url)?.take_duration("outage_limit")?.unwrap_or(DEFAULT_OUTAGE_LIMIT)
            }
            (None, None) => DEFAULT_OUTAGE_LIMIT,
        };
        let server = location::of(self)?;
        tokio::select! {
            keeper = self.settings(holder)?.retry_for(limit).connect() => Ok(keeper?),
            never = waiting::warn_of_no_connection(&server, limit) => match never {},
        }
    }

    fn settings(&self, holder: Option<String>) -> Result<Connect, Failure> {
        let url = self.url()?.map_or_else(lockkeeper::default_url, str::to_owned);
        let mut connect = Connect::to(url);
        if self.server()?.is_some() {
            // The server has a namespace of its own, in which names are the same as here.
            connect = connect.namespace("");
        }
        if let Some(ttl) = self.ttl {
            connect = connect.ttl(ttl);
        }
        if let Some(namespace) = &self.namespace {
            if namespace.is_empty() && is_empty("LOCKKEEPER_NAMESPACE") {
                return Err(Failure::usage(
                    "LOCKKEEPER_NAMESPACE is empty: set it, or unset it and give --namespace '' for bare names",
                ));
            }
            connect = connect.namespace(namespace);
        }
        if let Some(holder) = holder {
            connect = connect.holder(holder);
        }
        Ok(connect)
    }
}

/// Whether a variable is set, but to nothing.
fn is_empty(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value.is_empty())
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<run::Run>),
    Acquire(acquire::Acquire),
    Renew(renew::Renew),
    Release(release::Release),
    Elect(elect::Elect),
    Ls(ls::Ls),
    Show(show::Show),
    Watch(watch::Watch),
    Evict(evict::Evict),
    Engines(engines::Engines),
    #[cfg(feature = "bench")]
    Bench(Box<bench::Bench>),
    #[cfg(feature = "torture")]
    Torture(torture::Torture),
    #[cfg(feature = "serve")]
    Serve(Box<serve::Serve>),
    #[cfg(feature = "mcp")]
    Mcp(mcp::Mcp),
    Schema(schema::Schema),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Reads the command line; otherwise prints the error (or the help that was requested) and returns the exit status.
pub(crate) fn parse() -> Result<Arguments, u8> {
    Arguments::try_parse().map_err(|error| {
        let text = error.render().to_string();
        if !error.use_stderr() {
            return exit::report(crate::output::print(&text).map(|_| exit::SUCCESS));
        }
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        crate::output::warn(&format!("{text}{}", hint(error.kind())));
        exit::USAGE
    })
}

/// An option of the command's is taken for one of ours if nothing separates the two.
fn hint(error: ErrorKind) -> &'static str {
    let mut words = std::env::args_os().skip(1);
    let runs = words.any(|word| word == "run");
    if error == ErrorKind::UnknownArgument && runs && !words.any(|word| word == "--") {
        "\n\nPut '--' before the command: lockkeeper run NAME -- COMMAND..."
    } else {
        ""
    }
}
