//! Accepts connections: TCP with or without TLS, or a Unix socket; ends gracefully.

use crate::bind::SocketFile;
use crate::settings::Limits;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// How long a client may take to complete a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a connection may be idle, or take to send a request's head.
const IDLE: Duration = Duration::from_secs(30);

/// How long a new connection may take for its first request while connections are scarce.
const IDLE_WHEN_SCARCE: Duration = Duration::from_secs(1);

/// How long a client may leave what was sent to it unconfirmed.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the last replies may take at the end.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// The pause after an error of accept, which is mostly a lack of descriptors.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// Whose connection a request came over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer(Option<SocketAddr>);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("local"),
        }
    }
}

/// Where a server listens.
#[derive(Debug)]
pub enum Listener {
    /// TCP, with TLS if there is a certificate.
    Tcp(TcpListener, Option<Arc<rustls::ServerConfig>>),
    /// A Unix socket, and its file, which is removed at the end unless another server has replaced it.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                notice_dead_clients(&stream)?;
                Ok((Accepted::Tcp(stream, tls.clone()), Peer(Some(peer))))
            }
            Self::Unix(listener, _) => Ok((Accepted::Unix(listener.accept().await?.0), Peer(None))),
        }
    }
}

/// Makes the system close a connection whose client is gone without a word, or takes nothing any more: it may wait in a queue, and
/// hold when its turn comes.
fn notice_dead_clients(stream: &tokio::net::TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE / 3)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 6)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// The connections that are open, and how many may be.
#[derive(Clone)]
struct Connections {
    free: Arc<Semaphore>,
    most: usize,
}

impl Connections {
    fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), most }
    }

    fn are_scarce(&self) -> bool {
        self.free.available_permits() < self.most.div_ceil(4)
    }

    /// Resolves when a connection has had its time for a first request, of which `begun` tells.
    async fn has_nothing_to_say(&self, begun: &Notify) {
        let mut left = IDLE;
        while !left.is_zero() {
            let time = left.min(IDLE_WHEN_SCARCE);
            if tokio::time::timeout(time, begun.notified()).await.is_ok() {
                return std::future::pending().await;
            }
            left -= time;
            if self.are_scarce() {
                return;
            }
        }
    }
}

enum Accepted {
    Tcp(tokio::net::TcpStream, Option<Arc<rustls::ServerConfig>>),
    Unix(tokio::net::UnixStream),
}

/// Serves until `end` resolves, then lets the replies that are under way finish.
pub(crate) async fn serve(
    listener: Listener,
    router: Router,
    limits: &Limits,
    end: impl Future<Output = ()>,
) {
    let file = match &listener {
        Listener::Unix(_, path) => SocketFile::at(path).map(|file| (file, path.clone())),
        Listener::Tcp(..) => None,
    };
    let connections = Connections::new(limits.connections.min(Semaphore::MAX_PERMITS));
    let graceful = GracefulShutdown::new();
    let mut end = std::pin::pin!(end);
    loop {
        let accepting = async {
            let permit = Arc::clone(&connections.free).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepting => accepted,
            () = &mut end => break,
        };
        let (accepted, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        let (router, watcher, connections) = (router.clone(), graceful.watcher(), connections.clone());
        tokio::spawn(async move {
            match accepted {
                Accepted::Tcp(stream, None) => connection(stream, peer, router, watcher, &connections).await,
                Accepted::Unix(stream) => connection(stream, peer, router, watcher, &connections).await,
                Accepted::Tcp(stream, Some(tls)) => {
                    let handshake = TlsAcceptor::from(tls).accept(stream);
                    match tokio::time::timeout(HANDSHAKE, handshake).await {
                        Ok(Ok(stream)) => connection(stream, peer, router, watcher, &connections).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                        Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
                    }
                }
            }
            drop(permit);
        });
    }
    if tokio::time::timeout(LAST_REPLIES, graceful.shutdown()).await.is_err() {
        tracing::debug!("some connections did not end in time");
    }
    if let Some((file, path)) = file {
        file.remove(&path);
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
    connections: &Connections,
) {
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        begins.notify_one();
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(IDLE).max_concurrent_streams(10_000);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    // hyper's own limit begins with the first byte, and one who sends none would stay for ever.
    tokio::select! {
        ended = watcher.watch(connection) => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        },
        () = connections.has_nothing_to_say(&begun) => tracing::debug!("a connection without a request was closed"),
    }
}
