//! The way of a request to a server: straight into its HTTP/2 connection where there is one, else through tonic's channel.
//!
//! A channel has a queue with a task of its own before the connection, which opens it and opens it again. With one task that
//! locks and releases, each of its wake-ups is a part of the time. So for the runtime that a keeper was made on there is a
//! second, bare connection beside the channel. It is never repaired: when it breaks, requests go through the channel.

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::uri::{Authority, Parts, PathAndQuery, Scheme};
use tonic::codegen::http::{Request, Response, Uri};
use tonic::codegen::{Service, StdError};
use tonic::transport::Channel;

/// A bare connection is tried for at most so long, and not again before so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a request goes.
#[derive(Debug, Clone)]
pub(crate) enum Line {
    Channel(Channel),
    Bare(Bare),
}

impl Service<Request<Body>> for Line {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Self::Channel(channel) => channel.poll_ready(context).map_err(Into::into),
            Self::Bare(bare) => bare.requests.poll_ready(context).map_err(broken),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            Self::Channel(channel) => {
                let answer = channel.call(request);
                Box::pin(async move { Ok(answer.await?) })
            }
            Self::Bare(bare) => {
                let answer = bare.requests.send_request(bare.address(request));
                Box::pin(async move { Ok(answer.await.map_err(broken)?.map(Body::new)) })
            }
        }
    }
}

/// Another try, over the channel, may be answered.
fn broken(error: hyper::Error) -> StdError {
    Status::unavailable(format!("the connection broke: {error}")).into()
}

/// One HTTP/2 connection without encryption.
#[derive(Debug, Clone)]
pub(crate) struct Bare {
    requests: SendRequest<Body>,
    server: Authority,
}

impl Bare {
    /// Connects; the connection lives on the runtime that this is called on, as long as anybody may send on it.
    async fn connect(server: Authority) -> Result<Self, StdError> {
        let stream = TcpStream::connect(server.as_str()).await?;
        stream.set_nodelay(true)?;
        let (requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { requests, server })
    }

    /// Puts the server's address into a request, which has only a path.
    fn address(&self, mut request: Request<Body>) -> Request<Body> {
        let mut parts = Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.server.clone());
        let root = || PathAndQuery::from_static("/");
        parts.path_and_query = Some(request.uri().path_and_query().cloned().unwrap_or_else(root));
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        request
    }
}

/// The bare connection to one server, on one runtime.
#[derive(Debug)]
pub(crate) struct Shortcut {
    server: Authority,
    runtime: Handle,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    bare: Option<Bare>,
    tried: Option<Instant>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shortcut {
    /// A shortcut to this server; `None` if it must be encrypted.
    pub(crate) fn to(server: &Uri, runtime: &Handle) -> Option<Self> {
        let authority = server.authority().filter(|_| server.scheme() == Some(&Scheme::HTTP))?;
        Some(Self { server: authority.clone(), runtime: runtime.clone(), state: Arc::default() })
    }

    /// The connection, if it stands; if not, it is opened for later requests.
    pub(crate) fn bare(&self) -> Option<Bare> {
        let mut state = lock(&self.state);
        if let Some(bare) = state.bare.as_ref().filter(|bare| !bare.requests.is_closed()) {
            return Some(bare.clone());
        }
        state.bare = None;
        if state.tried.is_none_or(|tried| tried.elapsed() >= PATIENCE) {
            state.tried = Some(Instant::now());
            let (server, shared) = (self.server.clone(), Arc::downgrade(&self.state));
            self.runtime.spawn(async move {
                let connected = timeout(PATIENCE, Bare::connect(server)).await;
                if let (Ok(Ok(bare)), Some(state)) = (connected, shared.upgrade()) {
                    lock(&state).bare = Some(bare);
                }
            });
        }
        None
    }

    /// It was silent for too long: it may be dead without knowing, and is not used any more.
    pub(crate) fn close(&self) {
        *lock(&self.state) = State { bare: None, tried: Some(Instant::now()) };
    }
}
