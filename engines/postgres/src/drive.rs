//! Who drives a connection: the runtime that uses it, so that a request needs no switch of threads, or the house.
//!
//! A user's runtime may be blocked or end; the locks of a connection must not be lost for that. So the connection
//! itself belongs to no runtime: the house takes it over when it is needed and nobody drives it.

use crate::session::Messages;
use crate::stream::{Moves, Stream};
use lockkeeper_core::{Lifeline, house};
use rustix::event::epoll;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;

type Line = Connection<Stream, <MakeRustlsConnect as MakeTlsConnect<Stream>>::Stream>;

/// Drives one connection.
#[derive(Clone)]
pub(crate) struct Drive(Arc<Inner>);

struct Inner {
    seat: Mutex<Seat>,
    /// Who drives is known by the number of moves: each move makes a new driver.
    moves: Moves,
    at_house: AtomicBool,
    messages: Messages,
    lifeline: Lifeline,
}

struct Seat {
    /// `None` when it has ended.
    line: Option<Line>,
    driver: Option<AbortHandle>,
    watch: AbortHandle,
}

fn is_house(runtime: &Handle) -> bool {
    runtime.id() == house::handle().id()
}

impl Drive {
    /// Drives the connection on this runtime, until it is moved. The lifeline ends with it.
    pub(crate) fn start(
        line: Line,
        hangup: Hangup,
        moves: Moves,
        messages: Messages,
        lifeline: Lifeline,
        home: &Handle,
    ) -> Self {
        let watch = house::handle().spawn(hangup.ends(lifeline.clone())).abort_handle();
        let inner = Arc::new(Inner {
            seat: Mutex::new(Seat { line: Some(line), driver: None, watch }),
            moves,
            at_house: AtomicBool::new(false),
            messages,
            lifeline,
        });
        inner.move_to(home);
        Self(inner)
    }

    /// Lets this runtime drive, unless another user's does already.
    pub(crate) fn come_here(&self) {
        if self.0.at_house.load(SeqCst)
            && let Ok(here) = Handle::try_current()
            && !is_house(&here)
        {
            self.0.move_to(&here);
        }
    }

    /// Lets the house drive.
    pub(crate) fn go_home(&self) {
        if !self.0.at_house.load(SeqCst) {
            self.0.move_to(house::handle());
        }
    }

    /// Closes the connection at once.
    pub(crate) fn close(&self) {
        self.0.end();
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
            self.at_house.store(is_house(home), SeqCst);
            self.moves.fetch_add(1, SeqCst) + 1
        };
        // A runtime that is about to end drops its new task at once, and then this goes on to the house.
        let driver = home.spawn(drive(Driver { inner: Arc::clone(self), number }));
        let mut seat = self.seat();
        if self.moves.load(SeqCst) == number {
            seat.driver = Some(driver.abort_handle());
        }
    }

    /// Whatever hangs on the connection is lost, and the server sees its end.
    fn end(&self) {
        self.lifeline.end();
        let line = {
            let mut seat = self.seat();
            seat.watch.abort();
            seat.driver.take().inspect(AbortHandle::abort);
            seat.line.take()
        };
        drop(line);
    }

    /// One turn of the driver with this number; ready when it is to drive no longer.
    fn poll(&self, number: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mut seat = self.seat();
        if self.moves.load(SeqCst) != number {
            return Poll::Ready(());
        }
        let Some(line) = &mut seat.line else { return Poll::Ready(()) };
        while let Some(Ok(message)) = ready!(line.poll_message(cx)) {
            if let (AsyncMessage::Notification(note), Some(messages)) = (message, &self.messages) {
                let _ = messages.send(note);
            }
        }
        drop(seat);
        self.end();
        Poll::Ready(())
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
            self.inner.move_to(house::handle());
        }
    }
}

async fn drive(driver: Driver) {
    std::future::poll_fn(|cx| driver.inner.poll(driver.number, cx)).await;
}

/// Sees from the house that the server has hung up, even while nobody reads: answers do not wake it.
pub(crate) struct Hangup(OwnedFd);

impl Hangup {
    /// Watches this stream.
    pub(crate) fn of(stream: &Stream) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, stream, epoll::EventData::new_u64(0), epoll::EventFlags::RDHUP)?;
        Ok(Self(watch))
    }

    async fn ends(self, lifeline: Lifeline) {
        // Its successor is unsafe for the sake of types that could swap their descriptor; an `OwnedFd` cannot.
        #[allow(deprecated)]
        let watch = AsyncFd::with_interest(self.0, Interest::READABLE);
        if let Ok(watch) = watch
            && watch.readable().await.is_ok()
        {
            lifeline.end();
        }
    }
}
