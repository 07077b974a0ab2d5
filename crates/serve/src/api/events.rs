//! Server-sent events: of one hold, and of all locks.

use crate::api::time::milliseconds;
use crate::app::App;
use crate::error::Problem;
use crate::extract::{Arrived, Client, InPath, InQuery, Viewer};
use crate::hold::{Held, Trust};
use crate::quota::{Counted, Kind};
use crate::session::CLOCK;
use crate::tokens::Right;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use futures_util::stream::{self, Stream, StreamExt as _};
use lockkeeper_core::engine::Moment;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use utoipa::{IntoParams, ToSchema};

/// How often a hold is looked at for what has no signal: that the engine does not reply.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a stream without events has a line, and the token is looked up again.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A change of a hold.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Change {
    /// The hold.
    hold: String,
    /// `held`, `uncertain`, `lost` or `released`.
    #[schema(example = "held")]
    state: &'static str,
    /// How long it may be trusted, counted from the moment the client sent the request plus 99 % of `waited_ms`.
    valid_for_ms: u64,
    /// How long after the arrival of the request this was written.
    waited_ms: u64,
    /// Why it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

fn event(name: &str, data: &impl Serialize) -> Result<Event, Infallible> {
    Ok(Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default()))
}

impl Change {
    /// The hold as it is now. What was waited is read before the deadline: time between the two makes the client's come early.
    fn of(held: &Held, arrived: Moment) -> Self {
        let waited = CLOCK.now().since(arrived);
        let (trust, valid_for) = held.trust();
        let (state, reason) = match trust {
            Trust::Held => ("held", None),
            Trust::Uncertain => ("uncertain", None),
            Trust::Lost => match held.problem() {
                problem if problem.code == "released" => ("released", None),
                problem => ("lost", Some(problem.reason.unwrap_or("lost"))),
            },
        };
        Self {
            hold: held.id.clone(),
            state,
            valid_for_ms: milliseconds(valid_for),
            waited_ms: milliseconds(waited),
            reason,
        }
    }

    fn is_last(&self) -> bool {
        matches!(self.state, "lost" | "released")
    }
}

struct Watching {
    held: Arc<Held>,
    arrived: Moment,
    before: Option<&'static str>,
    checked: Moment,
    app: App,
    headers: HeaderMap,
    _counted: Counted,
}

/// A line that readers skip: the connection is there.
fn comment(text: &str) -> Result<Event, Infallible> {
    Ok(Event::default().comment(text))
}

/// What becomes of a hold: `held`, `uncertain`, `lost`, `released`.
#[utoipa::path(
    get, path = "/v1/holds/{hold}/events", tag = "holds", security((), ("token" = [])),
    params(("hold" = String, Path, description = "The hold")),
    responses(
        (
            status = 200, description = "Events until it is lost or released; the data of each is a `Change`", body = String,
            content_type = "text/event-stream"
        ),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_hold`"),
        (status = 410, description = "`session_ended`"),
        (status = 429, description = "`too_many_streams`"),
    )
)]
pub(crate) async fn of_hold(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    headers: HeaderMap,
    InPath(hold): InPath<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let held = app.hold(&caller, &hold, arrived)?;
    let _counted = app.count(Kind::Stream, &caller.name)?;
    let watching = Watching { held, arrived, before: None, checked: CLOCK.now(), app, headers, _counted };
    let changes = stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        let change = loop {
            let change = Change::of(&watching.held, watching.arrived);
            if watching.before != Some(change.state) {
                break change;
            }
            if CLOCK.now().since(watching.checked) >= LINE_EVERY {
                watching.app.caller(&watching.headers).and_then(|caller| caller.may(Right::Hold)).ok()?;
                watching.checked = CLOCK.now();
                return Some((comment(""), Some(watching)));
            }
            tokio::select! {
                _ = watching.held.lost() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        };
        watching.before = Some(change.state);
        let next = (!change.is_last()).then_some(watching);
        Some((event(change.state, &change), next))
    });
    Ok(Sse::new(changes))
}

/// Which locks.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// Begins their names.
    #[serde(default)]
    prefix: String,
}

/// Every claim that joins, holds, leaves or is lost, as this server sees it in the engine.
#[utoipa::path(
    get, path = "/v1/events", tag = "locks", security((), ("token" = [])), params(Which),
    responses(
        (status = 200, description = "Events as long as the connection is open", body = String, content_type = "text/event-stream"),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 429, description = "`too_many_streams`"),
    )
)]
pub(crate) async fn of_locks(
    State(app): State<App>,
    Viewer(caller): Viewer,
    headers: HeaderMap,
    InQuery(which): InQuery<Which>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let counted = app.count(Kind::Stream, &caller.name)?;
    let state = (app.watcher.subscribe(), CLOCK.now(), counted);
    let following = stream::unfold(state, move |(mut events, checked, counted)| {
        let (app, headers, prefix) = (app.clone(), headers.clone(), which.prefix.clone());
        async move {
            let line_at = checked.plus(LINE_EVERY);
            loop {
                let happened = tokio::select! {
                    happened = events.recv() => happened,
                    () = CLOCK.sleep_until(line_at) => {
                        app.caller(&headers).and_then(|caller| caller.may(Right::Look)).ok()?;
                        return Some((comment(""), (events, CLOCK.now(), counted)));
                    }
                };
                let line = match happened {
                    Ok(happened) => {
                        if !happened.lock.starts_with(&prefix) {
                            continue;
                        }
                        let caller = app.caller(&headers).ok()?;
                        caller.may(Right::Look).ok()?;
                        if !caller.sees(&happened.lock) {
                            continue;
                        }
                        event(happened.event, &happened)
                    }
                    Err(RecvError::Lagged(missed)) => {
                        Ok(Event::default().event("missed").data(missed.to_string()))
                    }
                    Err(RecvError::Closed) => return None,
                };
                return Some((line, (events, checked, counted)));
            }
        }
    });
    // The reply begins at once, so that its reader knows that it is connected.
    Ok(Sse::new(stream::iter([comment("connected")]).chain(following)))
}
