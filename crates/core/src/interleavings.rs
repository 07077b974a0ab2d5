//! Orders in which tasks can meet, tried by shuttle: batches, renewals beside releases, departures, connections whose runtime
//! ends. Built by `interleavings/`, where the locks and atomics of these pieces are shuttle's.

use shuttle::future::{AbortHandle, JoinHandle};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(test)]
mod batches;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod reopening;

/// Names a runtime.
pub(crate) type Id = u64;

/// A runtime that can end at any moment: what runs on it is dropped then, and so is what comes later.
#[derive(Debug, Clone)]
pub(crate) struct Handle(Arc<Runtime>);

#[derive(Debug)]
struct Runtime {
    id: Id,
    /// `None` once it has ended. Never locked over a step of shuttle's.
    tasks: Mutex<Option<Vec<AbortHandle>>>,
    /// How many tasks have not been dropped yet.
    alive: Arc<AtomicUsize>,
}

/// Counts a task for as long as it is there.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg_attr(not(test), allow(dead_code))]
impl Handle {
    pub(crate) fn new() -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let tasks = Mutex::new(Some(Vec::new()));
        Self(Arc::new(Runtime { id: IDS.fetch_add(1, SeqCst), tasks, alive: Arc::default() }))
    }

    pub(crate) fn id(&self) -> Id {
        self.0.id
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let has_ended = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if has_ended {
            drop(task);
            return shuttle::future::spawn(async {});
        }
        self.0.alive.fetch_add(1, SeqCst);
        let counted = Counted(Arc::clone(&self.0.alive));
        let spawned = shuttle::future::spawn(async move {
            // Dropped after the task.
            let _counted = counted;
            task.await;
        });
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        match tasks.as_mut() {
            Some(tasks) => tasks.push(spawned.abort_handle()),
            None => {
                drop(tasks);
                spawned.abort();
            }
        }
        spawned
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }

    /// Waits until no task runs any more. Those that do at the end of a test would be torn down in the middle of a step.
    pub(crate) fn settle(&self) {
        shuttle::future::block_on(async {
            while self.0.alive.load(SeqCst) > 0 {
                shuttle::future::yield_now().await;
            }
        });
    }
}

/// Tries orders at random, and those with few switches at unlikely places.
#[cfg(test)]
fn in_any_order(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let (one, other) = (Arc::clone(&test), test);
    shuttle::check_random(move || one(), 3_000);
    shuttle::check_pct(move || other(), 1_000, 3);
}
