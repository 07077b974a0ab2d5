//! A stream to the server that follows whoever uses it from one runtime to another.

use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};

/// A stream that is known to the runtime on which it was polled last.
pub(crate) struct Stream {
    io: TcpStream,
    home: Id,
}

impl Stream {
    /// Connects to the server. Both sides notice within 10 s that the other one's machine is gone.
    pub(crate) async fn connect(host: &str, port: u16) -> io::Result<Self> {
        let io = TcpStream::connect((host, port)).await?;
        io.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&io, true)?;
        sockopt::set_tcp_keepidle(&io, Duration::from_secs(3))?;
        sockopt::set_tcp_keepintvl(&io, Duration::from_secs(2))?;
        sockopt::set_tcp_keepcnt(&io, 3)?;
        sockopt::set_tcp_user_timeout(&io, 9_000)?;
        Ok(Self { io, home: Handle::current().id() })
    }

    /// The stream, known to the runtime that polls it now.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let here = Handle::try_current().map_err(io::Error::other)?.id();
        if here != self.home {
            let same = std::net::TcpStream::from(self.io.as_fd().try_clone_to_owned()?);
            self.io = TcpStream::from_std(same)?;
            self.home = here;
        }
        Ok(Pin::new(&mut self.io))
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
