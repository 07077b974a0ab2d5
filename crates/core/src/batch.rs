//! Requests of many tasks that travel together: whoever comes while all requests are under way goes with the next one.
//!
//! Where the server's or the driver's work per request is what costs, this is what makes 64 tasks on 64 locks cheap. A
//! task that comes alone pays nothing for it: its request goes at once, on its own, in the task itself. Where several have
//! come together, the next ones all gather, and go as soon as whoever is ready has asked.

use futures_util::future::join_all;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Who has gathered for so long does not wait for the requests under way: their tasks may be alive and yet not run, such
/// as a branch of a `select!` whose other branch does something else.
const PATIENCE: Duration = Duration::from_millis(500);

/// How an engine sends several asks as one request.
pub trait Batch: Send + Sync + 'static {
    /// What one task asks.
    type Ask: Send + Sync + 'static;
    /// What it gets.
    type Answer: Send + 'static;

    /// How many may travel together at most.
    fn at_most(&self) -> usize;

    /// Sends the asks, of which there is at least one, and gives one answer to each, in their order. A failure of the
    /// request is an answer to each.
    fn send(&self, asks: &[Self::Ask]) -> impl Future<Output = Vec<Self::Answer>> + Send;

    /// Sends the ask of one who came alone: the same, where that is cheaper to say.
    fn send_alone(&self, ask: Self::Ask) -> impl Future<Output = Option<Self::Answer>> + Send {
        async move { self.send(&[ask]).await.pop() }
    }

    /// The task has gone while its ask was under way with others. An engine in which a later request could have
    /// overtaken this one undoes here what it did.
    fn unheard(&self, ask: Self::Ask, answer: Self::Answer) {
        drop((ask, answer));
    }
}

