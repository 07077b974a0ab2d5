//! A stream that can be polled by one runtime after another.

use super::Moves;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};

/// The same socket once more, known to the runtime that this is called on.
///
/// # Errors
/// When the process or the system has too many open.
pub fn once_more(socket: &impl AsFd) -> io::Result<TcpStream> {
    TcpStream::from_std(std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?))
}

/// A stream of a line: known to the runtime on which it was polled last.
#[derive(Debug)]
pub struct Stream {
    io: TcpStream,
    /// Its line is told to move, and has been so often.
    moves: Moves,
    seen: u64,
    /// A runtime without I/O of its own: there the stream stays known to the one before.
    cannot: Option<Id>,
}

impl Stream {
    /// A stream of a line, and of the runtime that this is called on.
    pub fn new(io: TcpStream, moves: Moves) -> Self {
        let seen = moves.load(SeqCst);
        Self { io, moves, seen, cannot: None }
    }

    /// The stream, known to the runtime that polls it now.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let moves = self.moves.load(SeqCst);
        if moves != self.seen {
            self.seen = moves;
            self.move_here()?;
        }
        Ok(Pin::new(&mut self.io))
    }

    #[cold]
    fn move_here(&mut self) -> io::Result<()> {
        let here = Handle::try_current().ok().map(|here| here.id());
        if here.is_some() && here != self.cannot {
            match catch_unwind(|| once_more(&self.io)) {
                Ok(io) => self.io = io?,
                Err(_) => self.cannot = here,
            }
        }
        Ok(())
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
