//! The short ways of many tasks, taken together: while requests are under way, others gather for the next one.

use crate::failure::may_pass;
use crate::lane::{Lane, Lanes};
use crate::link::gone;
use crate::lua::Request;
use lockkeeper_core::{Batch, Batcher, background, send_apart};
use redis::{RedisResult, Value};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use tokio::runtime::Handle;

/// How many requests of one kind may be under way before others gather: so many tasks do not wait for each other.
const AT_ONCE: usize = 3;
/// How many locks one script serves: enough to spare the server most of the calls, few enough not to hold it up.
const AT_MOST: usize = 64;

/// What a task asks of one lock: the same by a script of its own and by one for many.
pub(crate) trait Ask: Clone + Send + Sync + 'static {
    /// The request of one who comes alone.
    fn alone(&self) -> Request;

    /// What a request says once for several: those who differ in it cannot go together.
    type Kind<'a>: Copy + Eq + Hash + Send;

    /// What this one has in common with those it can go with.
    fn kind(&self) -> Self::Kind<'_>;

    /// The request of several of a kind. It replies a list: to each what it would hear alone, or nothing if it must go alone.
    fn together(asks: &[&Self]) -> Request;
}

/// What becomes of an ask whose task has gone while it was under way with others.
type Unheard<A> = Arc<dyn Fn(A) + Send + Sync>;

/// The asks of one kind, down each lane.
#[derive(Debug)]
pub(crate) struct Together<A: Ask>(Option<Ways<A>>);

#[derive(Debug)]
struct Ways<A: Ask> {
    house: Batcher<Down<A>>,
    near: Option<Batcher<Down<A>>>,
}

impl<A: Ask> Together<A> {
    /// Everybody goes alone: in a cluster, where a script's keys must be in one slot, and so of one lock.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// For these lanes, of which the near one is of the runtime that runs this.
    pub(crate) fn down(lanes: &Lanes, unheard: impl Fn(A) + Send + Sync + 'static) -> Self {
        let unheard: Unheard<A> = Arc::new(unheard);
        let batcher = |lane: &Lane, runtime: &Handle| {
            let down = Down { lane: lane.clone(), unheard: Arc::clone(&unheard) };
            Batcher::new(down, runtime.clone(), AT_ONCE)
        };
        Self(Some(Ways {
            house: batcher(lanes.house(), background::handle()),
            near: lanes.near().map(|lane| batcher(lane, &Handle::current())),
        }))
    }

    /// Asks down that lane, alone or with others.
    pub(crate) async fn ask(&self, lanes: &Lanes, lane: &Lane, ask: A) -> RedisResult<Value> {
        let Some(ways) = &self.0 else { return lane.run(&ask.alone()).await };
        let batcher = ways.near.as_ref().filter(|_| lanes.is_near(lane)).unwrap_or(&ways.house);
        batcher.ask(ask).await.unwrap_or_else(|| Err(gone()))
    }
}

/// One lane.
struct Down<A> {
    lane: Lane,
    unheard: Unheard<A>,
}

impl<A: Ask> Down<A> {
    /// Sends several of a kind, or one.
    async fn send_together(&self, asks: Vec<&A>) -> Vec<RedisResult<Value>> {
        if let [ask] = asks[..] {
            return vec![self.lane.run(&ask.alone()).await];
        }
        match self.lane.run(&A::together(&asks)).await {
            Ok(Value::Array(replies)) if replies.len() == asks.len() => replies.into_iter().map(Ok).collect(),
            Err(error) if may_pass(&error) => asks.iter().map(|_| Err(error.clone())).collect(),
            // What is wrong with one of them must not be the others' fault: each goes alone.
            _ => asks.iter().map(|_| Ok(Value::Nil)).collect(),
        }
    }
}

impl<A: Ask> Batch for Down<A> {
    type Ask = A;
    type Answer = RedisResult<Value>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send_alone(&self, ask: A) -> Option<RedisResult<Value>> {
        Some(self.lane.run(&ask.alone()).await)
    }

    async fn send(&self, asks: &[A]) -> Vec<RedisResult<Value>> {
        if asks.iter().all(|ask| ask.kind() == asks[0].kind()) {
            return self.send_together(asks.iter().collect()).await;
        }
        // Each has a place of its own: the same lock may be twice in a script.
        let send = |asks| self.send_together(asks);
        send_apart(asks, |ask| (ask.kind(), std::ptr::from_ref(ask).addr()), send).await
    }

    fn unheard(&self, ask: A, _: RedisResult<Value>) {
        (self.unheard)(ask);
    }
}

impl<A> fmt::Debug for Down<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Down").field(&self.lane).finish()
    }
}