/// Sends asks that must not all go in one request, group by group and all groups at once: a group is of one kind, and no
/// place is in it twice. One answer to each ask, in their order. `kind_and_place` says what an ask is and where it goes.
///
/// Cancel safety: as that of what `send` makes.
pub async fn send_apart<'a, A, K: Copy + Hash + Eq, P: Hash + Eq, R, F: Future<Output = Vec<R>>>(
    asks: &'a [A],
    kind_and_place: impl Fn(&'a A) -> (K, P),
    send: impl Fn(Vec<&'a A>) -> F,
) -> Vec<R> {
    let groups = apart(asks.iter().map(kind_and_place));
    let sent = groups.iter().map(|group| send(group.iter().map(|index| &asks[*index]).collect()));
    let answers = join_all(sent).await.into_iter().flatten();
    let mut answers: Vec<(usize, R)> = groups.iter().flatten().copied().zip(answers).collect();
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The groups, by the numbers of their members: those who come to a place for the first time, for the second time…
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

/// Gathers asks into batches; see the module.
pub struct Batcher<B: Batch>(Arc<Inner<B>>);

struct Inner<B: Batch> {
    batch: B,
    runtime: Handle,
    at_once: usize,
    state: Mutex<State<B>>,
}

struct State<B: Batch> {
    under_way: usize,
    /// How many of those under way are of tasks that came alone.
    alone: usize,
    /// How many of those under way have yet to take who gathered.
    starting: usize,
    gathered: VecDeque<Gathered<B>>,
    /// Lately several came together. Then those who come first wait, too, until all who are ready to ask have asked: else
    /// they would go alone again and again, and hold up the others.
    crowded: bool,
}

impl<B: Batch> State<B> {
    /// Whether one more must start for all who have gathered; if so, it is counted as starting.
    fn starts(&mut self, at_most: usize) -> bool {
        let starts = self.gathered.len() > self.starting * at_most;
        self.starting += usize::from(starts);
        starts
    }
}

struct Gathered<B: Batch> {
    ask: B::Ask,
    answer: oneshot::Sender<B::Answer>,
}

/// How an ask goes.
enum Way<B: Batch> {
    Alone(B::Ask),
    /// It is sure to be taken if a request is under way, or starts, that no task can hold up.
    Gathered {
        answer: oneshot::Receiver<B::Answer>,
        starts: bool,
        is_sure: bool,
    },
}

impl<B: Batch> Batcher<B> {
    /// Batches that are sent on this runtime, as many at once as told: enough that few tasks do not wait for each
    /// other, few enough that many gather.
    pub fn new(batch: B, runtime: Handle, at_once: usize) -> Self {
        let state = State { under_way: 0, alone: 0, starting: 0, gathered: VecDeque::new(), crowded: false };
        Self(Arc::new(Inner { batch, runtime, at_once: at_once.max(1), state: Mutex::new(state) }))
    }

    /// Sends the ask, alone or with others. `None` if the runtime of the batches has ended.
    ///
    /// Cancel safety: an ask that was not sent yet never will be; one that was may count.
    pub async fn ask(&self, ask: B::Ask) -> Option<B::Answer> {
        match self.0.way(ask) {
            Way::Alone(ask) => {
                let _turn = Turn(Arc::clone(&self.0));
                self.0.batch.send_alone(ask).await
            }
            Way::Gathered { mut answer, starts, is_sure } => {
                if starts {
                    Flight::start(&self.0);
                }
                // Spares a timer.
                if is_sure {
                    return answer.await.ok();
                }
                loop {
                    match timeout(PATIENCE, &mut answer).await {
                        Ok(answer) => return answer.ok(),
                        Err(_) => self.0.one_more(),
                    }
                }
            }
        }
    }
}

impl<B: Batch> Inner<B> {
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_most(&self) -> usize {
        self.batch.at_most().max(1)
    }

    /// Sends those who have gathered, however many requests are under way.
    fn one_more(self: &Arc<Self>) {
        let mut state = self.state();
        state.under_way += 1;
        state.starting += 1;
        drop(state);
        Flight::start(self);
    }

    fn way(&self, ask: B::Ask) -> Way<B> {
        let mut state = self.state();
        let has_room = state.under_way < self.at_once;
        if has_room && !state.crowded {
            state.under_way += 1;
            state.alone += 1;
            return Way::Alone(ask);
        }
        let (sender, answer) = oneshot::channel();
        state.gathered.push_back(Gathered { ask, answer: sender });
        let starts = has_room && state.starts(self.at_most());
        state.under_way += usize::from(starts);
        Way::Gathered { answer, starts, is_sure: state.under_way > state.alone }
    }

    /// Those who travel next, without those who have gone. If there are none, the right to be under way ends here.
    fn next(&self, starts: bool) -> Vec<Gathered<B>> {
        let mut state = self.state();
        let room = self.at_most().min(state.gathered.len());
        let mut next = Vec::with_capacity(room);
        while next.len() < room
            && let Some(gathered) = state.gathered.pop_front()
        {
            if !gathered.answer.is_closed() {
                next.push(gathered);
            }
        }
        // Only one that has just started has let all who were ready gather.
        state.crowded = next.len() > 1 || state.crowded && !(starts && next.len() == 1);
        state.starting -= usize::from(starts);
        state.under_way -= usize::from(next.is_empty());
        next
    }

    async fn send(&self, together: Vec<Gathered<B>>) {
        let (asks, tasks): (Vec<_>, Vec<_>) =
            together.into_iter().map(|gathered| (gathered.ask, gathered.answer)).unzip();
        let answers = self.batch.send(&asks).await;
        for ((ask, task), answer) in asks.into_iter().zip(tasks).zip(answers) {
            if let Err(answer) = task.send(answer) {
                self.batch.unheard(ask, answer);
            }
        }
    }
}

/// The right of one who came alone to have a request under way. It passes to those who gathered, however the request
/// ends: its task may be dropped, too.
struct Turn<B: Batch>(Arc<Inner<B>>);

impl<B: Batch> Drop for Turn<B> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let starts = state.starts(self.0.at_most());
        state.alone -= 1;
        state.under_way -= usize::from(!starts);
        drop(state);
        if starts {
            Flight::start(&self.0);
        }
    }
}

