//! Who drives a connection: the runtime that uses it, so that a request needs no switch of threads, or the house.
//!
//! A user's runtime may be blocked or end; the locks of a connection must not be lost for that. So a connection
//! belongs to no runtime: it is a future, the *line*, that one runtime after another polls. The house takes it over
//! when its driver has gone, or when the engine sees that it does not drive. Whatever the line waits for must be able to
//! move as well: a [`Stream`] is, a timer is not.

use crate::house;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

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
}

struct Seat {
    /// `None` when it has ended.
    line: Option<Line>,
    driver: Option<AbortHandle>,
}

fn is_house(runtime: &Handle) -> bool {
    runtime.id() == house::handle().id()
}

impl Drive {
    /// Drives the line on this runtime, until it is moved, ends or is closed; then it is dropped.
    pub fn start(line: impl Future<Output = ()> + Send + 'static, moves: Moves, home: &Handle) -> Self {
        let seat = Mutex::new(Seat { line: Some(Box::pin(line)), driver: None });
        let inner = Arc::new(Inner { seat, moves, at_house: AtomicBool::new(false) });
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
            && let Ok(here) = Handle::try_current()
            && !is_house(&here)
        {
            self.0.move_to(&here);
        }
    }

    /// Lets the house drive.
    pub fn go_home(&self) {
        if !self.is_home() {
            self.0.move_to(house::handle());
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
        let Some(line) = &mut seat.line else { return Poll::Ready(()) };
        ready!(line.as_mut().poll(cx));
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
            self.inner.move_to(house::handle());
        }
    }
}

async fn drive(driver: Driver) {
    std::future::poll_fn(|cx| driver.inner.poll(driver.number, cx)).await;
}

/// A stream of a line: known to the runtime on which it was polled last.
#[derive(Debug)]
pub struct Stream {
    io: TcpStream,
    home: Home,
    /// A runtime without I/O of its own: there the stream stays known to the one before.
    cannot: Option<Id>,
}

/// How a stream knows that it is polled on another runtime.
#[derive(Debug)]
enum Home {
    /// Its line is told to move, and has been so often.
    Told(Moves, u64),
    /// It looks each time.
    Seen(Id),
}

impl Home {
    fn has_moved(&mut self) -> bool {
        match self {
            Self::Told(moves, seen) => {
                let before = std::mem::replace(seen, moves.load(SeqCst));
                before != *seen
            }
            Self::Seen(id) => {
                Handle::try_current().is_ok_and(|here| std::mem::replace(id, here.id()) != here.id())
            }
        }
    }
}

impl Stream {
    /// A stream of a line, and of the runtime that this is called on.
    pub fn new(io: TcpStream, moves: Moves) -> Self {
        let seen = moves.load(SeqCst);
        Self { io, home: Home::Told(moves, seen), cannot: None }
    }

    /// A stream without a line: whoever polls it drives it. It is of the runtime that this is called on.
    pub fn following(io: TcpStream) -> Self {
        Self { io, home: Home::Seen(Handle::current().id()), cannot: None }
    }

    /// The stream, known to the runtime that polls it now.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if self.home.has_moved() {
            let here = Handle::try_current().ok().map(|here| here.id());
            if here.is_some() && here != self.cannot {
                let same = std::net::TcpStream::from(self.io.as_fd().try_clone_to_owned()?);
                match catch_unwind(|| TcpStream::from_std(same)) {
                    Ok(io) => self.io = io?,
                    Err(_) => self.cannot = here,
                }
            }
        }
        Ok(Pin::new(&mut self.io))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.here()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.here()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_shutdown(cx)
    }
}
