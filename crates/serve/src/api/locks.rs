//! Locks: who holds and who waits, and evict.

use crate::app::App;
use crate::error::Problem;
use crate::extract::{InPath, InQuery, Viewer};
use crate::tokens::{Caller, Right};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_core::{ClaimView, Keeper, LockView, Standing, deadlocks};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// How many locks are listed at most.
const MOST: usize = 10_000;

/// One lock in use.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Lock {
    /// Its name.
    pub(crate) name: String,
    /// With the namespace.
    pub(crate) full_name: String,
    /// Its claims in the order of the queue; the holders come first.
    pub(crate) claims: Vec<Claim>,
    /// The circles of processes that wait for each other in which somebody waits for this lock, in the last half second; of a
    /// single lock alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadlocks: Option<Vec<Vec<Wait>>>,
    /// The last claims of this lock, of this server's clients and of others while somebody watched, the newest first; of a single
    /// lock alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<Vec<crate::watcher::Past>>,
}

/// One claim as the engine has it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Claim {
    /// Its id, or another client's name for its claim.
    pub(crate) id: String,
    /// `holds` or `waits`.
    #[schema(example = "holds")]
    pub(crate) standing: String,
    /// `exclusive`, `shared` or `2/4`.
    pub(crate) demand: String,
    /// Who stands behind it.
    pub(crate) who: String,
    /// The machine.
    pub(crate) host: String,
    /// The process.
    pub(crate) pid: u32,
    /// The fencing token, of a claim that holds.
    pub(crate) token: Option<u64>,
    /// How long ago it joined the queue.
    pub(crate) age_seconds: Option<f64>,
    /// How long ago it was granted, as far as the engine or this server knows.
    pub(crate) held_seconds: Option<f64>,
    /// How long it lives without another renewal.
    pub(crate) ttl_left_seconds: Option<f64>,
    /// This server holds it for a client, and the engine has not confirmed it lately.
    pub(crate) uncertain: bool,
    /// Made by another client than lockkeeper.
    pub(crate) foreign: bool,
    /// The claims of which one must leave before anything changes for this one.
    pub(crate) waits_for: Vec<String>,
}

/// One process of a circle.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Wait {
    /// The claim that waits.
    pub(crate) claim: String,
    /// Whose it is.
    pub(crate) who: String,
    /// The lock it waits for.
    pub(crate) waits_for_lock: String,
    /// A claim ahead of it.
    pub(crate) behind_claim: String,
    /// Whose that is.
    pub(crate) behind: String,
}

/// Locks in use.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Locks {
    /// Sorted by name.
    pub(crate) locks: Vec<Lock>,
    /// Whether there are more than `limit`: these are the first of them.
    pub(crate) more: bool,
    /// The circles of processes that wait for each other.
    pub(crate) deadlocks: Vec<Vec<Wait>>,
}

/// The circles of processes that wait for each other.
pub(crate) fn circles(locks: &[LockView]) -> Vec<Vec<Wait>> {
    let circle = |circle: Vec<lockkeeper_core::Waits<'_>>| {
        let waits = circle.into_iter().map(|wait| Wait {
            claim: wait.claim.id.clone(),
            who: wait.claim.holder.to_string(),
            waits_for_lock: wait.lock.to_owned(),
            behind_claim: wait.behind.id.clone(),
            behind: wait.behind.holder.to_string(),
        });
        waits.collect()
    };
    deadlocks(locks).into_iter().map(circle).collect()
}

impl Lock {
    fn of(app: &App, lock: &LockView, uncertain: &HashSet<String>) -> Self {
        let claims = lock.claims.iter().enumerate().map(|(index, claim)| {
            let ahead = lock.waits_for(index).into_iter().map(|ahead| lock.claims[ahead].id.clone());
            let held_for = claim.held_for.or_else(|| app.watcher.held_for(&claim.id));
            Claim::of(claim, ahead.collect(), held_for, uncertain.contains(&claim.id))
        });
        Self {
            name: lock.name.clone(),
            full_name: full_name(&app.keeper, &lock.name),
            claims: claims.collect(),
            deadlocks: None,
            history: None,
        }
    }
}

impl Claim {
    fn of(claim: &ClaimView, waits_for: Vec<String>, held_for: Option<Duration>, uncertain: bool) -> Self {
        Self {
            id: claim.id.clone(),
            standing: claim.standing.to_string(),
            demand: claim.demand.to_string(),
            who: claim.holder.text.clone(),
            host: claim.holder.host.clone(),
            pid: claim.holder.pid,
            token: claim.token.map(|token| token.0),
            age_seconds: claim.age.map(|age| age.as_secs_f64()),
            held_seconds: held_for
                .filter(|_| claim.standing == Standing::Holds)
                .map(|held_for| held_for.as_secs_f64()),
            ttl_left_seconds: claim.ttl_left.map(|left| left.as_secs_f64()),
            uncertain,
            foreign: claim.foreign,
            waits_for,
        }
    }
}

