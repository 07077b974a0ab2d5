//! Holds: ask for one, look at it, downgrade it, release it.

use crate::api::time::{Time, milliseconds};
use crate::app::App;
use crate::error::{Busy, Problem};
use crate::extract::{Arrived, Body, Client, InPath, Key, check_key};
use crate::hold::{Held, NamedToken, Trust};
use crate::quota::Kind;
use crate::request::{Outcome, Pending, by_key};
use crate::session::{CLOCK, Session};
use crate::tokens::{Caller, Right};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_core::{Demand, Guard, MIN_TTL, MultiLock, Wanted};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};
use utoipa::ToSchema;

/// What a client asks to hold.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHold {
    /// The session that is to hold.
    session: String,
    /// The locks, all or nothing; up to 64.
    #[schema(min_items = 1, max_items = 64, example = json!(["orders/42"]))]
    names: Vec<String>,
    /// How much of them; default `exclusive`.
    mode: Option<Mode>,
    /// How long to wait in all; default as long as the server allows, 0 to try.
    wait: Option<Time>,
    /// The hold ends after this time by itself.
    lease: Option<Time>,
}

/// How much of a lock.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a mode is \"exclusive\", \"shared\" or {\"permits\": 1, \"of\": 4}")]
pub(crate) enum Mode {
    /// `exclusive` or `shared`.
    Whole(Whole),
    /// Some of its permits.
    Some(Permits),
}

/// All of a lock, or a part that any number of others may share.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Whole {
    /// All of it.
    Exclusive,
    /// To read.
    Shared,
}

/// Some permits of a lock.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Permits {
    /// How many.
    #[schema(value_type = u64, minimum = 1, maximum = 4_294_967_295_u64)]
    permits: u32,
    /// How many there are in all; every user of the name must give the same number.
    #[schema(value_type = u64, minimum = 1, maximum = 4_294_967_295_u64)]
    of: u32,
}

impl Mode {
    fn demand(&self) -> Result<Demand, Problem> {
        Ok(match *self {
            Self::Whole(Whole::Exclusive) => Demand::Exclusive,
            Self::Whole(Whole::Shared) => Demand::Shared,
            Self::Some(Permits { permits: want, of }) if want >= 1 && want <= of => {
                Demand::Permits { want, of }
            }
            Self::Some(Permits { permits, of }) => {
                return Err(Problem::invalid(format!(
                    "cannot take {permits} of {of} permits: take 1 to {of}"
                )));
            }
        })
    }
}

/// A hold.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Hold {
    /// Its id.
    hold: String,
    /// The `Idempotency-Key` of the request that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The session that holds.
    session: String,
    /// Whether it may be trusted.
    state: Trust,
    /// `exclusive`, `shared` or `2/4`.
    mode: String,
    /// How long it may be trusted, counted from the moment the client sent the request (plus 99 % of `waited_ms`).
    valid_for_ms: u64,
    /// The fencing token of each lock, sorted by name.
    tokens: Vec<NamedToken>,
    /// How much is left of a fixed lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_left_ms: Option<u64>,
    /// Why it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// How long the server kept this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
}

impl Hold {
    /// The hold as it is now. What was waited is read before the deadline: time between the two makes the client's come early.
    pub(crate) fn of(held: &Held, waited: Option<Duration>) -> Self {
        let (state, valid_for) = held.trust();
        Self {
            hold: held.id.clone(),
            key: held.key.clone(),
            session: held.session.id.clone(),
            state,
            mode: held.mode(),
            valid_for_ms: milliseconds(valid_for),
            tokens: held.tokens.clone(),
            lease_left_ms: held.lease_left().map(milliseconds),
            reason: (state == Trust::Lost).then(|| held.problem().reason.unwrap_or("lost")),
            waited_ms: waited.map(milliseconds),
        }
    }

    /// The hold as it is now, unless it is lost.
    fn trusted(held: &Held, waited: Option<Duration>) -> Result<Self, Problem> {
        let hold = Self::of(held, waited);
        if hold.state == Trust::Lost { Err(held.problem()) } else { Ok(hold) }
    }
}

/// What is asked of the engine, checked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) names: Vec<String>,
    pub(crate) demand: Demand,
    /// `None` for as long as the server allows.
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
}

/// The longest lease: as long as the longest hold that an engine keeps by itself.
const LONGEST_LEASE: Duration = Duration::from_secs(30 * 24 * 3600);

