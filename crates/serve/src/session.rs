//! A session: one client process, alive as long as it is heard, with all that it holds and waits for.

use crate::app::ending;
use crate::error::Problem;
use crate::hold::Held;
use crate::quota::Counted;
use crate::request::Pending;
use axum::http::StatusCode;
use lockkeeper_core::engine::{Clock, Moment};
use lockkeeper_core::{Holder, Keeper};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The clock that sessions are measured on.
pub(crate) const CLOCK: Clock = Clock::Boot;

/// How many ended requests a session remembers by their keys.
const KEYS: usize = 1024;

/// Why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The client ended it.
    Deleted,
    /// The client was not heard for the TTL.
    Silent,
    /// The server ends.
    ServerEnded,
}

impl End {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Silent => "silent",
            Self::ServerEnded => "server_ended",
        }
    }

    pub(crate) fn problem(self) -> Problem {
        let why = match self {
            Self::Deleted => "it was ended by its client",
            Self::Silent => "its client was not heard for its TTL",
            Self::ServerEnded => "the server ends",
        };
        let detail =
            format!("the session has ended, and all that it held is released: {why}. Make a new session");
        Problem::new(StatusCode::GONE, "session_ended", detail).because(self.word())
    }
}

/// One client process.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// The name of the token it was made with: nobody else may use it.
    pub(crate) token: Arc<str>,
    pub(crate) ttl: Duration,
    /// Makes claims in this client's name.
    pub(crate) keeper: Keeper,
    /// The client, as shown to operators.
    pub(crate) holder: Holder,
    state: Mutex<State>,
    /// How much `state` holds, for those who wait until it is nothing.
    count: watch::Sender<usize>,
    ended: watch::Sender<Option<End>>,
    /// Held while its holds are released, so that each request that ends it waits for all.
    pub(crate) releasing: tokio::sync::Mutex<()>,
    /// Until it ends: its client may ask for it long after.
    counted: Mutex<Option<Counted>>,
}

#[derive(Debug)]
struct State {
    heard: Moment,
    /// It ends then, whether or not its client is heard.
    ends_by: Moment,
    /// The server ends: it takes no further hold.
    closing: bool,
    holds: HashMap<String, Arc<Held>>,
    /// Requests with a key that wait, or whose hold is there, or was.
    requests: HashMap<String, Arc<Pending>>,
    /// The keys of `requests` in the order of their arrival.
    keys: VecDeque<String>,
}

impl State {
    fn ends_at(&self, ttl: Duration) -> Moment {
        self.heard.plus(ttl).min(self.ends_by)
    }
}

/// How much earlier than the server a client stops trusting its session: as lockkeeper does with engines, 1 % of the TTL and
/// at least 2 ms, for clocks of different rates.
fn margin(ttl: Duration) -> Duration {
    (ttl / 100).max(Duration::from_millis(2))
}

