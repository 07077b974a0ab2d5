//! `lockkeeper serve`: the locks over HTTP, for every language, and a page to look at.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, Outcome, SUCCESS, UNAVAILABLE};
use crate::output;
use crate::signals::Signals;
use clap::Args;
use lockkeeper_core::engine::parse_duration;
use lockkeeper_serve::{
    Limits, Listener, Server, Settings, Tokens, prometheus, raise_descriptor_limit, tls_from_files,
};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Notify;

/// Open files that are no connections of clients: the engine's, the tokens, the program's own.
const OTHER_FILES: usize = 200;

const EXAMPLES: &str = "\
Examples:
  lockkeeper serve                                             locks in files, on 127.0.0.1:7670
  curl -N 'localhost:7670/v1/hold?name=demo'                   hold a lock while curl runs
  lockkeeper serve --engine redis://cache --listen unix:/run/lockkeeper.sock
  lockkeeper serve --new-token ci                              a token, and its line for the file
  lockkeeper serve --listen 0.0.0.0:7670 --tokens tokens --tls-cert cert.pem --tls-key key.pem

The page of who holds and who waits is at http://localhost:7670/, the API at /openapi.json.";

/// Serve the locks over HTTP to programs of every language
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Address and port to listen on (port 0: a free one), or unix:PATH
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7670",
        env = "LOCKKEEPER_LISTEN",
        hide_env_values = true
    )]
    listen: String,

    /// File of the tokens that clients need; it is read again when it changes
    #[arg(long, value_name = "FILE", env = "LOCKKEEPER_TOKENS", hide_env_values = true)]
    tokens: Option<PathBuf>,

    /// Print a new token for NAME and its line for the file, and exit
    #[arg(long, value_name = "NAME")]
    new_token: Option<String>,

    /// Certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Listen beyond this machine without tokens or without TLS
    #[arg(long)]
    insecure: bool,

    /// Name by which clients address the server, beside localhost; may be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,

    /// On TERM keep what is held until it is released or its session ends, instead of for the TTL at most; a second TERM ends that
    #[arg(long)]
    drain: bool,

    /// Sessions at a time, in all and of one token
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions, help_heading = "Limits")]
    max_sessions: usize,

    /// Holds at a time, in all and of one token
    #[arg(long, value_name = "N", default_value_t = Limits::default().holds, help_heading = "Limits")]
    max_holds: usize,

    /// Waiting requests at a time, in all and of one token
    #[arg(long, value_name = "N", default_value_t = Limits::default().waiters, help_heading = "Limits")]
    max_waiters: usize,

    /// Event streams at a time, in all and of one token
    #[arg(long, value_name = "N", default_value_t = Limits::default().streams, help_heading = "Limits")]
    max_streams: usize,

    /// Share of these limits that one token may use, in percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 50,
        value_parser = clap::value_parser!(u8).range(1..=100),
        help_heading = "Limits"
    )]
    token_share: u8,

    /// The longest wait, and that of a request that names none
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration, help_heading = "Limits")]
    max_wait: Duration,
}

impl Serve {
    /// Serves until a signal comes.
    pub(crate) fn run(self, options: &EngineOptions) -> Outcome {
        if let Some(name) = &self.new_token {
            let (token, line) = Tokens::generate(name).map_err(Failure::usage)?;
            output::print(&format!("token: {token}\nline for the token file: {line}\n"))?;
            return Ok(SUCCESS);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::new(UNAVAILABLE, format!("could not start: {error}")))?;
        let outcome = runtime.block_on(self.serve(options));
        // The process ends now, and all that is worth waiting for has been awaited.
        runtime.shutdown_background();
        outcome
    }

    async fn serve(self, options: &EngineOptions) -> Outcome {
        let mut signals = Signals::ending()?;
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(tls_from_files(certificate, key).map_err(Failure::usage)?),
            _ => None,
        };
        let tokens = self.tokens.as_ref().map(Tokens::from_file).transpose().map_err(Failure::usage)?;
        let listener = Listener::bind(&self.listen, tls).await.map_err(Failure::usage)?;
        self.check_exposure(&listener, tokens.is_some())?;
        // Before the keeper starts, which registers its metrics.
        let metrics = prometheus().map_err(|error| Failure::new(UNAVAILABLE, error))?;
        let keeper = options.connect(None).await?;
        let mut settings = Settings::default();
        settings.limits = self.limits();
        let files = raise_descriptor_limit();
        // Beyond it nothing could be accepted, read from a file or asked of the engine.
        settings.limits.connections =
            settings.limits.connections.min(files.saturating_sub(OTHER_FILES).max(1));
        settings.tokens = tokens;
        settings.hosts = self.host.clone();
        settings.beyond_loopback = listener.is_beyond_loopback();
        settings.metrics = Some(metrics);
        settings.drain = self.drain;
        let server = Server::new(keeper.clone(), settings);
        output::print(&format!("listening on {listener}\n"))?;
        let is_to_end = Notify::new();
        let signalled = async {
            signals.next().await;
            is_to_end.notify_one();
            signals.next().await;
            server.stop_draining();
            std::future::pending().await
        };
        tokio::select! {
            () = server.serve(listener, is_to_end.notified()) => {}
            () = signalled => {}
        }
        keeper.close().await;
        Ok(SUCCESS)
    }

    /// What other machines can reach asks who they are, and nobody between can read it.
    fn check_exposure(&self, listener: &Listener, has_tokens: bool) -> Result<(), Failure> {
        if !listener.is_beyond_loopback() || (has_tokens && listener.has_tls()) {
            return Ok(());
        }
        if self.insecure {
            let open = match (has_tokens, listener.has_tls()) {
                (false, false) => "anybody who reaches it may do everything, and read all of it on the way",
                (false, true) => "anybody who reaches it may do everything",
                (true, _) => "tokens and locks can be read on the way",
            };
            output::warn(&format!("--insecure: {} can be reached by other machines; {open}", self.listen));
            return Ok(());
        }
        let lacks = match (has_tokens, listener.has_tls()) {
            (false, false) => "tokens and TLS: give --tokens, --tls-cert and --tls-key",
            (false, true) => "tokens: give --tokens",
            (true, _) => "TLS: give --tls-cert and --tls-key",
        };
        Err(Failure::usage(format!(
            "{} can be reached by other machines, so it needs {lacks}\n  Or listen on 127.0.0.1, or say --insecure if the \
             network is trusted or something before it does both",
            self.listen
        )))
    }

    fn limits(&self) -> Limits {
        let share = |all: usize| (all * usize::from(self.token_share) / 100).max(1);
        // Without tokens all clients are one.
        let share = |all: usize| if self.tokens.is_some() { share(all) } else { all };
        let mut limits = Limits::default();
        (limits.sessions, limits.sessions_per_token) = (self.max_sessions, share(self.max_sessions));
        (limits.holds, limits.holds_per_token) = (self.max_holds, share(self.max_holds));
        (limits.waiters, limits.waiters_per_token) = (self.max_waiters, share(self.max_waiters));
        (limits.streams, limits.streams_per_token) = (self.max_streams, share(self.max_streams));
        limits.wait = self.max_wait;
        limits
    }
}
