//! The house's watch over requests under way: an answer that does not come is noticed without a timer for each request.
//!
//! A timer for each makes every pause of the runtime that waits a timed one. With one task on advisory locks, going without
//! took a pair from 0.71 to 0.75 of the raw one.

use super::Drive;
use crate::background;
use futures_util::task::AtomicWaker;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// How long an answer may take until the house sees to it that the connection is driven.
const GRACE: Duration = Duration::from_millis(50);

/// The watch goes on for so long after the last request, so that a busy keeper does not call for it again and again.
const STAYS: Duration = Duration::from_secs(1);

/// The watch over all connections of a keeper.
#[derive(Debug, Clone)]
pub struct Watch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How long a request may take.
    limit: Duration,
    lines: Mutex<Vec<Weak<Watched>>>,
    is_on: AtomicBool,
    /// Whether there was a request since the last look.
    used: AtomicBool,
}

/// One connection, and what drives it.
#[derive(Debug)]
pub struct Watched {
    watch: Arc<Inner>,
    drive: Drive,
    /// Those under way, the oldest one first.
    requests: Mutex<VecDeque<Arc<Request>>>,
    late: AtomicBool,
}

/// A request under way.
#[derive(Debug)]
struct Request {
    since: Instant,
    /// Whether the one who asked has been called and has not come yet. As long as he does not, he waits for nobody, and the server is
    /// not late: his runtime stands still.
    is_called: AtomicBool,
    asker: AtomicWaker,
}

impl Wake for Request {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_called.store(true, SeqCst);
        self.asker.wake();
    }
}

impl Request {
    /// The one who asked has come to look: a call from now on is a new one.
    fn comes(&self, cx: &Context<'_>) {
        self.asker.register(cx.waker());
        self.is_called.store(false, SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// A request may take this long.
    pub fn new(limit: Duration) -> Self {
        let (is_on, used) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Inner { limit, lines: Mutex::default(), is_on, used }))
    }

    /// Watches the requests of this connection.
    pub fn over(&self, drive: Drive) -> Arc<Watched> {
        let watch = Arc::clone(&self.0);
        let (requests, late) = (Mutex::default(), AtomicBool::new(false));
        let watched = Arc::new(Watched { watch, drive, requests, late });
        lock(&self.0.lines).push(Arc::downgrade(&watched));
        watched
    }
}

impl Inner {
    fn grace(&self) -> Duration {
        GRACE.min(self.limit / 4)
    }

    /// Looks after every connection; says whether anything is under way.
    fn look(&self) -> bool {
        let mut lines = lock(&self.lines);
        let mut any = false;
        lines.retain(|line| {
            let line = line.upgrade();
            any |= line.as_ref().is_some_and(|line| line.look());
            line.is_some()
        });
        any
    }

    /// Ends the watch, unless something is under way.
    fn rests(&self) -> bool {
        self.is_on.store(false, SeqCst);
        // Whoever begins after this look finds that nobody watches. If somebody did before it, we go on, or he has
        // called for another watch.
        !self.look() || self.is_on.swap(true, SeqCst)
    }
}

async fn watch(inner: Arc<Inner>) {
    let pause = inner.grace() / 2;
    let mut unused = Duration::ZERO;
    while unused < STAYS || !inner.rests() {
        tokio::time::sleep(pause).await;
        inner.look();
        unused = if inner.used.swap(false, SeqCst) { Duration::ZERO } else { unused + pause };
    }
}

impl Watched {
    /// What drives the connection.
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Waits for the answer to a request. One that does not come in time cuts the connection, and so ends the request; see
    /// [`was_late`](Self::was_late).
    ///
    /// Cancel safety: that of the request.
    pub async fn ask<T>(&self, request: impl Future<Output = T>) -> T {
        let under_way = self.begin();
        let (watched, mut request) = (&under_way.request, pin!(request));
        let waker = Waker::from(Arc::clone(watched));
        let seen = poll_fn(|cx| {
            watched.comes(cx);
            request.as_mut().poll(&mut Context::from_waker(&waker))
        });
        self.drive.ask(seen).await
    }

    /// Waits for the answer to a request that may take as long as it takes. The house drives meanwhile, for nobody sees to it that
    /// another does.
    ///
    /// Cancel safety: that of the request.
    pub async fn ask_at_last<T>(&self, request: impl Future<Output = T>) -> T {
        self.drive.go_home();
        self.drive.ask(request).await
    }

    fn begin(&self) -> UnderWay<'_> {
        let (is_called, asker) = (AtomicBool::new(false), AtomicWaker::new());
        let request = Arc::new(Request { since: Instant::now(), is_called, asker });
        lock(&self.requests).push_back(Arc::clone(&request));
        // A look costs less than a write, and it is mostly set already.
        if !self.watch.used.load(SeqCst) {
            self.watch.used.store(true, SeqCst);
        }
        if !self.watch.is_on.load(SeqCst) && !self.watch.is_on.swap(true, SeqCst) {
            background::handle().spawn(watch(Arc::clone(&self.watch)));
        }
        UnderWay { watched: self, request }
    }

    /// Whether it was cut because an answer did not come in time.
    pub fn was_late(&self) -> bool {
        self.late.load(SeqCst)
    }

    fn look(&self) -> bool {
        let (any, waits) = {
            let requests = lock(&self.requests);
            let waits = requests.iter().find(|request| !request.is_called.load(SeqCst));
            (!requests.is_empty(), waits.map(|request| request.since))
        };
        let Some(since) = waits else {
            self.drive.call_back();
            return any;
        };
        let age = since.elapsed();
        if age > self.watch.limit {
            // Nobody may wait behind it for longer.
            self.late.store(true, SeqCst);
            self.drive.close();
        } else if age > self.watch.grace() {
            // Maybe the server is slow, maybe the runtime that drives the connection is blocked.
            self.drive.go_home();
        }
        true
    }
}

/// A request is under way until this is dropped.
struct UnderWay<'a> {
    watched: &'a Watched,
    request: Arc<Request>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut requests = lock(&self.watched.requests);
        // Answers come in order, so it is mostly the first one.
        let index = requests.iter().position(|request| Arc::ptr_eq(request, &self.request));
        index.and_then(|index| requests.remove(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Moves;
    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_server_is_late_that_does_not_answer_and_not_if_the_answer_is_not_fetched() {
        const LIMIT: Duration = Duration::from_millis(300);
        let drive = Drive::start(std::future::pending(), Moves::default(), &Handle::current(), false);
        let watched = Watch::new(LIMIT).over(drive);
        let (answer, answered) = oneshot::channel();
        let mut first = Box::pin(watched.ask(answered));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        answer.send(1).unwrap();
        std::thread::sleep(LIMIT * 2);
        assert!(watched.look(), "it is still under way");
        assert!(!watched.was_late());
        assert_eq!(first.await, Ok(1));

        let (_never, answered) = oneshot::channel::<u32>();
        let mut second = Box::pin(watched.ask(answered));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        std::thread::sleep(LIMIT * 2);
        watched.look();
        assert!(watched.was_late());
        drop(second);
        assert!(!watched.look(), "nothing is under way");
    }
}
