//! Single calls over a connection that whoever waits for the answer drives himself.
//!
//! The driver's channel passes each call through three tasks, the queue in front of the connection, the connection and
//! the one that brings the body, and sets two timers for it. That took longer than all else we do for a lock.

use crate::cork::dial;
use crate::failure::Failure;
use crate::generated::{
    DeleteRangeRequest, DeleteRangeResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use h2::client::SendRequest;
use lockkeeper_core::drive::{Drive, Moves, Stream, Watch, Watched, open_on};
use prost::Message;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::codegen::Bytes;
use tonic::codegen::http::uri::{Authority, PathAndQuery, Scheme};
use tonic::codegen::http::{self, HeaderMap, HeaderValue, Request, Uri, header};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

/// Before each message stand a byte that says whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// How much the server may send before we have read it: more than any answer to a lock.
const WINDOW_BYTES: u32 = 1 << 20;

/// A call with one answer.
pub(crate) trait Unary: Message {
    type Answer: Message + Default;
    const PATH: &'static str;
}

impl Unary for TxnRequest {
    type Answer = TxnResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Txn";
}

impl Unary for DeleteRangeRequest {
    type Answer = DeleteRangeResponse;
    const PATH: &'static str = "/etcdserverpb.KV/DeleteRange";
}

impl Unary for RangeRequest {
    type Answer = RangeResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Range";
}

/// A connection to one server without TLS, opened when it is first used and again when it has broken.
#[derive(Debug)]
pub(crate) struct Wire {
    authority: Authority,
    limit: Duration,
    watch: Watch,
    live: Mutex<Option<Arc<Live>>>,
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Live {
    requests: SendRequest<Bytes>,
    line: Arc<Watched>,
}

impl Wire {
    /// To this server; an answer may take so long.
    pub(crate) fn new(authority: Authority, limit: Duration) -> Self {
        let (live, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { authority, limit, watch: Watch::new(limit), live, opening }
    }

    /// One call. A connection it fails on is not used again.
    ///
    /// Cancel safety: the call may or may not take effect.
    pub(crate) async fn call<Q: Unary>(
        &self,
        message: &Q,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<Q::Answer, Failure> {
        let live = match self.current() {
            Some(live) => live,
            None => Box::pin(self.open()).await?,
        };
        live.line.drive().come_here();
        let head =
            self.head::<Q>(token).map_err(|error| Failure::from(Status::internal(error.to_string())))?;
        let outcome = live.line.ask(pin!(exchange(live.requests.clone(), head, message))).await;
        outcome.map_err(|error| {
            if matches!(error, Trouble::Connection(_)) {
                self.forget(&live);
            }
            match error {
                _ if live.line.was_late() => Failure::silence(self.limit),
                Trouble::Connection(error) => Status::unavailable(error.to_string()).into(),
                Trouble::Refused(status) => Failure::from(*status),
            }
        })
    }

    fn head<Q: Unary>(&self, token: Option<MetadataValue<Ascii>>) -> http::Result<Request<()>> {
        let to = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone());
        let mut head = Request::post(to.path_and_query(PathAndQuery::from_static(Q::PATH)).build()?)
            .header(header::TE, HeaderValue::from_static("trailers"))
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if let Some(token) = token {
            head = head.header("token", token.as_bytes());
        }
        head.body(())
    }

    fn live(&self) -> std::sync::MutexGuard<'_, Option<Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<Live>> {
        self.live().clone()
    }

    fn forget(&self, broken: &Arc<Live>) {
        self.live().take_if(|live| Arc::ptr_eq(live, broken));
    }

    async fn open(&self) -> Result<Arc<Live>, Failure> {
        let _one_at_a_time = self.opening.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let connecting =
            || tokio::time::timeout(self.limit, connect(self.authority.clone(), self.watch.clone()));
        match open_on(&Handle::current(), connecting).await {
            Ok(Ok(Ok(live))) => {
                let live = Arc::new(live);
                *self.live() = Some(Arc::clone(&live));
                Ok(live)
            }
            Ok(Ok(Err(error))) => Err(Status::unavailable(error.to_string()).into()),
            Ok(Err(_)) => Err(Failure::silence(self.limit)),
            Err(gone) => Err(Status::unavailable(gone.to_string()).into()),
        }
    }
}

async fn connect(to: Authority, watch: Watch) -> io::Result<Live> {
    let io = dial(to.host(), to.port_u16()).await?;
    let moves = Moves::default();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let opened = builder.handshake(Stream::new(io, Arc::clone(&moves))).await;
    let (requests, connection) = opened.map_err(io::Error::other)?;
    let line = async {
        // Whoever waits for an answer hears how it ended.
        let _ = connection.await;
    };
    let drive = Drive::start(line, moves, &Handle::current(), false);
    Ok(Live { requests, line: watch.over(drive) })
}

/// Why a call has failed.
enum Trouble {
    Connection(h2::Error),
    Refused(Box<Status>),
}

impl From<h2::Error> for Trouble {
    fn from(error: h2::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

async fn exchange<Q: Unary>(
    requests: SendRequest<Bytes>,
    head: Request<()>,
    message: &Q,
) -> Result<Q::Answer, Trouble> {
    let (response, mut body) = requests.ready().await?.send_request(head, false)?;
    body.send_data(framed(message), true)?;
    let (head, mut body) = response.await?.into_parts();
    check(&head.headers, false)?;
    let mut answer = Vec::new();
    while let Some(some) = body.data().await {
        let some = some?;
        body.flow_control().release_capacity(some.len())?;
        answer.extend_from_slice(&some);
    }
    if let Some(end) = body.trailers().await? {
        check(&end, true)?;
    }
    let Some((&[0, _, _, _, _], message)) = answer.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Status::internal(format!("the server answered with {}", head.status)).into());
    };
    Ok(Q::Answer::decode(message).map_err(|error| Status::internal(error.to_string()))?)
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(&mut bytes);
    bytes.into()
}

/// What the server says of the call: in the end of an answer, or in its head if it has nothing else to say.
fn check(headers: &HeaderMap, must_say: bool) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() == Code::Ok => Ok(()),
        Some(status) => Err(status),
        None if must_say => Err(Status::unknown("the server did not say how the call ended")),
        None => Ok(()),
    }
}