impl Session {
    pub(crate) fn new(
        id: String,
        token: Arc<str>,
        ttl: Duration,
        keeper: Keeper,
        holder: Holder,
        heard: Moment,
        counted: Counted,
    ) -> Self {
        let state = State {
            heard,
            ends_by: Moment::NEVER,
            closing: false,
            holds: HashMap::new(),
            requests: HashMap::new(),
            keys: VecDeque::new(),
        };
        let (ended, _) = watch::channel(None);
        Self {
            id,
            token,
            ttl,
            keeper,
            holder,
            state: Mutex::new(state),
            count: watch::channel(0).0,
            ended,
            releasing: Default::default(),
            counted: Mutex::new(Some(counted)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its client was heard at this moment. A session whose time is over stays over (Law 2).
    pub(crate) fn hear(&self, moment: Moment) -> Result<(), End> {
        let mut state = self.state();
        if let Some(end) = *self.ended.borrow() {
            return Err(end);
        }
        if CLOCK.now() >= state.ends_at(self.ttl) {
            drop(state);
            self.end(End::Silent);
            return Err(self.has_ended().unwrap_or(End::Silent));
        }
        state.heard = state.heard.max(moment);
        Ok(())
    }

    /// When it ends if its client is not heard again.
    fn ends_at(&self) -> Moment {
        self.state().ends_at(self.ttl)
    }

    /// The server ends: what it holds after this call is all that it will ever hold.
    pub(crate) fn close(&self) {
        self.state().closing = true;
    }

    /// Ends it within the engine's TTL; returns when.
    ///
    /// Law 5: until now no guard has given a deadline beyond the engine's TTL, and from now on no reply gives one beyond that
    /// moment. Both at once: hence the mutex, and no further hold.
    pub(crate) fn end_within(&self, engine_ttl: Duration) -> Moment {
        let mut state = self.state();
        state.closing = true;
        state.ends_by = state.ends_by.min(CLOCK.now().plus(engine_ttl));
        state.ends_by
    }

    /// How long its client may trust it from this moment on.
    pub(crate) fn valid_for(&self) -> Duration {
        match self.has_ended() {
            Some(_) => Duration::ZERO,
            None => self.ends_at().minus(margin(self.ttl)).since(CLOCK.now()),
        }
    }

    pub(crate) fn has_ended(&self) -> Option<End> {
        *self.ended.borrow()
    }

    /// Resolves when it has ended.
    pub(crate) async fn when_ended(&self) -> End {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.unwrap_or(End::Silent),
            Err(_) => End::Silent,
        }
    }

    /// Ends it; the first reason stays. Says whether this call was the first.
    pub(crate) fn end(&self, end: End) -> bool {
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(end);
            first
        });
        if first {
            self.counted.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        first
    }

    /// Resolves when its client was not heard for the TTL, or it has ended otherwise.
    pub(crate) async fn when_silent_or_ended(&self) {
        loop {
            let ends_at = self.ends_at();
            tokio::select! {
                _ = self.when_ended() => return,
                () = CLOCK.sleep_until(ends_at) => {}
            }
            let state = self.state();
            if CLOCK.now() >= state.ends_at(self.ttl) {
                self.end(End::Silent);
                return;
            }
        }
    }

    /// It holds one more, unless it has ended meanwhile, or the server ends.
    pub(crate) fn add(&self, held: &Arc<Held>) -> Result<(), Problem> {
        let mut state = self.state();
        if let Some(end) = *self.ended.borrow() {
            return Err(end.problem());
        }
        if state.closing {
            return Err(ending());
        }
        state.holds.insert(held.id.clone(), Arc::clone(held));
        self.count.send_replace(state.holds.len());
        Ok(())
    }

    pub(crate) fn remove(&self, hold: &str) {
        let mut state = self.state();
        state.holds.remove(hold);
        self.count.send_replace(state.holds.len());
    }

    /// Resolves when it holds nothing.
    pub(crate) async fn when_empty(&self) {
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await.map(drop);
    }

    /// What it holds, for its client to trust. Law 5: what was granted while the client was away may be given back until a
    /// connection has fetched it, so no reply tells of it before.
    pub(crate) fn fetched_holds(&self) -> Vec<Arc<Held>> {
        let state = self.state();
        let request_of = |held: &Held| held.key.as_ref().and_then(|key| state.requests.get(key));
        let is_fetched = |held: &Held| request_of(held).is_none_or(|request| request.is_fetched());
        state.holds.values().filter(|held| is_fetched(held)).cloned().collect()
    }

    /// Takes out all that it holds, to be released.
    pub(crate) fn take_holds(&self) -> Vec<Arc<Held>> {
        let mut state = self.state();
        state.requests.clear();
        state.keys.clear();
        self.count.send_replace(0);
        std::mem::take(&mut state.holds).into_values().collect()
    }

    /// The request of this key: the one that is known, or the one that `new` makes.
    pub(crate) fn request(&self, key: &str, new: impl FnOnce() -> Arc<Pending>) -> (Arc<Pending>, bool) {
        let mut state = self.state();
        if let Some(known) = state.requests.get(key) {
            return (Arc::clone(known), false);
        }
        let pending = new();
        state.requests.insert(key.to_owned(), Arc::clone(&pending));
        state.keys.push_back(key.to_owned());
        // The oldest that are over are forgotten; one that waits or holds is not.
        let mut over = state.keys.len().saturating_sub(KEYS);
        let mut at = 0;
        while over > 0 && at < state.keys.len() {
            let forget = state.requests.get(&state.keys[at]).is_none_or(|request| request.is_over());
            if forget && let Some(key) = state.keys.remove(at) {
                state.requests.remove(&key);
                over -= 1;
            } else {
                at += 1;
            }
        }
        (pending, true)
    }

    /// Forgets the request of this key: it came to nothing, so that a retry begins anew.
    pub(crate) fn forget(&self, key: &str, pending: &Arc<Pending>) {
        let mut state = self.state();
        if state.requests.get(key).is_some_and(|known| Arc::ptr_eq(known, pending)) {
            state.requests.remove(key);
            state.keys.retain(|known| known != key);
        }
    }
}
