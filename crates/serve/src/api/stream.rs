//! `GET /v1/hold`: a lock that is held as long as the connection is open, for shells, probes and `curl -N`.

use crate::api::holds::Asked;
use crate::api::sessions::{Who, holder};
use crate::api::time::Time;
use crate::app::App;
use crate::error::Problem;
use crate::extract::{Arrived, Client};
use crate::hold::Held;
use crate::listen::Peer;
use crate::session::{CLOCK, End, Session};
use crate::tokens::Right;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use lockkeeper_core::Demand;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// How often a line says that the lock is still held. The session of a stream is heard as often, by the stream itself.
pub(crate) const LINE_EVERY: Duration = Duration::from_secs(5);

/// A stream's session ends with its connection, which also ends a wait; so its own time is just longer than any wait.
const SESSION_TTL: Duration = Duration::from_secs(60);

/// Ends the session, and so the hold, when the connection is closed.
struct Ending(App, Arc<Session>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.1.end(End::Deleted);
    }
}

#[derive(Default)]
struct Parameters {
    names: Vec<String>,
    mode: Option<String>,
    wait: Option<Time>,
    lease: Option<Time>,
    holder: Option<String>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut found = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = decode(value)?;
            match name {
                "name" => found.names.push(value),
                "mode" => found.mode = Some(value),
                "wait" => found.wait = Some(Time::Text(value)),
                "lease" => found.lease = Some(Time::Text(value)),
                "holder" => found.holder = Some(value),
                other => {
                    return Err(Problem::invalid(format!(
                        "unknown parameter {other:?}: use name, mode, wait, lease, holder"
                    )));
                }
            }
        }
        Ok(found)
    }
}

/// Text of a query: `+` is a space, and `%` begins a byte.
fn decode(text: &str) -> Result<String, Problem> {
    let bad = || Problem::invalid(format!("bad text {text:?} in the parameters: escape it as UTF-8"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(bad);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// Hold while the connection is open (`curl -N`): the token on the first line, then a line every 5 seconds.
#[utoipa::path(
    get, path = "/v1/hold", tag = "holds", security((), ("token" = [])),
    params(
        ("name" = Vec<String>, Query, description = "The lock; several for several as one", example = json!(["demo"])),
        ("mode" = Option<String>, Query, description = "`exclusive`, `shared` or `1/4`"),
        ("wait" = Option<String>, Query, description = "How long to wait", example = "1s"),
        ("lease" = Option<String>, Query, description = "The hold ends after this time by itself", example = "1s"),
        ("holder" = Option<String>, Query, description = "Who it is, as shown to operators"),
    ),
    responses(
        (status = 200, description = "Held; the body goes on as long as it is", body = String, content_type = "text/plain; charset=utf-8"),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 409, description = "`busy`, `mismatch`"),
        (status = 410, description = "`lost`"),
        (status = 422, description = "`unsupported` by the engine"),
        (status = 429, description = "`too_many_sessions`, `too_many_holds`, `too_many_waiters`"),
        (status = 502, description = "`engine_failed`"),
        (status = 503, description = "`engine_unavailable`, `ending`"),
    )
)]
pub(crate) async fn hold(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let parameters = Parameters::parse(&query.unwrap_or_default())?;
    let demand = match &parameters.mode {
        Some(mode) => mode.parse::<Demand>().map_err(Problem::invalid)?,
        None => Demand::Exclusive,
    };
    let asked = Asked::check(
        &app,
        &caller,
        parameters.names,
        demand,
        parameters.wait.as_ref(),
        parameters.lease.as_ref(),
    )?;
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("http");
    let agent: String = agent.chars().take(64).collect();
    let holder = holder(parameters.holder.map(Who::Text), &peer, &agent);
    let session = app.make_session(&caller, app.settings.limits.wait + SESSION_TTL, holder, None, arrived)?;
    let ending = Ending(app.clone(), Arc::clone(&session));
    let held = asked.acquire(&app, &session, None).await?;
    let first = first_lines(&held);
    let lines =
        stream::unfold((Some(first), held, ending, headers), |(first, held, ending, headers)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (None, held, ending, headers)));
            }
            if held.is_over() || held.session.has_ended().is_some() {
                return None;
            }
            let line = tokio::select! {
                problem = held.lost() => {
                    ending.1.end(End::Deleted);
                    format!("lost: {}\n", problem.reason.unwrap_or(problem.code))
                }
                // Nobody was given a deadline here, so there is none to wait for: the line tells.
                () = ending.0.when_releasing() => {
                    ending.1.end(End::ServerEnded);
                    format!("lost: {}\n", End::ServerEnded.word())
                }
                () = tokio::time::sleep(LINE_EVERY) => match may_hold(&ending.0, &headers, &held) {
                    Ok(()) => {
                        let _ = ending.1.hear(CLOCK.now());
                        "held\n".to_owned()
                    }
                    Err(problem) => {
                        ending.1.end(End::Deleted);
                        format!("lost: {}\n", problem.code)
                    }
                }
            };
            Some((Ok(Bytes::from(line)), (None, held, ending, headers)))
        });
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Whether the token is still known and may hold these locks.
fn may_hold(app: &App, headers: &HeaderMap, held: &Held) -> Result<(), Problem> {
    let caller = app.caller(headers)?;
    held.tokens.iter().try_for_each(|token| caller.may_on(Right::Hold, &token.name))
}

fn first_lines(held: &Held) -> Bytes {
    match held.tokens.as_slice() {
        [one] => format!("{}\n", one.token).into(),
        several => {
            several.iter().map(|one| format!("{} {}\n", one.name, one.token)).collect::<String>().into()
        }
    }
}
