//! The server itself: is it alive, is its engine reachable, what does it do.

use crate::api::time::milliseconds;
use crate::app::App;
use crate::error::Problem;
use crate::extract::Viewer;
use crate::quota::Kind;
use crate::session::CLOCK;
use crate::tokens::{Caller, Right};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use utoipa::ToSchema;

/// What this server does and has.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Server {
    /// Its version.
    version: &'static str,
    /// The engine.
    engine: &'static str,
    /// Its style.
    style: &'static str,
    /// First come, first served.
    fair: bool,
    /// It has shared holds.
    shared: bool,
    /// It has permits.
    permits: bool,
    /// An exclusive hold can become a shared one.
    downgrade: bool,
    /// A release wakes the next waiter by a message instead of a poll.
    push: bool,
    /// Its locks are shared with other servers.
    across_processes: bool,
    /// Its locks are shared with other machines.
    across_machines: bool,
    /// Tokens still grow after the engine restarts.
    token_survives_restart: bool,
    /// The namespace of its locks.
    namespace: String,
    /// How long a claim outlives the server.
    engine_ttl_ms: u64,
    /// How long it runs.
    up_ms: u64,
    /// Sessions at this moment.
    sessions: usize,
    /// Holds at this moment.
    holds: usize,
    /// Waiting requests at this moment.
    waiters: usize,
    /// Grants since its start.
    granted: u64,
    /// Waits that ended without a grant since its start.
    busy: u64,
    /// Holds that were lost since its start.
    lost: u64,
    /// Sessions that fell silent since its start.
    silent: u64,
    /// Renewals at the engine with less than a third of the TTL left, since its start.
    near_misses: u64,
    /// Whether this token may evict.
    may_evict: bool,
}

/// Figures of this server.
#[utoipa::path(
    get, path = "/v1/server", tag = "server", security((), ("token" = [])),
    responses(
        (status = 200, description = "Figures", body = Server),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
    )
)]
pub(crate) async fn show(State(app): State<App>, caller: Caller) -> Result<Json<Server>, Problem> {
    // Clients learn from it what can be held here, and how.
    if caller.may(Right::Hold).is_err() {
        caller.may(Right::Look)?;
    }
    let abilities = app.keeper.abilities();
    Ok(Json(Server {
        version: env!("CARGO_PKG_VERSION"),
        engine: abilities.engine,
        style: abilities.style,
        fair: abilities.fair,
        shared: abilities.shared,
        permits: abilities.permits,
        downgrade: abilities.downgrade,
        push: abilities.push,
        across_processes: abilities.across_processes,
        across_machines: abilities.across_machines,
        token_survives_restart: abilities.token_survives_restart,
        namespace: app.keeper.namespace().to_owned(),
        engine_ttl_ms: milliseconds(app.keeper.ttl()),
        up_ms: milliseconds(CLOCK.now().since(app.started)),
        sessions: app.quota.count(Kind::Session),
        holds: app.quota.count(Kind::Hold),
        waiters: app.quota.count(Kind::Waiter),
        granted: app.figures.granted.load(Relaxed),
        busy: app.figures.busy.load(Relaxed),
        lost: app.figures.lost.load(Relaxed),
        silent: app.figures.silent.load(Relaxed),
        near_misses: near_misses(&app),
        may_evict: caller.may(Right::Evict).is_ok(),
    }))
}

/// What the keeper counts itself.
fn near_misses(app: &App) -> u64 {
    let text = app.settings.metrics.as_ref().map(|metrics| metrics.render()).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("lockkeeper_near_misses_total"));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Whether the server runs.
#[utoipa::path(get, path = "/healthz", tag = "server", responses(
    (status = 200, description = "It does", body = String, content_type = "text/plain; charset=utf-8"),
))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// How long the engine may take to show that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Whether the engine is reachable, and the server does not end.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "Ready", body = String, content_type = "text/plain; charset=utf-8"),
    (status = 502, description = "`engine_failed`"),
    (status = 503, description = "`engine_unavailable`, `ending`"),
))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, Problem> {
    app.check_not_ending()?;
    match tokio::time::timeout(READY_WITHIN, app.keeper.look("readyz")).await {
        Ok(looked) => looked.map(|_| "ready\n").map_err(Problem::from),
        Err(_) => {
            let silent = lockkeeper_core::Error::temporary(app.keeper.abilities().engine, "look", "no reply");
            Err(silent.into())
        }
    }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "server", security((), ("token" = [])),
    responses(
        (status = 200, description = "Metrics", body = String, content_type = "text/plain; version=0.0.4"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
    )
)]
pub(crate) async fn metrics(State(app): State<App>, _: Viewer) -> impl IntoResponse {
    let mut text = app.settings.metrics.as_ref().map(|metrics| {
        metrics.run_upkeep();
        metrics.render()
    });
    let text = text.get_or_insert_default();
    let gauges = [
        ("sessions", "Sessions at this moment.", Kind::Session),
        ("holds", "Holds at this moment.", Kind::Hold),
        ("waiters", "Waiting requests at this moment.", Kind::Waiter),
        ("streams", "Open event streams at this moment.", Kind::Stream),
    ];
    for (name, help, kind) in gauges {
        let value = app.quota.count(kind);
        let _ = write!(
            text,
            "# HELP lockkeeper_serve_{name} {help}\n# TYPE lockkeeper_serve_{name} gauge\nlockkeeper_serve_{name} {value}\n"
        );
    }
    let name = "lockkeeper_serve_silent_sessions_total";
    let silent = app.figures.silent.load(Relaxed);
    let _ =
        write!(text, "# HELP {name} Sessions that fell silent.\n# TYPE {name} counter\n{name} {silent}\n");
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], std::mem::take(text))
}
