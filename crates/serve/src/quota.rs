//! Counts what clients have, in all and of each token, and refuses what is beyond the limits.

use crate::error::Problem;
use crate::settings::Limits;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Session,
    Hold,
    Waiter,
    Stream,
}

impl Kind {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Session => ("too_many_sessions", "sessions"),
            Self::Hold => ("too_many_holds", "holds"),
            Self::Waiter => ("too_many_waiters", "waiting requests"),
            Self::Stream => ("too_many_streams", "event streams"),
        }
    }

    fn limits(self, limits: &Limits) -> (usize, usize) {
        match self {
            Self::Session => (limits.sessions, limits.sessions_per_token),
            Self::Hold => (limits.holds, limits.holds_per_token),
            Self::Waiter => (limits.waiters, limits.waiters_per_token),
            Self::Stream => (limits.streams, limits.streams_per_token),
        }
    }
}

type Counts = [AtomicUsize; 4];

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    all: Arc<Counts>,
    by_token: Mutex<HashMap<Arc<str>, Arc<Counts>>>,
}

/// One that is counted, in all and for its token, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    _in_all: One,
    _of_token: One,
}

#[derive(Debug)]
struct One {
    kind: Kind,
    counts: Arc<Counts>,
}

impl One {
    fn new(kind: Kind, counts: &Arc<Counts>, limit: usize, whose: &str) -> Result<Self, Problem> {
        let before = counts[kind as usize].fetch_add(1, SeqCst);
        let one = Self { kind, counts: Arc::clone(counts) };
        if before < limit {
            return Ok(one);
        }
        let (code, what) = kind.words();
        let detail = format!(
            "{whose} has {limit} {what} already: end those that are not needed, or raise the server's limit"
        );
        Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, code, detail))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.counts[self.kind as usize].fetch_sub(1, SeqCst);
    }
}

impl Quota {
    /// One more of these for this token, unless it would be too many.
    pub(crate) fn take(&self, kind: Kind, token: &Arc<str>, limits: &Limits) -> Result<Counted, Problem> {
        let mine = {
            let mut by_token = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(by_token.entry(Arc::clone(token)).or_default())
        };
        let (in_all, of_token) = kind.limits(limits);
        let _in_all = One::new(kind, &self.all, in_all, "this server")?;
        let _of_token = One::new(kind, &mine, of_token, "this token")?;
        Ok(Counted { _in_all, _of_token })
    }

    /// How many there are.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.all[kind as usize].load(SeqCst)
    }
}
