//! A request for a hold that a client may send again: the same key finds the same wait and the same hold (Law 4).

use crate::api::holds::Asked;
use crate::app::App;
use crate::error::Problem;
use crate::hold::Held;
use crate::session::{End, Session};
use axum::http::StatusCode;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a request came to.
pub(crate) type Outcome = Result<Arc<Held>, Problem>;

/// How long a wait goes on, and a hold stays that no connection has fetched, after its connection was closed: time for a retry.
const RETRY_WITHIN: Duration = Duration::from_secs(5);

/// One request by its key.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The hash of what was asked for: the same key with something else is a mistake.
    asks: [u8; 32],
    /// Law 5: one lock for all of it, so that a hold is either fetched or given back, and never both.
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    /// How many connections wait for it at this moment.
    attached: usize,
    /// How many connections have come for it so far. It tells of one that has come and gone.
    came: u64,
    /// A connection has the hold: from now on only its client and the end of the session release it.
    is_fetched: bool,
    /// The client has taken it back: it waits no longer, and never comes to a hold.
    is_taken_back: bool,
}

impl State {
    /// What is remembered for later copies is small: who was in the way is for the connections that wait.
    fn forget_details(&mut self) {
        if self.attached == 0
            && let Some(Err(Problem { busy: Some(busy), .. })) = &mut self.outcome
        {
            *busy = Vec::new();
        }
    }
}

/// A connection that waits for the request's outcome.
pub(crate) struct Attached<'a>(&'a Pending);

impl Pending {
    /// A request for what this text describes.
    pub(crate) fn new(asks: &str) -> Self {
        Self { asks: hash(asks), state: watch::channel(State::default()).0 }
    }

    pub(crate) fn attach(&self) -> Attached<'_> {
        self.state.send_modify(|state| {
            state.attached += 1;
            state.came += 1;
        });
        Attached(self)
    }

    /// It has come to nothing.
    fn refuse(&self, problem: Problem) {
        self.state.send_modify(|state| {
            state.outcome = Some(Err(problem));
            state.forget_details();
        });
    }

    /// It has come to this hold, unless it was taken back meanwhile.
    fn grant(&self, held: &Arc<Held>) -> bool {
        self.state.send_if_modified(|state| {
            if !state.is_taken_back {
                state.outcome = Some(Ok(Arc::clone(held)));
            }
            !state.is_taken_back
        })
    }

    /// Resolves when no connection has come for it for the time of a retry, and settles it with this refusal, which a retry that
    /// comes later finds. Or resolves when its hold is fetched; says which.
    async fn is_abandoned(&self, retry_within: Duration, problem: Problem) -> bool {
        let mut state = self.state.subscribe();
        loop {
            let alone = state.wait_for(|state| state.is_fetched || state.attached == 0).await;
            let Ok((is_fetched, came)) = alone.map(|state| (state.is_fetched, state.came)) else {
                return false;
            };
            if is_fetched {
                return false;
            }
            let retry = state.wait_for(|state| state.came != came);
            if tokio::time::timeout(retry_within, retry).await.map(drop).is_ok() {
                continue;
            }
            // A retry may have come since the time was over.
            let is_abandoned = self.state.send_if_modified(|state| {
                let is_abandoned = state.came == came && !state.is_fetched;
                if is_abandoned {
                    state.outcome = Some(Err(problem.clone()));
                }
                is_abandoned
            });
            if is_abandoned {
                return true;
            }
        }
    }

    /// What it has come to, for its client: a hold is fetched by that.
    fn fetch(&self) -> Option<Outcome> {
        let mut found = None;
        self.state.send_if_modified(|state| {
            found = state.outcome.clone();
            let is_first = matches!(found, Some(Ok(_))) && !state.is_fetched;
            state.is_fetched |= is_first;
            is_first
        });
        found
    }

    /// Takes it back. What it has come to already is returned.
    pub(crate) fn take_back(&self) -> Option<Outcome> {
        self.state.send_modify(|state| state.is_taken_back = true);
        self.fetch()
    }

    /// Refuses a request that was taken back.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.state.borrow().is_taken_back { Err(taken_back()) } else { Ok(()) }
    }

    /// Resolves when it is taken back.
    async fn when_taken_back(&self) -> Problem {
        let _ = self.state.subscribe().wait_for(|state| state.is_taken_back).await.map(drop);
        taken_back()
    }

    /// Whether its hold is over.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.borrow();
        match &state.outcome {
            Some(Ok(held)) => held.is_over(),
            Some(Err(_)) => true,
            None => state.is_taken_back,
        }
    }

    /// Whether a connection has its hold.
    pub(crate) fn is_fetched(&self) -> bool {
        self.state.borrow().is_fetched
    }
}

impl Attached<'_> {
    pub(crate) async fn outcome(&self) -> Option<Outcome> {
        let mut state = self.0.state.subscribe();
        let _ = state.wait_for(|state| state.outcome.is_some()).await.map(drop);
        self.0.fetch()
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| {
            state.attached -= 1;
            state.forget_details();
        });
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn taken_back() -> Problem {
    released("the client has taken this request back: send a new one with a new key")
}

fn given_back() -> Problem {
    released("the hold was given back, since nobody came back for it: send a new request with a new key")
}

fn released(detail: &str) -> Problem {
    Problem::new(StatusCode::GONE, "released", detail)
}

fn given_up() -> Problem {
    let detail = "the wait was given up, since its connection was closed: send a new request with a new key";
    Problem::new(StatusCode::CONFLICT, "busy", detail)
}

