//! A stream to the server that can move from one runtime to another.

use crate::config::Host;
use rustix::net::sockopt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How often the stream of a connection was told to move.
pub(crate) type Moves = Arc<AtomicU64>;

/// A stream that is known to the runtime on which it was polled last.
pub(crate) struct Stream {
    io: TcpStream,
    moved: u64,
    moves: Moves,
}

impl Stream {
    /// Connects to the server. Both sides notice within 10 s that the other one's machine is gone.
    pub(crate) async fn connect(host: &Host, moves: Moves) -> io::Result<Self> {
        let io = TcpStream::connect((host.name.as_str(), host.port)).await?;
        io.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&io, true)?;
        sockopt::set_tcp_keepidle(&io, Duration::from_secs(3))?;
        sockopt::set_tcp_keepintvl(&io, Duration::from_secs(2))?;
        sockopt::set_tcp_keepcnt(&io, 3)?;
        sockopt::set_tcp_user_timeout(&io, 9_000)?;
        Ok(Self { io, moved: moves.load(SeqCst), moves })
    }

    /// The stream, known to the runtime that polls it now.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let moves = self.moves.load(SeqCst);
        if moves != self.moved {
            let same = std::net::TcpStream::from(self.io.as_fd().try_clone_to_owned()?);
            self.io = TcpStream::from_std(same)?;
            self.moved = moves;
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
