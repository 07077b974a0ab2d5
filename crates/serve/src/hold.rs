//! A hold: one guard of the engine's that belongs to a session.

use crate::app::new_id;
use crate::error::{Problem, reason};
use crate::quota::Counted;
use crate::session::{End, Session};
use axum::http::StatusCode;
use lockkeeper_core::{Demand, Error, Guard, State};
use serde::Serialize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::RwLock;
use utoipa::ToSchema;

/// How a hold has ended.
#[derive(Debug, Clone)]
pub(crate) enum Ended {
    /// The client released it.
    Released,
    /// Its session ended.
    Session(End),
    /// It was lost before.
    Lost(Problem),
}

/// One hold.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: String,
    /// The key of the request that asked for it.
    pub(crate) key: Option<String>,
    pub(crate) session: Arc<Session>,
    demand: Mutex<Demand>,
    pub(crate) tokens: Vec<NamedToken>,
    /// When it was asked for, and when it was granted.
    pub(crate) times: (SystemTime, SystemTime),
    guard: RwLock<Option<Guard>>,
    ended: OnceLock<Ended>,
    /// Until it is released: its client may ask for it long after.
    counted: Mutex<Option<Counted>>,
}

/// A lock and the fencing token of its hold.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct NamedToken {
    /// The lock.
    #[schema(example = "orders/42")]
    pub(crate) name: String,
    /// Larger than that of every earlier hold of this lock.
    #[schema(example = 118)]
    pub(crate) token: u64,
    /// The claim's id, as the list of locks shows it.
    pub(crate) claim: String,
}

/// Whether a hold may be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Trust {
    /// The engine has confirmed it.
    Held,
    /// The engine does not reply; the hold is good until `valid_for_ms` is over.
    Uncertain,
    /// Somebody else may hold the lock.
    Lost,
}

impl Held {
    pub(crate) fn new(
        key: Option<String>,
        session: &Arc<Session>,
        demand: Demand,
        guard: Guard,
        counted: Counted,
        joined: SystemTime,
    ) -> Result<Self, Error> {
        let namespace = session.keeper.namespace();
        let strip = if namespace.is_empty() { 0 } else { namespace.len() + 1 };
        let claims = guard.claims();
        let tokens = guard.tokens()?.into_iter().zip(claims).map(|((name, token), claim)| NamedToken {
            name: name[strip..].to_owned(),
            token: token.0,
            claim,
        });
        Ok(Self {
            id: new_id("h"),
            key,
            session: Arc::clone(session),
            demand: Mutex::new(demand),
            tokens: tokens.collect(),
            times: (joined, SystemTime::now()),
            guard: RwLock::new(Some(guard)),
            ended: OnceLock::new(),
            counted: Mutex::new(Some(counted)),
        })
    }

    /// How much it holds: `exclusive`, `shared` or `2/4`.
    pub(crate) fn mode(&self) -> String {
        self.demand().to_string()
    }

    pub(crate) fn demand(&self) -> Demand {
        *self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the guard and the session say now, and how long both can be trusted from now on.
    pub(crate) fn trust(&self) -> (Trust, Duration) {
        let Ok(guard) = self.guard.try_read() else { return (Trust::Lost, Duration::ZERO) };
        let Some(guard) = guard.as_ref() else { return (Trust::Lost, Duration::ZERO) };
        let valid_for = guard.valid_for().min(self.session.valid_for());
        match guard.state() {
            _ if valid_for.is_zero() => (Trust::Lost, Duration::ZERO),
            State::Held => (Trust::Held, valid_for),
            State::Uncertain => (Trust::Uncertain, valid_for),
            State::Lost => (Trust::Lost, Duration::ZERO),
        }
    }

    /// Why it may not be trusted any more.
    pub(crate) fn problem(&self) -> Problem {
        match self.ended.get() {
            Some(Ended::Released) => {
                return Problem::new(
                    StatusCode::GONE,
                    "released",
                    "the hold was released: ask for a new one",
                );
            }
            Some(Ended::Session(end)) => return end.problem(),
            Some(Ended::Lost(problem)) => return problem.clone(),
            None => {}
        }
        if let Some(end) = self.session.has_ended() {
            return end.problem();
        }
        let error =
            self.guard.try_read().ok().and_then(|guard| guard.as_ref().and_then(|guard| guard.token().err()));
        match error {
            Some(error) => lost(error),
            None => Problem::new(
                StatusCode::GONE,
                "lost",
                "the session's time is nearly over: send a heartbeat sooner",
            )
            .because("silent"),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Whether it was lost before it was released.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.ended.get(), Some(Ended::Lost(_)))
    }

    pub(crate) fn lease_left(&self) -> Option<Duration> {
        self.guard.try_read().ok().and_then(|guard| guard.as_ref().and_then(Guard::lease_left))
    }

    /// Resolves with the reason when it is lost, while others use and release it.
    pub(crate) async fn lost(&self) -> Problem {
        let signal = self.guard.read().await.as_ref().map(Guard::lost_signal);
        match signal {
            Some(signal) => tokio::select! {
                error = signal => self.ended.get().map_or_else(|| lost(error), |_| self.problem()),
                end = self.session.when_ended() => end.problem(),
            },
            None => self.problem(),
        }
    }

    /// A writer becomes a reader.
    pub(crate) async fn downgrade(&self) -> Result<(), Problem> {
        match self.guard.read().await.as_ref() {
            Some(guard) => guard.downgrade().await?,
            None => return Err(self.problem()),
        }
        *self.demand.lock().unwrap_or_else(PoisonError::into_inner) = Demand::Shared;
        Ok(())
    }

    /// Releases it and waits until the engine has confirmed it. A second call finds what the first one came to.
    pub(crate) async fn release(&self) -> Result<(), Problem> {
        self.end(Ended::Released).await
    }

    /// Releases it since its session has ended.
    pub(crate) async fn end_with(&self, end: End) {
        let _ = self.end(Ended::Session(end)).await;
    }

    async fn end(&self, why: Ended) -> Result<(), Problem> {
        let mut guard = self.guard.write().await;
        if let Some(guard) = guard.take() {
            self.counted.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ended = match guard.release().await {
                Ok(()) => why,
                Err(error) if error.is_lost() => Ended::Lost(lost(error)),
                // It is tried further in the background.
                Err(error) => {
                    let _ = self.ended.set(why);
                    return Err(error.into());
                }
            };
            let _ = self.ended.set(ended);
        }
        match self.ended.get() {
            Some(Ended::Lost(problem)) => Err(problem.clone()),
            Some(Ended::Session(end)) => Err(end.problem()),
            _ => Ok(()),
        }
    }
}

/// The refusal for a hold that was lost.
fn lost(error: Error) -> Problem {
    let why = match &error {
        Error::Lost { reason: why, .. } => reason(*why),
        _ => "lost",
    };
    let detail = format!("{error}. Stop what the lock protects; somebody else may hold it");
    Problem::new(StatusCode::GONE, "lost", detail).because(why)
}
