//! The house's watch over requests under way: an answer that does not come is noticed without a timer for each request.
//!
//! A timer for each makes every pause of the runtime that waits a timed one. With one task on advisory locks, going without
//! took a pair from 0.71 to 0.75 of the raw one.

use super::Drive;
use crate::house;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    requests: Mutex<Requests>,
    late: AtomicBool,
}

#[derive(Debug, Default)]
struct Requests {
    begun: u64,
    /// Those under way, by their numbers, the oldest one first.
    under_way: VecDeque<(u64, Instant)>,
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
        let watched =
            Arc::new(Watched { watch, drive, requests: Mutex::default(), late: AtomicBool::new(false) });
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
        let _under_way = self.begin();
        self.drive.ask(request).await
    }

    fn begin(&self) -> UnderWay<'_> {
        let number = {
            let mut requests = lock(&self.requests);
            requests.begun += 1;
            let number = requests.begun;
            requests.under_way.push_back((number, Instant::now()));
            number
        };
        // A look costs less than a write, and it is mostly set already.
        if !self.watch.used.load(SeqCst) {
            self.watch.used.store(true, SeqCst);
        }
        if !self.watch.is_on.load(SeqCst) && !self.watch.is_on.swap(true, SeqCst) {
            house::handle().spawn(watch(Arc::clone(&self.watch)));
        }
        UnderWay { watched: self, number }
    }

    /// Whether it was cut because an answer did not come in time.
    pub fn was_late(&self) -> bool {
        self.late.load(SeqCst)
    }

    fn look(&self) -> bool {
        let Some((_, since)) = lock(&self.requests).under_way.front().copied() else {
            self.drive.call_back();
            return false;
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

/// A request under way, until this is dropped.
struct UnderWay<'a> {
    watched: &'a Watched,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let under_way = &mut lock(&self.watched.requests).under_way;
        // Answers come in order, so it is the first one, unless it was given up.
        if under_way.front().is_some_and(|(number, _)| *number == self.number) {
            under_way.pop_front();
        } else if let Ok(index) = under_way.binary_search_by_key(&self.number, |(number, _)| *number) {
            under_way.remove(index);
        }
    }
}