fn full_name(keeper: &Keeper, name: &str) -> String {
    match keeper.namespace() {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// Which locks.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// Begins their names.
    #[serde(default)]
    prefix: String,
    /// How many at most; default 1000.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Whether a list of the last half second does. It is shared by all who say so, and costs the engine no more for many of them
    /// than for one.
    #[serde(default)]
    recent: bool,
}

/// The locks in use that a caller may see, with names that begin so, sorted, and whether there are more.
async fn seen(
    app: &App,
    caller: &Caller,
    prefix: &str,
    limit: usize,
    recent: bool,
) -> Result<(Vec<LockView>, bool), Problem> {
    let mut locks = Vec::new();
    for prefix in caller.seen_within(prefix) {
        locks.extend(if recent {
            app.listings.recent(&prefix, limit + 1).await?
        } else {
            app.keeper.inspect_at_most(&prefix, limit + 1).await?
        });
    }
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    locks.dedup_by(|one, other| one.name == other.name);
    let more = locks.len() > limit;
    locks.truncate(limit);
    Ok((locks, more))
}

/// The locks in use, with holders and waiters in order.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", security((), ("token" = [])), params(Which),
    responses(
        (status = 200, description = "Those that the token may see", body = Locks),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 502, description = "`engine_failed`"),
        (status = 503, description = "`engine_unavailable`"),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    Viewer(caller): Viewer,
    InQuery(which): InQuery<Which>,
) -> Result<Json<Locks>, Problem> {
    let limit = which.limit.unwrap_or(1000);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::invalid(format!("a limit of {limit} is not possible: give 1 to {MOST}")));
    }
    let (locks, more) = seen(&app, &caller, &which.prefix, limit, which.recent).await?;
    let uncertain = app.uncertain_claims();
    Ok(Json(Locks {
        deadlocks: circles(&locks),
        more,
        locks: locks.iter().map(|lock| Lock::of(&app, lock, &uncertain)).collect(),
    }))
}

/// One lock, with holders and waiters in order; without claims if it is free.
#[utoipa::path(
    get, path = "/v1/locks/{name}", tag = "locks", security((), ("token" = [])),
    params(("name" = String, Path, description = "The lock; slashes may stand as they are", example = "orders/42")),
    responses(
        (status = 200, description = "The lock", body = Lock),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`not_found`: no name is given"),
        (status = 502, description = "`engine_failed`"),
        (status = 503, description = "`engine_unavailable`"),
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    Viewer(caller): Viewer,
    InPath(name): InPath<String>,
) -> Result<Json<Lock>, Problem> {
    caller.may_on(Right::Look, &name)?;
    let lock = app.keeper.look(&name).await?.unwrap_or_else(|| LockView::new(name.clone(), Vec::new()));
    // They take a look at all locks, so a recent one does; and nobody is stuck where nobody waits.
    let all = match lock.waiters().next() {
        Some(_) => seen(&app, &caller, "", MOST, true).await?.0,
        None => Vec::new(),
    };
    let mut deadlocks = circles(&all);
    deadlocks.retain(|circle| circle.iter().any(|wait| wait.waits_for_lock == name));
    Ok(Json(Lock {
        deadlocks: Some(deadlocks),
        history: Some(app.watcher.history(&name)),
        ..Lock::of(&app, &lock, &app.uncertain_claims())
    }))
}

/// Remove somebody's claim by force.
///
/// Who held it learns of it at the next renewal only: for claims whose owner is known to be dead or harmless.
#[utoipa::path(
    delete, path = "/v1/locks/{name}/claims/{id}", tag = "locks", security((), ("token" = [])),
    params(
        ("name" = String, Path, description = "The lock; slashes may stand as they are", example = "orders/42"),
        ("id" = String, Path, description = "The claim, as the list of locks shows it", example = "0123456789abcdef0123456789abcdef"),
    ),
    responses(
        (status = 204, description = "Evicted"),
        (status = 400, description = "`invalid`"),
        (status = 401, description = "`no_token`, `bad_token`"),
        (status = 403, description = "`forbidden`, `bad_host`, `bad_origin`"),
        (status = 404, description = "`unknown_claim`: it was not there"),
        (status = 502, description = "`engine_failed`"),
        (status = 503, description = "`engine_unavailable`"),
    )
)]
pub(crate) async fn evict(
    State(app): State<App>,
    caller: Caller,
    InPath(path): InPath<String>,
) -> Result<StatusCode, Problem> {
    caller.may(Right::Evict)?;
    let Some((name, claim)) = path.rsplit_once("/claims/") else {
        return Err(Problem::invalid("no claim is named: use DELETE /v1/locks/NAME/claims/ID"));
    };
    caller.may_on(Right::Evict, name)?;
    if !app.keeper.evict(name, claim).await? {
        let detail = "there is no such claim of this lock: it has left, or it is another lock's";
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_claim", detail));
    }
    tracing::info!(lock = name, claim, token = %caller.name, "evicted a claim");
    Ok(StatusCode::NO_CONTENT)
}
