//! Requests of many tasks that share one round trip or one commit.
//!
//! A task's request joins those that wait. A small number of *flights* is under way at a time; each takes what waits,
//! sends it as one request, and goes on until nothing waits any more. So a request on an idle connection goes at once,
//! and the more tasks there are, the more requests travel together.

use crate::sync::{Handle, Mutex, MutexGuard, yield_now};
use futures_util::future::join_all;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, PoisonError};
use tokio::sync::oneshot;

/// How an engine sends several requests as one.
pub trait Batch: Send + Sync + 'static {
    /// What one task requests.
    type Request: Send + Sync + 'static;
    /// What it gets.
    type Reply: Send + 'static;

    /// How many requests may travel together.
    fn at_most(&self) -> usize;

    /// Sends the requests, of which there is at least one, and returns one reply to each, in their order. A failure is a
    /// reply to each.
    fn send(&self, requests: &[Self::Request]) -> impl Future<Output = Vec<Self::Reply>> + Send;

    /// The task has gone while its request was under way. An engine in which a later request could have overtaken this one
    /// undoes here what it did.
    fn abandoned(&self, request: Self::Request, reply: Self::Reply) {
        drop((request, reply));
    }
}

/// Sends requests that must not all travel in one, group by group and all groups at once: a group is of one kind, and no
/// place is in it twice. One reply to each request, in their order. `kind_and_place` says what a request is and where it
/// goes.
///
/// Cancel safety: as that of what `send` makes.
pub async fn send_apart<'a, A, K: Copy + Hash + Eq, P: Hash + Eq, R, F: Future<Output = Vec<R>>>(
    requests: &'a [A],
    kind_and_place: impl Fn(&'a A) -> (K, P),
    send: impl Fn(Vec<&'a A>) -> F,
) -> Vec<R> {
    let groups = apart(requests.iter().map(kind_and_place));
    let sent = groups.iter().map(|group| send(group.iter().map(|index| &requests[*index]).collect()));
    let replies = join_all(sent).await.into_iter().flatten();
    let mut replies: Vec<(usize, R)> = groups.iter().flatten().copied().zip(replies).collect();
    replies.sort_unstable_by_key(|(index, _)| *index);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// The groups, by the indices of their members: the first request for each place, the second for each place…
fn apart<K: Copy + Hash + Eq, P: Hash + Eq>(places: impl Iterator<Item = (K, P)>) -> Vec<Vec<usize>> {
    let (mut groups, mut times) = (Vec::<(K, usize, Vec<usize>)>::new(), HashMap::new());
    for (index, (kind, place)) in places.enumerate() {
        let seen = times.entry((kind, place)).or_insert(0);
        match groups.iter_mut().find(|(of, nth, _)| *of == kind && nth == seen) {
            Some((_, _, group)) => group.push(index),
            None => groups.push((kind, *seen, vec![index])),
        }
        *seen += 1;
    }
    groups.into_iter().map(|(_, _, group)| group).collect()
}

/// Gathers requests into batches; see the module.
pub struct Batcher<B: Batch>(Arc<Inner<B>>);

struct Inner<B: Batch> {
    batch: B,
    runtime: Handle,
    at_once: usize,
    state: Mutex<State<B>>,
}

struct State<B: Batch> {
    flights: usize,
    waiting: VecDeque<Waiting<B>>,
}

struct Waiting<B: Batch> {
    request: B::Request,
    reply: oneshot::Sender<B::Reply>,
}

impl<B: Batch> Batcher<B> {
    /// Batches that are sent on this runtime, up to `at_once` at a time: enough that few tasks do not wait for each other, few
    /// enough that many travel together.
    pub fn new(batch: B, runtime: Handle, at_once: usize) -> Self {
        let state = State { flights: 0, waiting: VecDeque::new() };
        Self(Arc::new(Inner { batch, runtime, at_once: at_once.max(1), state: Mutex::new(state) }))
    }

    /// Sends the request, with others if there are any. `None` if the runtime of the batches has ended.
    ///
    /// Cancel safety: a request that was not sent yet never will be; one that was may count.
    pub async fn request(&self, request: B::Request) -> Option<B::Reply> {
        let (sender, reply) = oneshot::channel();
        let starts = {
            let mut state = self.0.state();
            state.waiting.push_back(Waiting { request, reply: sender });
            let starts = state.flights < self.0.at_once;
            state.flights += usize::from(starts);
            starts
        };
        if starts {
            let flight = Flight { inner: Arc::clone(&self.0), is_over: false };
            self.0.runtime.spawn(flight.run());
        }
        reply.await.ok()
    }
}

impl<B: Batch> Inner<B> {
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests that travel next, without those whose task has gone. Ends the flight if there are none.
    fn next(&self) -> Vec<Waiting<B>> {
        let (mut state, mut next) = (self.state(), Vec::new());
        while next.len() < self.batch.at_most().max(1)
            && let Some(waiting) = state.waiting.pop_front()
        {
            if !waiting.reply.is_closed() {
                next.push(waiting);
            }
        }
        state.flights -= usize::from(next.is_empty());
        next
    }

    async fn send(&self, together: Vec<Waiting<B>>) {
        let (requests, tasks): (Vec<_>, Vec<_>) =
            together.into_iter().map(|waiting| (waiting.request, waiting.reply)).unzip();
        let replies = self.batch.send(&requests).await;
        for ((request, task), reply) in requests.into_iter().zip(tasks).zip(replies) {
            if let Err(reply) = task.send(reply) {
                self.batch.abandoned(request, reply);
            }
        }
    }
}

/// Sends what waits, one batch after the other.
struct Flight<B: Batch> {
    inner: Arc<Inner<B>>,
    is_over: bool,
}

impl<B: Batch> Flight<B> {
    async fn run(mut self) {
        // A runtime of several threads runs the task that was spawned last first: let the others that are ready join.
        yield_now().await;
        loop {
            let next = self.inner.next();
            if next.is_empty() {
                self.is_over = true;
                return;
            }
            self.inner.send(next).await;
        }
    }
}

/// If it is not over, its runtime has ended, and nothing that waits will be sent.
impl<B: Batch> Drop for Flight<B> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.inner.state();
            state.flights -= 1;
            let stranded = std::mem::take(&mut state.waiting);
            drop(state);
            drop(stranded);
        }
    }
}

