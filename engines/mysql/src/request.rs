//! A request that whoever waits for it drives, so that it needs no switch of threads, and that the house takes over when
//! it is left, or when the runtime of the one who waits is blocked.

use crate::fault::{cut, too_late};
use crate::line::Row;
use lockkeeper_core::{BoxFuture, Error, Result};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// One request on a connection.
pub(crate) struct Request {
    doing: &'static str,
    limit: Duration,
    seen: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Default)]
struct Stage {
    /// What is still to be done.
    work: Option<BoxFuture<'static, Result<Row>>>,
    outcome: Option<Result<Row>>,
    /// Whether the house does it.
    at_house: bool,
    /// Those to be woken at the end: the one who waits, and the house.
    waits: Option<Waker>,
    drives: Option<Waker>,
}

impl Stage {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(work) = &mut self.work
            && let Poll::Ready(outcome) = work.as_mut().poll(cx)
        {
            self.work = None;
            self.outcome = Some(outcome);
        }
    }
}

impl Request {
    pub(crate) fn new(
        doing: &'static str,
        limit: Duration,
        work: BoxFuture<'static, Result<Row>>,
    ) -> Arc<Self> {
        let stage = Mutex::new(Stage { work: Some(work), ..Stage::default() });
        Arc::new(Self { doing, limit, seen: AtomicBool::new(false), stage })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not ended soon: it is asked now and then.
    pub(crate) fn is_old(&self) -> bool {
        self.seen.swap(true, SeqCst)
    }

    pub(crate) fn is_at_house(&self) -> bool {
        self.stage().at_house
    }

    /// From now on only the house drives it; `false` if it does already, or if there is nothing left to do.
    pub(crate) fn go_home(&self) -> bool {
        let mut stage = self.stage();
        let goes = !stage.at_house && stage.work.is_some();
        stage.at_house |= goes;
        goes
    }

    /// What the house does, within the time limit; `false` if that was not enough.
    pub(crate) async fn at_house(&self) -> bool {
        let done = std::future::poll_fn(|cx| self.poll_at_house(cx));
        let in_time = tokio::time::timeout(self.limit, done).await.is_ok();
        if !in_time {
            self.abandon(too_late(self.doing, self.limit));
        }
        in_time
    }

    fn poll_at_house(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = {
            let mut stage = self.stage();
            stage.drive(cx);
            if stage.work.is_some() {
                stage.drives = Some(cx.waker().clone());
                return Poll::Pending;
            }
            stage.waits.take()
        };
        if let Some(waker) = waits {
            waker.wake();
        }
        Poll::Ready(())
    }

    /// Ends it in the middle: its connection has been cut.
    pub(crate) fn cut(&self) {
        self.abandon(cut(self.doing));
    }

    fn abandon(&self, error: Error) {
        let (work, wakers) = {
            let mut stage = self.stage();
            let Some(work) = stage.work.take() else { return };
            stage.outcome = Some(Err(error));
            (work, [stage.waits.take(), stage.drives.take()])
        };
        drop(work);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Drives it, or waits for the house that does.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Row>> {
        let mut stage = self.stage();
        if !stage.at_house {
            stage.drive(cx);
        }
        if let Some(outcome) = stage.outcome.take() {
            return Poll::Ready(outcome);
        }
        if stage.waits.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
            stage.waits = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Whether the server undid a statement because it collided with another.
pub(crate) fn collided(outcome: &Result<Row>) -> bool {
    let Err(Error::Engine { source, .. }) = outcome else { return false };
    matches!(source.downcast_ref(), Some(mysql_async::Error::Server(told)) if crate::fault::is_collision(told.code))
}
