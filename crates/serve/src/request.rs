//! A request for a hold that a client may send again: the same key finds the same wait and the same hold (Law 4).

use crate::error::Problem;
use crate::hold::Held;
use axum::http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a request came to.
pub(crate) type Outcome = Result<Arc<Held>, Problem>;

/// How long a wait goes on, and a hold stays that nobody was told of, after its connection was closed: time for a retry.
pub(crate) const RETRY_WITHIN: Duration = Duration::from_secs(5);

/// One request by its key.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What was asked for: the same key with something else is a mistake.
    pub(crate) asks: String,
    outcome: watch::Sender<Option<Outcome>>,
    /// How many connections wait for it at this moment.
    attached: watch::Sender<usize>,
    /// The client has taken it back: it waits no longer, and never comes to a hold.
    taken_back: watch::Sender<bool>,
}

/// A connection that waits for the request's outcome.
pub(crate) struct Attached<'a>(&'a Pending);

impl Pending {
    pub(crate) fn new(asks: String) -> Self {
        let ((outcome, _), (attached, _), (taken_back, _)) =
            (watch::channel(None), watch::channel(0), watch::channel(false));
        Self { asks, outcome, attached, taken_back }
    }

    pub(crate) fn attach(&self) -> Attached<'_> {
        self.attached.send_modify(|attached| *attached += 1);
        Attached(self)
    }

    pub(crate) fn settle(&self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }

    /// Resolves when no connection has waited for it for the time of a retry.
    pub(crate) async fn abandoned(&self, retry_within: Duration) {
        let mut attached = self.attached.subscribe();
        loop {
            let _ = attached.wait_for(|attached| *attached == 0).await.map(drop);
            if self.stays_alone(retry_within).await {
                return;
            }
        }
    }

    /// Takes it back. What it has come to already is returned.
    pub(crate) fn take_back(&self) -> Option<Outcome> {
        self.taken_back.send_replace(true);
        self.outcome.borrow().clone()
    }

    /// Refuses a request that was taken back.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if *self.taken_back.borrow() { Err(taken_back()) } else { Ok(()) }
    }

    /// Resolves when it is taken back.
    pub(crate) async fn when_taken_back(&self) -> Problem {
        let mut back = self.taken_back.subscribe();
        let _ = back.wait_for(|back| *back).await.map(drop);
        taken_back()
    }

    /// Whether no connection waits for it at this moment.
    pub(crate) fn is_alone(&self) -> bool {
        *self.attached.borrow() == 0
    }

    /// Whether no connection comes for it within this time.
    pub(crate) async fn stays_alone(&self, time: Duration) -> bool {
        let mut attached = self.attached.subscribe();
        tokio::time::timeout(time, attached.wait_for(|attached| *attached > 0)).await.map(drop).is_err()
    }

    /// Whether its hold is over.
    pub(crate) fn is_over(&self) -> bool {
        match &*self.outcome.borrow() {
            Some(Ok(held)) => held.is_over(),
            Some(Err(_)) => true,
            None => *self.taken_back.borrow(),
        }
    }
}

fn taken_back() -> Problem {
    Problem::new(
        StatusCode::GONE,
        "released",
        "the client has taken this request back: send a new one with a new key",
    )
}

impl Attached<'_> {
    pub(crate) async fn outcome(&self) -> Option<Outcome> {
        let mut outcome = self.0.outcome.subscribe();
        outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.0.attached.send_modify(|attached| *attached -= 1);
    }
}