impl<B: Batch> fmt::Debug for Batcher<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        formatter
            .debug_struct("Batcher")
            .field("flights", &state.flights)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::ops::Range;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    /// Replies with the size of the batch, once it may.
    #[derive(Clone, Default)]
    struct Slow(Arc<Log>);

    struct Log {
        may_reply: Semaphore,
        sent: Mutex<Vec<Vec<u32>>>,
        abandoned: Mutex<Vec<u32>>,
    }

    impl Default for Log {
        fn default() -> Self {
            Self { may_reply: Semaphore::new(0), sent: Mutex::default(), abandoned: Mutex::default() }
        }
    }

    impl Slow {
        fn sent(&self) -> Vec<Vec<u32>> {
            self.0.sent.lock().unwrap().clone()
        }
    }

    impl Batch for Slow {
        type Request = u32;
        type Reply = usize;

        fn at_most(&self) -> usize {
            3
        }

        async fn send(&self, requests: &[u32]) -> Vec<usize> {
            self.0.sent.lock().unwrap().push(requests.to_vec());
            self.0.may_reply.acquire().await.unwrap().forget();
            vec![requests.len(); requests.len()]
        }

        fn abandoned(&self, request: u32, _: usize) {
            self.0.abandoned.lock().unwrap().push(request);
        }
    }

    /// Starts one task for each request, and lets it run until its request is under way or waits.
    async fn start(batcher: &Arc<Batcher<Slow>>, requests: Range<u32>) -> Vec<JoinHandle<Option<usize>>> {
        let mut tasks = Vec::new();
        for request in requests {
            let batcher = Arc::clone(batcher);
            tasks.push(tokio::spawn(async move { batcher.request(request).await }));
            for _ in 0..5 {
                yield_now().await;
            }
        }
        tasks
    }

    fn batcher(at_once: usize) -> (Slow, Arc<Batcher<Slow>>) {
        let slow = Slow::default();
        let batcher = Batcher::new(slow.clone(), Handle::current(), at_once);
        (slow, Arc::new(batcher))
    }

    #[test]
    fn the_same_place_is_never_twice_in_a_group_and_kinds_are_apart() {
        let names = ["a", "b", "a", "c", "a", "b"].map(|name| ((), name));
        assert_eq!(apart(names.into_iter()), [vec![0, 1, 3], vec![2, 5], vec![4]]);
        let places = [(1, "/a"), (1, "/b"), (1, "/a"), (2, "/a"), (1, "/c"), (1, "/a")];
        assert_eq!(apart(places.into_iter()), [vec![0, 1, 4], vec![2], vec![3], vec![5]]);
    }

    #[tokio::test]
    async fn each_gets_its_own_reply_from_the_group_it_was_in() {
        let requests = ["a", "b", "a", "c"];
        let send = async |group: Vec<&&str>| {
            let size = group.len();
            group.into_iter().map(|request| format!("{request}{size}")).collect::<Vec<_>>()
        };
        assert_eq!(send_apart(&requests, |request| ((), *request), send).await, ["a3", "b3", "a1", "c3"]);
    }

    #[tokio::test]
    async fn the_first_goes_at_once_and_those_that_come_meanwhile_go_together() {
        let (slow, batcher) = batcher(1);
        let tasks = start(&batcher, 0..6).await;
        assert_eq!(slow.sent(), [[0]]);
        slow.0.may_reply.add_permits(3);
        let mut sizes = Vec::new();
        for task in tasks {
            sizes.push(task.await.unwrap().unwrap());
        }
        assert_eq!(sizes, [1, 3, 3, 3, 2, 2]);
        assert_eq!(slow.sent(), [vec![0], vec![1, 2, 3], vec![4, 5]]);
        slow.0.may_reply.add_permits(1);
        assert_eq!(batcher.request(6).await, Some(1), "all is as in the beginning");
    }

    #[tokio::test]
    async fn requests_of_tasks_that_are_ready_together_travel_together() {
        let (slow, batcher) = batcher(2);
        slow.0.may_reply.add_permits(100);
        let tasks: Vec<_> = (0..3)
            .map(|request| {
                let batcher = Arc::clone(&batcher);
                tokio::spawn(async move { batcher.request(request).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), Some(3));
        }
        assert_eq!(slow.sent(), [[0, 1, 2]]);
    }

    #[tokio::test]
    async fn no_more_flights_are_under_way_than_allowed() {
        let (slow, batcher) = batcher(2);
        let _tasks = start(&batcher, 0..4).await;
        assert_eq!(slow.sent(), [[0], [1]]);
    }

    #[tokio::test]
    async fn a_task_that_goes_before_its_turn_sends_nothing() {
        let (slow, batcher) = batcher(1);
        let tasks = start(&batcher, 0..3).await;
        tasks[1].abort();
        yield_now().await;
        slow.0.may_reply.add_permits(2);
        for task in tasks {
            let _ = task.await;
        }
        assert_eq!(slow.sent(), [[0], [2]]);
    }

    #[tokio::test]
    async fn a_reply_that_nobody_waits_for_is_handed_back_and_holds_up_nobody() {
        let (slow, batcher) = batcher(1);
        let mut tasks = start(&batcher, 0..2).await;
        tasks[0].abort();
        yield_now().await;
        slow.0.may_reply.add_permits(2);
        assert_eq!(tasks.remove(1).await.unwrap(), Some(1));
        assert_eq!(slow.sent(), [[0], [1]]);
        assert_eq!(*slow.0.abandoned.lock().unwrap(), [0]);
    }

    #[tokio::test]
    async fn a_task_that_is_not_polled_holds_up_nobody() {
        let (slow, batcher) = batcher(1);
        let mut idle = Box::pin(batcher.request(0));
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        slow.0.may_reply.add_permits(2);
        assert!(batcher.request(1).await.is_some());
        assert!(idle.await.is_some());
    }

    #[test]
    fn callers_on_another_runtime_are_notified_of_its_end() {
        let [here, there] =
            [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
        let batcher = Arc::new(Batcher::new(Slow::default(), there.handle().clone(), 1));
        here.block_on(async {
            let mut tasks = start(&batcher, 0..2).await;
            there.shutdown_background();
            assert_eq!(tasks.remove(1).await.unwrap(), None);
        });
    }
}
