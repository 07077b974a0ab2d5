//! Who drives a connection: the runtime that uses it, so that a request needs no switch of threads, or the house.
//!
//! A user's runtime may be blocked or end; the locks of a connection must not be lost for that. So a connection
//! belongs to no runtime: it is a future, the *line*, that one runtime after another polls. The house takes it over
//! when its driver has gone, or when the engine sees that it does not drive. Whatever the line waits for must be able to
//! move as well: a [`Stream`] is, a timer is not.

mod asker;
mod bell;
mod stream;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

pub use stream::{Stream, once_more};
pub use watch::{Watch, Watched};
pub use wire::{Manner, Reads, Wire, WireLine};

use crate::background;
use asker::Asker;
use bell::Bell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::runtime::{Handle, Id};
use tokio::task::{AbortHandle, JoinError};

/// How often a line was told to move; its streams must know.
pub type Moves = Arc<AtomicU64>;

type Line = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Drives one line. When this is dropped, the line is closed.
#[derive(Debug)]
pub struct Drive(Arc<Inner>);

struct Inner {
    seat: Mutex<Seat>,
    /// Who drives is known by the number of moves: each move makes a new driver.
    moves: Moves,
    at_house: AtomicBool,
    listens: bool,
    /// How many wait for an answer of the line.
    asking: AtomicUsize,
    /// What the line calls when it has something to do: it reaches whoever drives.
    line_bell: Bell,
    /// What calls the one who asks and drives when he is answered.
    answer_bell: Bell,
}

struct Seat {
    /// `None` when it has ended.
    line: Option<Line>,
    driver: Option<AbortHandle>,
    /// The runtime of the driver.
    home: Id,
    /// Whether one who asks drives, or was the last to do so, instead of the driver.
    is_lent: bool,
    /// How the driver is called back.
    driver_waker: Option<Waker>,
}

/// Opens a connection on this runtime, or on the house's if this one has no I/O of its own, which shows in a panic.
///
/// Cancel safety: the opening goes on.
///
/// # Errors
/// When the runtime has ended.
pub async fn open_on<T, F>(home: &Handle, connecting: impl Fn() -> F) -> Result<T, JoinError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let opened = home.spawn(connecting()).await;
    match opened {
        Err(error) if error.is_panic() => background::handle().spawn(connecting()).await,
        opened => opened,
    }
}

impl Seat {
    fn call_back(&mut self) {
        if std::mem::take(&mut self.is_lent)
            && let Some(driver) = &self.driver_waker
        {
            driver.wake_by_ref();
        }
    }
}

impl Drive {
    /// Drives the line on this runtime, until it is moved, ends or is closed; then it is dropped. It is never lent if it
    /// `listens`, that is if what the server says unasked must be heard at once.
    pub fn start(
        line: impl Future<Output = ()> + Send + 'static,
        moves: Moves,
        home: &Handle,
        listens: bool,
    ) -> Self {
        let line: Option<Line> = Some(Box::pin(line));
        let seat = Seat { line, driver: None, home: home.id(), is_lent: false, driver_waker: None };
        let inner = Arc::new(Inner {
            seat: Mutex::new(seat),
            moves,
            at_house: AtomicBool::new(false),
            listens,
            asking: AtomicUsize::new(0),
            line_bell: Bell::default(),
            answer_bell: Bell::default(),
        });
        inner.move_to(home);
        Self(inner)
    }

    /// Whether the house drives.
    pub fn is_home(&self) -> bool {
        self.0.at_house.load(SeqCst)
    }

    /// Lets the caller's runtime drive, unless another user's does already.
    pub fn come_here(&self) {
        if self.is_home()
            && let Some(here) = background::caller()
        {
            self.0.move_to(&here);
        }
    }

    /// Lets the house drive.
    pub fn go_home(&self) {
        if !self.is_home() {
            self.0.move_to(background::handle());
        }
    }

    /// Waits for an answer of the line. Who is the only one to wait drives meanwhile, if he runs where the driver does: then
    /// no other task has to be woken for it, and be switched to. Afterwards nobody drives, until the next one asks or
    /// [`call_back`](Self::call_back) is called, so all that is asked of the line must go this way.
    ///
    /// Cancel safety: that of the request; the driver is called back.
    pub async fn ask<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        let mut asker = Asker::new(&self.0);
        let answer = poll_fn(|cx| asker.poll(request.as_mut(), cx)).await;
        asker.is_answered = true;
        answer
    }

    /// Lets the driver drive again after somebody who asked did, so that what the server says unasked is heard.
    pub fn call_back(&self) {
        if self.0.asking.load(SeqCst) == 0 {
            self.0.seat().call_back();
        }
    }

    /// Drops the line at once. When this returns, nobody drives any more.
    pub fn close(&self) {
        self.0.end();
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(self: &Arc<Self>, home: &Handle) {
        let number = {
            let mut seat = self.seat();
            if seat.line.is_none() {
                return;
            }
            seat.driver.take().inspect(AbortHandle::abort);
            seat.home = home.id();
            seat.is_lent = false;
            seat.driver_waker = None;
            self.at_house.store(home.id() == background::handle().id(), SeqCst);
            self.moves.fetch_add(1, SeqCst) + 1
        };
        // A runtime that is about to end drops its new task at once, and then this goes on to the house.
        let driver = home.spawn(drive(Driver { inner: Arc::clone(self), number }));
        let mut seat = self.seat();
        if self.moves.load(SeqCst) == number {
            seat.driver = Some(driver.abort_handle());
        }
    }

    fn end(&self) {
        let line = {
            let mut seat = self.seat();
            seat.driver.take().inspect(AbortHandle::abort);
            seat.line.take()
        };
        // What it does when it is dropped must not find the seat locked.
        drop(line);
    }

    /// One turn of the driver with this number; ready when it is to drive no longer.
    fn poll(&self, number: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mut seat = self.seat();
        if self.moves.load(SeqCst) != number {
            return Poll::Ready(());
        }
        match &mut seat.driver_waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        if seat.is_lent {
            return Poll::Pending;
        }
        self.poll_line(seat, cx)
    }

    fn poll_line(&self, mut seat: MutexGuard<'_, Seat>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(line) = &mut seat.line else { return Poll::Ready(()) };
        self.line_bell.belongs_to(cx);
        ready!(line.as_mut().poll(&mut self.line_bell.context()));
        drop(seat);
        self.end();
        Poll::Ready(())
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let moves = self.moves.load(SeqCst);
        f.debug_struct("Inner")
            .field("moves", &moves)
            .field("at_house", &self.at_house)
            .finish_non_exhaustive()
    }
}

/// The one who drives. When its runtime ends, the house takes over.
struct Driver {
    inner: Arc<Inner>,
    number: u64,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.inner.moves.load(SeqCst) == self.number {
            self.inner.move_to(background::handle());
        }
    }
}

async fn drive(driver: Driver) {
    poll_fn(|cx| driver.inner.poll(driver.number, cx)).await;
}