/// The right of those who gathered to have a request under way: one after the other, as long as there are any.
struct Flight<B: Batch> {
    inner: Arc<Inner<B>>,
    starts: bool,
    landed: bool,
}

impl<B: Batch> Flight<B> {
    fn start(inner: &Arc<Inner<B>>) {
        let flight = Self { inner: Arc::clone(inner), starts: true, landed: false };
        inner.runtime.spawn(flight.run());
    }

    async fn run(mut self) {
        // A runtime of several threads runs at once what is spawned last: whoever else is ready shall ask first.
        yield_now().await;
        loop {
            let next = self.inner.next(self.starts);
            self.starts = false;
            if next.is_empty() {
                self.landed = true;
                return;
            }
            self.inner.send(next).await;
        }
    }
}

/// If it has not landed, the runtime has ended, and whoever gathered did so in vain.
impl<B: Batch> Drop for Flight<B> {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        let mut state = self.inner.state();
        state.under_way -= 1;
        state.starting -= usize::from(self.starts);
        let stranded = std::mem::take(&mut state.gathered);
        drop(state);
        drop(stranded);
    }
}

impl<B: Batch> fmt::Debug for Batcher<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        formatter
            .debug_struct("Batcher")
            .field("under_way", &state.under_way)
            .field("gathered", &state.gathered.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    /// Answers with the size of the batch, once it may.
    #[derive(Clone, Default)]
    struct Slow(Arc<Log>);

    struct Log {
        may_answer: Semaphore,
        sent: Mutex<Vec<Vec<u32>>>,
        unheard: Mutex<Vec<u32>>,
    }

    impl Default for Log {
        fn default() -> Self {
            Self { may_answer: Semaphore::new(0), sent: Mutex::default(), unheard: Mutex::default() }
        }
    }

    impl Slow {
        fn sent(&self) -> Vec<Vec<u32>> {
            self.0.sent.lock().unwrap().clone()
        }
    }

    impl Batch for Slow {
        type Ask = u32;
        type Answer = usize;

        fn at_most(&self) -> usize {
            3
        }

        async fn send(&self, asks: &[u32]) -> Vec<usize> {
            self.0.sent.lock().unwrap().push(asks.to_vec());
            self.0.may_answer.acquire().await.unwrap().forget();
            vec![asks.len(); asks.len()]
        }

        fn unheard(&self, ask: u32, _: usize) {
            self.0.unheard.lock().unwrap().push(ask);
        }
    }

    #[tokio::test]
    async fn while_many_come_together_nobody_goes_alone() {
        let (slow, batcher) = batcher(2);
        let tasks = ask(&batcher, 0..5).await;
        slow.0.may_answer.add_permits(100);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(slow.sent(), [vec![0], vec![1], vec![2, 3, 4]]);
        let together = async |asks: Range<u32>| {
            let tasks: Vec<_> = asks
                .map(|ask| {
                    let batcher = Arc::clone(&batcher);
                    tokio::spawn(async move { batcher.ask(ask).await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        };
        together(5..10).await;
        assert_eq!(slow.sent()[3..], [vec![5, 6, 7], vec![8, 9]]);
        together(10..11).await;
        together(11..13).await;
        assert_eq!(slow.sent()[5..], [[10], [11], [12]], "one who came alone has ended it");
    }

    /// Starts that many tasks, which ask one after the other.
    async fn ask(batcher: &Arc<Batcher<Slow>>, asks: Range<u32>) -> Vec<JoinHandle<Option<usize>>> {
        let mut tasks = Vec::new();
        for ask in asks {
            let batcher = Arc::clone(batcher);
            tasks.push(tokio::spawn(async move { batcher.ask(ask).await }));
            yield_now().await;
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
    async fn each_gets_its_own_answer_from_whatever_group_it_was_in() {
        let asks = ["a", "b", "a", "c"];
        let send = async |group: Vec<&&str>| {
            let size = group.len();
            group.into_iter().map(|ask| format!("{ask}{size}")).collect::<Vec<_>>()
        };
        assert_eq!(send_apart(&asks, |ask| ((), *ask), send).await, ["a3", "b3", "a1", "c3"]);
    }

    #[tokio::test]
    async fn who_comes_alone_goes_at_once_and_who_comes_meanwhile_goes_together() {
        let (slow, batcher) = batcher(1);
        let tasks = ask(&batcher, 0..6).await;
        assert_eq!(slow.sent(), [[0]]);
        slow.0.may_answer.add_permits(3);
        let mut sizes = Vec::new();
        for task in tasks {
            sizes.push(task.await.unwrap().unwrap());
        }
        assert_eq!(sizes, [1, 3, 3, 3, 2, 2]);
        assert_eq!(slow.sent(), [vec![0], vec![1, 2, 3], vec![4, 5]]);
        // And all is as in the beginning.
        slow.0.may_answer.add_permits(1);
        assert_eq!(batcher.ask(6).await, Some(1));
    }

    #[tokio::test]
    async fn as_many_requests_are_under_way_as_told() {
        let (slow, batcher) = batcher(2);
        let _tasks = ask(&batcher, 0..4).await;
        assert_eq!(slow.sent(), [[0], [1]]);
    }

    #[tokio::test]
    async fn a_task_that_goes_before_its_turn_sends_nothing() {
        let (slow, batcher) = batcher(1);
        let tasks = ask(&batcher, 0..3).await;
        tasks[1].abort();
        yield_now().await;
        slow.0.may_answer.add_permits(2);
        for task in tasks {
            let _ = task.await;
        }
        assert_eq!(slow.sent(), [[0], [2]]);
    }

    #[tokio::test]
    async fn a_task_that_goes_during_its_request_passes_the_turn_on() {
        let (slow, batcher) = batcher(1);
        let mut tasks = ask(&batcher, 0..2).await;
        tasks[0].abort();
        slow.0.may_answer.add_permits(1);
        assert_eq!(tasks.remove(1).await.unwrap(), Some(1));
        assert_eq!(slow.sent(), [[0], [1]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_never_run_holds_nobody_up_for_ever() {
        let (slow, batcher) = batcher(1);
        let mut idle = std::pin::pin!(batcher.ask(0));
        assert!(timeout(Duration::ZERO, &mut idle).await.is_err());
        slow.0.may_answer.add_permits(2);
        assert_eq!(batcher.ask(1).await, Some(1));
        assert_eq!(idle.await, Some(1));
        while batcher.0.state().under_way > 0 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_answer_nobody_waits_for_is_handed_back() {
        let (slow, batcher) = batcher(1);
        let mut tasks = ask(&batcher, 0..3).await;
        slow.0.may_answer.add_permits(1);
        while slow.sent().len() < 2 {
            yield_now().await;
        }
        tasks[1].abort();
        yield_now().await;
        slow.0.may_answer.add_permits(1);
        assert_eq!(tasks.remove(2).await.unwrap(), Some(2));
        assert_eq!(*slow.0.unheard.lock().unwrap(), [1]);
    }

    #[test]
    fn the_end_of_the_runtime_is_an_answer_to_those_on_another() {
        let [here, there] =
            [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
        let slow = Slow::default();
        let batcher = Arc::new(Batcher::new(slow.clone(), there.handle().clone(), 1));
        here.block_on(async {
            let mut tasks = ask(&batcher, 0..2).await;
            there.shutdown_background();
            slow.0.may_answer.add_permits(1);
            assert_eq!(tasks.remove(1).await.unwrap(), None);
        });
    }
}
