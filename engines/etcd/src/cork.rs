//! A socket that sends what its connection writes in one go: the head and the body of a request, and what else is due.
//!
//! The HTTP/2 connection writes a head as soon as it has it, and the body, which another task brings, right behind it. Each
//! write costs a call to the system, a packet, and a wake of the server, which can begin only with the last. Here the first
//! one waits until all tasks that are ready have had their turn.

use crate::config::DEFAULT_PORT;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// More than this is not gathered.
const ROOM: usize = 64 << 10;

/// The socket.
#[derive(Debug)]
pub(crate) struct Cork {
    io: TcpStream,
    gathered: Vec<u8>,
    /// So many bytes of what was gathered are on their way.
    sent: usize,
    /// The others have had their turn.
    waited: bool,
}

/// Connects to a server, as a URL names it.
pub(crate) async fn dial(host: &str, port: Option<u16>) -> io::Result<TcpStream> {
    // An IPv6 address has brackets in a URL only.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let io = TcpStream::connect((host, port.unwrap_or(DEFAULT_PORT))).await?;
    io.set_nodelay(true)?;
    Ok(io)
}

impl Cork {
    /// Connects to the server.
    pub(crate) async fn connect(host: &str, port: Option<u16>) -> io::Result<Self> {
        let io = dial(host, port).await?;
        Ok(Self { io, gathered: Vec::new(), sent: 0, waited: false })
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.gathered.len() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.gathered[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.gathered.clear();
        self.sent = 0;
        self.waited = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Cork {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Cork {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.gathered.len() >= ROOM {
            ready!(self.send(cx))?;
        }
        self.gathered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() && !self.waited {
            self.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn pair() -> (Cork, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cork, other) = tokio::join!(Cork::connect("127.0.0.1", Some(port)), listener.accept());
        (cork.unwrap(), other.unwrap().0)
    }

    #[tokio::test]
    async fn what_is_written_before_the_others_had_their_turn_goes_in_one_piece() {
        let (mut cork, mut other) = pair().await;
        let mut flushing = std::pin::pin!(async {
            cork.write_all(b"head").await.unwrap();
            cork.flush().await.unwrap();
        });
        assert!(futures_util::poll!(&mut flushing).is_pending());
        assert!(futures_util::poll!(&mut flushing).is_ready());
        cork.write_all(b"body").await.unwrap();
        assert!(cork.gathered == b"body" && !cork.waited);
        cork.flush().await.unwrap();
        let mut all = [0; 8];
        other.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"headbody");
    }

    #[tokio::test]
    async fn much_arrives_as_it_was_written_and_so_does_the_end() {
        let (mut cork, mut other) = pair().await;
        let all: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let sent = all.clone();
        let writing = tokio::spawn(async move {
            for some in sent.chunks(7_001) {
                cork.write_all(some).await.unwrap();
            }
            cork.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        other.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got == all);
    }
}
