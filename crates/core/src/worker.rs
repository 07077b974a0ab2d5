//! A thread of an engine's own for calls that may block, so that a stalled disk never stops the background runtime.

use crate::clock::Clock;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs jobs one after the other. Clones share it; it ends when the last clone is dropped and every job
/// has been run.
#[derive(Clone)]
pub struct Worker {
    engine: &'static str,
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Engine`] when the system has no room for a thread.
    pub fn start(engine: &'static str) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("lockkeeper-disk".into())
            .spawn(move || queue.into_iter().for_each(|job| job()))
            .map_err(|error| Error::temporary(engine, "start a thread", error))?;
        Ok(Self { engine, jobs })
    }

    /// Runs the job after those that were sent before, without waiting for it. Use it also to drop what closes files:
    /// closing may wait for the disk.
    pub fn send(&self, job: impl FnOnce() + Send + 'static) {
        // Fails only if a job has panicked.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Runs the job after those that were sent before and returns its result.
    ///
    /// Cancel safety: a job that has not begun is dropped on the thread; one that has begun is finished.
    ///
    /// # Errors
    /// A temporary [`Error::Engine`] when there is no result within the limit.
    pub async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, result) = oneshot::channel();
        self.send(move || {
            if !reply.is_closed() {
                let _ = reply.send(job());
            }
        });
        match Clock::Boot.timeout(limit, result).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(Error::temporary(self.engine, doing, "the thread for the disk has ended")),
            Err(_) => {
                let why = format!("the disk has not replied within {limit:?}");
                Err(Error::temporary(self.engine, doing, why))
            }
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn jobs_run_in_order_on_a_thread_of_their_own() {
        let worker = Worker::start("test").unwrap();
        let (sender, receiver) = mpsc::channel();
        for number in 0..3 {
            let sender = sender.clone();
            worker.send(move || sender.send(number).unwrap());
        }
        let there = worker.run("work", LONG, || std::thread::current().id()).await.unwrap();
        assert_ne!(there, std::thread::current().id());
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[tokio::test]
    async fn a_job_that_was_given_up_before_it_began_is_not_run() {
        let worker = Worker::start("test").unwrap();
        let (go_on, stalled) = mpsc::channel::<()>();
        worker.send(move || stalled.recv().unwrap_or_default());
        let (ran, never) = mpsc::channel();
        let error = worker.run("work", Duration::from_millis(10), move || ran.send(())).await.unwrap_err();
        assert!(error.is_temporary() && error.to_string().contains("has not replied within 10ms"), "{error}");
        drop(go_on);
        worker.run("work", LONG, || ()).await.unwrap();
        assert_eq!(never.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
