//! What drives a connection, and what ends with it: see [`lockkeeper_core::drive`].

use crate::session::Messages;
use lockkeeper_core::drive::{Drive, Moves, Stream};
use lockkeeper_core::{Lifeline, background};
use rustix::event::epoll;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;

type PostgresConnection = Connection<Stream, <MakeRustlsConnect as MakeTlsConnect<Stream>>::Stream>;

/// Drives the connection on this runtime, until it is moved. The lifeline ends with it.
pub(crate) fn start(
    connection: PostgresConnection,
    hangup: Hangup,
    moves: Moves,
    messages: Messages,
    lifeline: Lifeline,
    home: &Handle,
) -> Drive {
    let listens = messages.is_some();
    Drive::start(Line { _end: End::of(hangup, lifeline), connection, messages }, moves, home, listens)
}

/// A connection until it ends or is dropped: first its lifeline ends, then the server sees the end.
struct Line {
    _end: End,
    connection: PostgresConnection,
    messages: Messages,
}

/// Whatever hangs on the connection is lost when this is dropped.
pub(crate) struct End {
    lifeline: Lifeline,
    watch: AbortHandle,
}

impl End {
    /// The lifeline also ends when the server hangs up.
    pub(crate) fn of(hangup: Hangup, lifeline: Lifeline) -> Self {
        let watch = background::handle().spawn(hangup.ends(lifeline.clone())).abort_handle();
        Self { lifeline, watch }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.lifeline.end();
        self.watch.abort();
    }
}

impl Future for Line {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(Ok(message)) = ready!(self.connection.poll_message(cx)) {
            if let (AsyncMessage::Notification(note), Some(messages)) = (message, &self.messages) {
                let _ = messages.send(note);
            }
        }
        Poll::Ready(())
    }
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
