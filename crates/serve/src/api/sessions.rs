//! Sessions: make one, keep it, end it.

use crate::api::holds::Hold;
use crate::api::time::{Time, milliseconds};
use crate::app::App;
use crate::error::Problem;
use crate::extract::{Arrived, Body, Client, InPath, Key};
use crate::listen::Peer;
use crate::session::{End, Session};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use lockkeeper_core::{Holder, MIN_TTL};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// A client process that asks for a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// How long the session outlives the last request that names it; default 10 s, 100 ms to 1 h.
    ttl: Option<Time>,
    /// Who it is, as shown to operators.
    holder: Option<Who>,
}

/// Who stands behind a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "a holder is a text, or {\"who\": \"checkout\", \"host\": \"web-1\", \"pid\": 311}"
)]
pub(crate) enum Who {
    /// A service, a job, a person.
    #[schema(example = "checkout")]
    Text(String),
    /// The same, with machine and process.
    Process(Process),
}

/// A process of a client's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    /// A service, a job, a person.
    #[schema(max_length = 256)]
    who: String,
    /// The machine.
    #[schema(max_length = 256)]
    host: String,
    /// The process.
    #[schema(value_type = u64, maximum = 4_294_967_295_u64)]
    pid: u32,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionReply {
    /// Its id.
    session: String,
    /// How long it outlives the last request that names it.
    ttl_ms: u64,
    /// How long it lives at least, counted from the moment the client sent the request.
    valid_for_ms: u64,
    /// How long after this request the client should send the next heartbeat: a third of the session's TTL, or of the engine's if
    /// that is shorter, since no deadline goes beyond it.
    heartbeat_ms: u64,
    /// What it holds; of a heartbeat alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<Vec<Hold>>,
}

impl SessionReply {
    fn of(session: &Session, holds: Option<Vec<Hold>>) -> Self {
        Self {
            session: session.id.clone(),
            ttl_ms: milliseconds(session.ttl),
            valid_for_ms: milliseconds(session.valid_for()),
            heartbeat_ms: milliseconds(session.ttl.min(session.keeper.ttl()) / 3),
            holds,
        }
    }
}

const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// The holder that a client names. Where it names no machine, its address stands for it: two clients must not look like one
/// process to those who search for deadlocks.
pub(crate) fn holder(who: Option<Who>, peer: &Peer, otherwise: &str) -> Holder {
    let here = |text: String| Holder { text, host: peer.to_string(), pid: 0 };
    match who {
        Some(Who::Process(Process { who, host, pid })) => Holder { text: who, host, pid },
        Some(Who::Text(text)) => here(text),
        None => here(otherwise.to_owned()),
    }
}

/// Make a session for one client process.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = NewSession, security((), ("token" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key finds the same session",
        max_length = 128, pattern = "^[!-~]+$")),
    responses(
        (status = 201, description = "Made", body = SessionReply),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 408, description = "`too_slow`"),
        (status = 410, description = "`session_ended`"),
        (status = 413, description = "`too_large`"),
        (status = 415, description = "`not_json`"),
        (status = 422, description = "`key_reused` for a session of another TTL or holder"),
        (status = 429, description = "`too_many_sessions`"),
        (status = 503, description = "`ending`"),
    )
)]
pub(crate) async fn make(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    peer: Option<Extension<Peer>>,
    Key(key): Key,
    Body(new): Body<NewSession>,
) -> Result<(StatusCode, Json<SessionReply>), Problem> {
    let ttl = match &new.ttl {
        Some(ttl) => ttl.within("TTL", MIN_TTL, app.settings.limits.session_ttl)?,
        None => DEFAULT_TTL,
    };
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    let key = key.map(|key| (key, format!("{ttl:?} {:?}", new.holder)));
    let session = app.make_session(&caller, ttl, holder(new.holder, &peer, "http"), key, arrived)?;
    Ok((StatusCode::CREATED, Json(SessionReply::of(&session, None))))
}

/// Keep a session, and see all that it holds.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/heartbeat", tag = "sessions", security((), ("token" = [])),
    params(("session" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "Kept", body = SessionReply),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_session`"),
        (status = 410, description = "`session_ended`: everything it held is released"),
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    InPath(session): InPath<String>,
) -> Result<Json<SessionReply>, Problem> {
    let session = app.session(&caller, &session, arrived)?;
    let holds = session.fetched_holds().iter().map(|held| Hold::of(held, None)).collect();
    Ok(Json(SessionReply::of(&session, Some(holds))))
}

/// End a session: all that it holds is released, all that it waits for is given up.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}", tag = "sessions", security((), ("token" = [])),
    params(("session" = String, Path, description = "The session")),
    responses(
        (status = 204, description = "Ended, now or before; a release that the engine has not confirmed is tried further"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_session`"),
        (status = 410, description = "`session_ended`: it had fallen silent before"),
    )
)]
pub(crate) async fn end(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    InPath(session): InPath<String>,
) -> Result<StatusCode, Problem> {
    match app.session(&caller, &session, arrived) {
        Ok(session) => {
            session.end(End::Deleted);
            // The session's task does the same; this waits for it.
            app.release_all(&session).await;
            Ok(StatusCode::NO_CONTENT)
        }
        Err(problem) if problem.reason == Some(End::Deleted.word()) => Ok(StatusCode::NO_CONTENT),
        Err(problem) => Err(problem),
    }
}