/// Joins the request of this key, or begins it in a task of its own, which outlives the connection for a while.
pub(crate) async fn by_key(app: &App, session: &Arc<Session>, asked: Asked, key: String) -> Outcome {
    let asks = format!("{asked:?}");
    let (pending, is_new) = session.request(&key, || Arc::new(Pending::new(&asks)));
    pending.check()?;
    if pending.asks != hash(&asks) {
        return Err(Problem::key_reused("hold"));
    }
    let attached = pending.attach();
    if is_new {
        tokio::spawn(run(app.clone(), Arc::clone(session), asked, key, Arc::clone(&pending)));
    }
    match attached.outcome().await {
        Some(outcome) => outcome,
        None => Err(session.has_ended().unwrap_or(End::Silent).problem()),
    }
}

/// One request by its key, from its first arrival to its outcome.
async fn run(app: App, session: Arc<Session>, asked: Asked, key: String, pending: Arc<Pending>) {
    let retry_within = RETRY_WITHIN.min(session.ttl);
    let outcome = tokio::select! {
        biased;
        problem = pending.when_taken_back() => return pending.refuse(problem),
        outcome = asked.acquire(&app, &session, Some(key.clone())) => outcome,
        _ = pending.is_abandoned(retry_within, given_up()) => return,
    };
    match outcome {
        Ok(held) if pending.grant(&held) => {
            if pending.is_abandoned(retry_within, given_back()).await {
                give_back(&app, &held).await;
            }
        }
        // Taken back while it was granted: the request that did so waits for this.
        Ok(held) => {
            give_back(&app, &held).await;
            pending.refuse(taken_back());
        }
        // What has come to something stays with its key: a copy that arrives later must not be granted, for nobody expects it.
        Err(problem) => {
            if matches!(problem.status, 429 | 502 | 503) {
                session.forget(&key, &pending);
            }
            pending.refuse(problem);
        }
    }
}

async fn give_back(app: &App, held: &Arc<Held>) {
    // The end of its session may have released it.
    if !held.is_over() {
        let _ = held.release().await;
        app.forget_hold(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::{app_and_session, held};
    use crate::error::Busy;
    use futures_util::poll;
    use std::pin::pin;
    use std::task::Poll;

    /// A request that was granted while its client was away.
    async fn granted() -> (Pending, Arc<Held>) {
        let (app, session) = app_and_session();
        let (pending, held) = (Pending::new("a"), held(&app, &session).await);
        assert!(pending.grant(&held));
        (pending, held)
    }

    fn code(outcome: Option<Outcome>) -> &'static str {
        outcome.unwrap().map_or_else(|problem| problem.code, |_| "granted")
    }

    /// The retry comes, fetches the hold and goes before the task that waits for it runs again, in time or just when its time is
    /// over.
    #[tokio::test]
    async fn a_hold_that_was_fetched_is_not_given_back() {
        let (pending, _held) = granted().await;
        tokio::time::pause();
        for time in [RETRY_WITHIN / 2, RETRY_WITHIN, 2 * RETRY_WITHIN] {
            pending.state.send_modify(|state| state.is_fetched = false);
            let mut abandoned = pin!(pending.is_abandoned(RETRY_WITHIN, given_back()));
            assert_eq!(poll!(abandoned.as_mut()), Poll::Pending);
            tokio::time::advance(time).await;
            assert_eq!(code(pending.attach().outcome().await), "granted");
            tokio::time::advance(3 * RETRY_WITHIN).await;
            assert_eq!(poll!(abandoned.as_mut()), Poll::Ready(false), "after {time:?}");
        }
    }

    #[tokio::test]
    async fn a_hold_that_was_given_back_is_not_fetched() {
        let (pending, _held) = granted().await;
        tokio::time::pause();
        assert!(pending.is_abandoned(RETRY_WITHIN, given_back()).await);
        assert_eq!(code(pending.attach().outcome().await), "released");
        assert!(!pending.is_fetched() && pending.is_over());
    }

    /// Its client is there, however long its task is kept from running.
    #[tokio::test]
    async fn a_request_with_a_connection_is_not_given_up() {
        let pending = Pending::new("a");
        tokio::time::pause();
        let mut abandoned = pin!(pending.is_abandoned(RETRY_WITHIN, given_up()));
        assert_eq!(poll!(abandoned.as_mut()), Poll::Pending);
        let attached = pending.attach();
        tokio::time::advance(2 * RETRY_WITHIN).await;
        assert_eq!(poll!(abandoned.as_mut()), Poll::Pending);
        drop(attached);
        assert!(abandoned.await);
        assert_eq!(code(pending.fetch()), "busy");
    }

    #[tokio::test]
    async fn who_was_in_the_way_is_not_remembered() {
        let refusal = || {
            let mut problem = given_up();
            problem.busy = Some(vec![Busy { name: "a".into(), holders: vec!["b".into()], place: 2 }]);
            problem
        };
        let told = |outcome: Option<Outcome>| outcome.unwrap().unwrap_err().busy.unwrap().len();
        let pending = Pending::new("a");
        let (one, two) = (pending.attach(), pending.attach());
        pending.refuse(refusal());
        assert_eq!(told(one.outcome().await), 1);
        drop(one);
        assert_eq!(told(two.outcome().await), 1);
        drop(two);
        assert_eq!(told(pending.attach().outcome().await), 0);
        let alone = Pending::new("a");
        alone.refuse(refusal());
        assert_eq!(told(alone.attach().outcome().await), 0);
    }
}
