//! What an operator may set, each with a default.

use crate::tokens::Tokens;
use metrics_exporter_prometheus::PrometheusHandle;
use std::time::Duration;

/// How much clients may ask for. What is beyond is refused with the status 429 or 400 and a sentence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Sessions in all.
    pub sessions: usize,
    /// Sessions of one token.
    pub sessions_per_token: usize,
    /// Holds in all.
    pub holds: usize,
    /// Holds of one token.
    pub holds_per_token: usize,
    /// Waiting requests in all.
    pub waiters: usize,
    /// Waiting requests of one token.
    pub waiters_per_token: usize,
    /// Open event streams in all.
    pub streams: usize,
    /// Open event streams of one token.
    pub streams_per_token: usize,
    /// Connections in all; further ones wait to be accepted.
    pub connections: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Locks in one hold.
    pub names: usize,
    /// The longest wait, and the wait of a request that names none.
    pub wait: Duration,
    /// The longest TTL of a session.
    pub session_ttl: Duration,
    /// How long a client may take to send a request.
    pub request_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 20_000,
            sessions_per_token: 10_000,
            holds: 100_000,
            holds_per_token: 50_000,
            waiters: 20_000,
            waiters_per_token: 20_000,
            streams: 1_000,
            streams_per_token: 500,
            connections: 25_000,
            body_bytes: 64 * 1024,
            names: 64,
            wait: Duration::from_secs(24 * 3600),
            session_ttl: Duration::from_secs(3600),
            request_time: Duration::from_secs(10),
        }
    }
}

/// The settings of a server.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Settings {
    /// How much clients may ask for.
    pub limits: Limits,
    /// Who may do what; without tokens everybody may do everything.
    pub tokens: Option<Tokens>,
    /// The names by which browsers and clients may address the server, beside `localhost` and addresses. Empty: those alone, or
    /// any name beyond loopback where tokens are needed.
    pub hosts: Vec<String>,
    /// Whether the server is reached beyond this machine, so that other addresses than those of loopback may be right.
    pub beyond_loopback: bool,
    /// Where `/metrics` gets its text from; without it, the figures of this server alone.
    pub metrics: Option<PrometheusHandle>,
    /// At the end holds stay until their session ends, which heartbeats put off, instead of being released as soon as no client
    /// trusts them any more.
    pub drain: bool,
}