impl Asked {
    pub(crate) fn check(
        app: &App,
        caller: &Caller,
        names: Vec<String>,
        demand: Demand,
        wait: Option<&Time>,
        lease: Option<&Time>,
    ) -> Result<Self, Problem> {
        let limits = &app.settings.limits;
        if names.is_empty() || names.len() > limits.names {
            return Err(Problem::invalid(format!(
                "{} names are given: give 1 to {}",
                names.len(),
                limits.names
            )));
        }
        for name in &names {
            lockkeeper_core::engine::LockName::new(name)?;
            caller.may_on(Right::Hold, name)?;
        }
        let wait = wait.map(|wait| wait.within("wait", Duration::ZERO, limits.wait)).transpose()?;
        let lease = lease.map(|lease| lease.within("lease", MIN_TTL, LONGEST_LEASE)).transpose()?;
        Ok(Self { names, demand, wait, lease })
    }

    /// Waits for the engine's grant, until the session or the server ends. A dropped future leaves the queue.
    async fn grant(&self, app: &App, session: &Session) -> Result<Guard, Problem> {
        let _waiting = app.count(Kind::Waiter, &session.token)?;
        let mut locks =
            MultiLock::new(self.names.iter().map(|name| Wanted::new(&session.keeper, name, self.demand)));
        if let Some(lease) = self.lease {
            locks = locks.lease(lease);
        }
        let granted = async {
            match self.wait {
                Some(Duration::ZERO) => locks.try_lock().await,
                Some(wait) => locks.lock_within(wait).await,
                // A wait without a limit of its own ends when the engine stays away.
                None => match tokio::time::timeout(app.settings.limits.wait, locks.lock()).await {
                    Ok(granted) => granted.map(Some),
                    Err(_) => Ok(None),
                },
            }
        };
        let granted = tokio::select! {
            biased;
            granted = granted => granted?,
            problem = app.when_ending() => return Err(problem),
            end = session.when_ended() => return Err(end.problem()),
        };
        match granted {
            Some(guard) => match app.check_not_ending() {
                Ok(()) => Ok(guard),
                // The hold before was released by the end itself.
                Err(problem) => {
                    let _ = guard.release().await;
                    Err(problem)
                }
            },
            None => Err(self.busy(app).await),
        }
    }

    /// The refusal at the end of a wait: who is in the way.
    async fn busy(&self, app: &App) -> Problem {
        app.figures.busy.fetch_add(1, Relaxed);
        let mut busy = Vec::new();
        for name in &self.names {
            if let Ok(Some(lock)) = app.keeper.look(name).await {
                let holders = lock.holders().map(|claim| claim.holder.to_string()).collect();
                busy.push(Busy { name: name.clone(), holders, place: lock.claims.len() + 1 });
            }
        }
        let detail = "somebody else holds it: wait longer, or try again later";
        let mut problem = Problem::new(StatusCode::CONFLICT, "busy", detail);
        problem.busy = Some(busy);
        problem
    }

    /// Waits for a hold and enters it.
    pub(crate) async fn acquire(&self, app: &App, session: &Arc<Session>, key: Option<String>) -> Outcome {
        let (joined, counted) = (SystemTime::now(), app.count(Kind::Hold, &session.token)?);
        let guard = self.grant(app, session).await?;
        let held = Arc::new(Held::new(key, session, self.demand, guard, counted, joined)?);
        app.add_hold(&held)?;
        Ok(held)
    }
}

/// Ask for a hold, and wait for it. Closing the connection gives the wait up.
#[utoipa::path(
    post, path = "/v1/holds", tag = "holds", request_body = NewHold, security((), ("token" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key finds the same wait and the same hold",
        max_length = 128, pattern = "^[!-~]+$")),
    responses(
        (status = 201, description = "Granted", body = Hold),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_session`"),
        (status = 408, description = "`too_slow`"),
        (status = 409, description = "`busy`: the wait ended without a grant; `mismatch`: the name is in use as another kind of lock"),
        (status = 410, description = "`session_ended`; of a key whose hold is over `released` or `lost`"),
        (status = 413, description = "`too_large`"),
        (status = 415, description = "`not_json`"),
        (status = 422, description = "`unsupported` by the engine; `key_reused` for something else"),
        (status = 429, description = "`too_many_holds`, `too_many_waiters`"),
        (status = 502, description = "`engine_failed`"),
        (status = 503, description = "`engine_unavailable`, `ending`"),
    )
)]
pub(crate) async fn acquire(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    Key(key): Key,
    Body(new): Body<NewHold>,
) -> Result<(StatusCode, Json<Hold>), Problem> {
    let demand = new.mode.as_ref().map_or(Ok(Demand::Exclusive), Mode::demand)?;
    let session = app.session(&caller, &new.session, arrived)?;
    let asked = Asked::check(&app, &caller, new.names, demand, new.wait.as_ref(), new.lease.as_ref())?;
    app.check_not_ending()?;
    let outcome = match key {
        None => asked.acquire(&app, &session, None).await,
        Some(key) => by_key(&app, &session, asked, key).await,
    };
    let waited = CLOCK.now().since(arrived);
    match outcome {
        Ok(held) => Ok((StatusCode::CREATED, Json(Hold::trusted(&held, Some(waited))?))),
        Err(mut problem) => {
            problem.waited_ms = (problem.code == "busy").then(|| milliseconds(waited));
            Err(problem)
        }
    }
}

/// Take a request back by its key: a wait ends, a hold is released, and a request that arrives later is refused.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}/requests/{key}", tag = "holds", security((), ("token" = [])),
    params(
        ("session" = String, Path, description = "The session"),
        ("key" = String, Path, description = "The Idempotency-Key of the request for a hold", max_length = 128, pattern = "^[!-.0-~]+$"),
    ),
    responses(
        (status = 204, description = "Its wait has ended, or its hold is released"),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_session`; `unknown_request`: it has not arrived, and is refused if it does"),
        (status = 410, description = "`released` or `lost` before, `session_ended`"),
        (status = 502, description = "`engine_failed`: the release is tried further"),
        (status = 503, description = "`engine_unavailable`: the release is tried further"),
    )
)]
pub(crate) async fn take_back(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    InPath((session, key)): InPath<(String, String)>,
) -> Result<StatusCode, Problem> {
    check_key(&key)?;
    let session = app.session(&caller, &session, arrived)?;
    let (pending, is_new) = session.request(&key, || Arc::new(Pending::new("")));
    pending.check()?;
    let outcome = pending.take_back();
    if is_new {
        let detail = "there is no request of this key: it has not arrived, and is refused if it does";
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_request", detail));
    }
    match outcome {
        Some(Ok(held)) => release_held(app, held).await,
        // It waits, or is just being granted: once it has an outcome, nothing is left of it.
        _ => {
            let _ = pending.attach().outcome().await;
            Ok(StatusCode::NO_CONTENT)
        }
    }
}

