//! A request that whoever waits for it drives, so that it needs no switch of threads, and that the house takes over when
//! it is left, or when the runtime of the one who waits is blocked.

use crate::fault::cut;
use crate::line::Row;
use lockkeeper_core::{BoxFuture, Error, Result, house};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// One request on a connection.
pub(crate) struct Request {
    doing: &'static str,
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
    pub(crate) fn new(doing: &'static str, work: BoxFuture<'static, Result<Row>>) -> Arc<Self> {
        Arc::new(Self { doing, stage: Mutex::new(Stage { work: Some(work), ..Stage::default() }) })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the house do what is left; `late` is called if it is not done within this time.
    pub(crate) fn go_home(self: &Arc<Self>, limit: Duration, late: impl FnOnce() + Send + 'static) {
        {
            let mut stage = self.stage();
            if stage.at_house || stage.work.is_none() {
                return;
            }
            stage.at_house = true;
        }
        let request = Arc::clone(self);
        house::handle().spawn(async move {
            let done = std::future::poll_fn(|cx| request.poll_at_house(cx));
            if tokio::time::timeout(limit, done).await.is_err() {
                late();
                request.abandon();
            }
        });
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
    pub(crate) fn abandon(&self) {
        let (work, wakers) = {
            let mut stage = self.stage();
            let Some(work) = stage.work.take() else { return };
            stage.outcome = Some(Err(cut(self.doing)));
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
