//! Server-sent events: of one hold, and of all locks.

use crate::app::App;
use crate::error::Problem;
use crate::extract::{Arrived, Client, InPath, InQuery, Viewer};
use crate::hold::{Held, Trust};
use crate::quota::{Counted, Kind};
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use utoipa::{IntoParams, ToSchema};

/// How often a hold is looked at for what has no signal: that the engine does not reply.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A change of a hold.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Change {
    /// The hold.
    hold: String,
    /// `held`, `uncertain`, `lost` or `released`.
    state: &'static str,
    /// Why it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

fn event(name: &str, data: &impl Serialize) -> Result<Event, Infallible> {
    Ok(Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default()))
}

impl Change {
    fn of(held: &Held) -> Self {
        let (state, reason) = match held.trust().0 {
            Trust::Held => ("held", None),
            Trust::Uncertain => ("uncertain", None),
            Trust::Lost => match held.problem() {
                problem if problem.code == "released" => ("released", None),
                problem => ("lost", Some(problem.reason.unwrap_or("lost"))),
            },
        };
        Self { hold: held.id.clone(), state, reason }
    }

    fn is_last(&self) -> bool {
        matches!(self.state, "lost" | "released")
    }
}

struct Watching {
    held: Arc<Held>,
    before: Option<&'static str>,
    _counted: Counted,
}

/// What becomes of a hold: `held`, `uncertain`, `lost`, `released`.
#[utoipa::path(
    get, path = "/v1/holds/{hold}/events", tag = "holds", security((), ("token" = [])),
    params(("hold" = String, Path, description = "The hold")),
    responses(
        (status = 200, description = "Events until it is lost or released", body = String, content_type = "text/event-stream"),
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
    InPath(hold): InPath<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let held = app.hold(&caller, &hold, arrived)?;
    let watching = Watching { held, before: None, _counted: app.count(Kind::Stream, &caller.name)? };
    let changes = stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        let change = loop {
            let change = Change::of(&watching.held);
            if watching.before != Some(change.state) {
                break change;
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
    Ok(Sse::new(changes).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))))
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
    InQuery(which): InQuery<Which>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let counted = app.count(Kind::Stream, &caller.name)?;
    let state = (app.watcher.subscribe(), caller, which.prefix, counted, true);
    let events = stream::unfold(state, |(mut events, caller, prefix, counted, first)| async move {
        if first {
            // The reply begins at once, so that its reader knows that it is connected.
            let hello = Ok(Event::default().comment("connected"));
            return Some((hello, (events, caller, prefix, counted, false)));
        }
        loop {
            match events.recv().await {
                Ok(happened) if happened.lock.starts_with(&prefix) && caller.sees(&happened.lock) => {
                    let event = event(happened.event, &happened);
                    return Some((event, (events, caller, prefix, counted, false)));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    let event = Ok(Event::default().event("missed").data(missed.to_string()));
                    return Some((event, (events, caller, prefix, counted, false)));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))))
}