/// Look at a hold: whether it may be trusted, and how long.
#[utoipa::path(
    get, path = "/v1/holds/{hold}", tag = "holds", security((), ("token" = [])),
    params(("hold" = String, Path, description = "The hold")),
    responses(
        (status = 200, description = "It is held", body = Hold),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_hold`"),
        (status = 410, description = "`lost` with the reason, `released`, `session_ended`"),
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    InPath(hold): InPath<String>,
) -> Result<Json<Hold>, Problem> {
    let held = app.hold(&caller, &hold, arrived)?;
    Ok(Json(Hold::trusted(&held, None)?))
}

/// An exclusive hold becomes a shared one; no other writer comes between.
#[utoipa::path(
    post, path = "/v1/holds/{hold}/downgrade", tag = "holds", security((), ("token" = [])),
    params(("hold" = String, Path, description = "The hold")),
    responses(
        (status = 200, description = "It is shared now", body = Hold),
        (status = 400, description = "`invalid`: it is no write hold"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_hold`"),
        (status = 410, description = "`lost` with the reason, `released`, `session_ended`"),
        (status = 422, description = "`unsupported` by the engine"),
        (status = 502, description = "`engine_failed`"),
        (status = 503, description = "`engine_unavailable`"),
    )
)]
pub(crate) async fn downgrade(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    InPath(hold): InPath<String>,
) -> Result<Json<Hold>, Problem> {
    let held = app.hold(&caller, &hold, arrived)?;
    held.downgrade().await?;
    let waited = CLOCK.now().since(arrived);
    Ok(Json(Hold::trusted(&held, Some(waited))?))
}

/// Release a hold, and wait until the engine has confirmed it.
#[utoipa::path(
    delete, path = "/v1/holds/{hold}", tag = "holds", security((), ("token" = [])),
    params(("hold" = String, Path, description = "The hold")),
    responses(
        (status = 204, description = "Released, now or before"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_hold`"),
        (status = 410, description = "`lost` before, with the reason; `session_ended`"),
        (status = 502, description = "`engine_failed`: the release is tried further"),
        (status = 503, description = "`engine_unavailable`: the release is tried further"),
    )
)]
pub(crate) async fn release(
    State(app): State<App>,
    Client(caller): Client,
    Arrived(arrived): Arrived,
    InPath(hold): InPath<String>,
) -> Result<StatusCode, Problem> {
    let held = app.hold(&caller, &hold, arrived)?;
    if held.is_over() {
        held.release().await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    release_held(app, held).await
}

async fn release_held(app: App, held: Arc<Held>) -> Result<StatusCode, Problem> {
    if held.is_over() {
        return Err(held.problem());
    }
    // In a task of its own: a client that goes away meanwhile does not stop it half-way.
    let releasing = tokio::spawn(async move {
        let released = held.release().await;
        app.forget_hold(&held);
        released
    });
    match releasing.await {
        Ok(released) => released.map(|()| StatusCode::NO_CONTENT),
        Err(_) => Err(Problem::new(
            StatusCode::BAD_GATEWAY,
            "engine_failed",
            "the release failed: look at the server's log",
        )),
    }
}
