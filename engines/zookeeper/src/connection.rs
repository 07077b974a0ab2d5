//! The task of a session's connection, on the background runtime: connects, keeps the session alive, sends, receives, reconnects.

use crate::config::Settings;
use crate::error::{RequestError, code};
use crate::jute::Reader;
use crate::protocol::{self, ConnectReply, Header, Request, XID_AUTH, XID_EVENT, XID_SET_WATCHES};
use crate::shared::{Requests, Shared, Status};
use lockkeeper_core::engine::Clock;
use rand::seq::SliceRandom as _;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::rustls::pki_types::ServerName;

/// How often a sign of life is sent, as a part of the session's timeout. Together with half a tick of the server (at
/// most a quarter of the timeout, with the server's defaults) it is the third of the timeout that the keeper
/// does not count on: see [`trusted`].
const SIGNS_PER_TIMEOUT: u32 = 12;

/// Room that is made for what arrives: most replies are much smaller.
const READ_BYTES: usize = 4096;

/// Requests that wait are sent in one write up to this size.
const WRITE_BYTES: usize = 64 * 1024;

/// The pause between two rounds over all servers.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The same when new sessions were requested and, after a while, not confirmed: each is a write of the whole ensemble, which may
/// be overloaded, and is there until it expires.
const SHORTEST_PAUSE_UNCONFIRMED: Duration = Duration::from_millis(400);
const LONGEST_PAUSE_UNCONFIRMED: Duration = Duration::from_secs(3);

/// How long a claim may be trusted after a request that reached the leader, of a session with this timeout.
///
/// A server that is not the leader reports our signs of life to it only every half tick. If it is cut off, the
/// leader counts the timeout from an earlier sign than our last one: one sign and half a tick earlier.
pub(crate) fn trusted(timeout: Duration) -> Duration {
    timeout * 2 / 3
}

/// Keeps a session connected until it is over.
pub(crate) async fn run(shared: &Shared, mut requests: Requests, settings: &Settings) {
    let mut order: Vec<usize> = (0..settings.servers.len()).collect();
    order.shuffle(&mut rand::rng());
    let mut pause = SHORTEST_PAUSE;
    // In this round.
    let mut was_unconfirmed = false;
    for (attempt, server) in order.iter().cycle().enumerate() {
        let began = Instant::now();
        let why = match handshake(shared, settings, *server).await {
            Ok(connection) => {
                pause = SHORTEST_PAUSE;
                let why = connection.serve(shared, &mut requests, settings).await;
                tracing::debug!(session = shared.state().session, %why, "connection to ZooKeeper lost");
                why
            }
            Err(error) => error,
        };
        was_unconfirmed |= shared.state().session == 0 && began.elapsed() >= SHORTEST_PAUSE_UNCONFIRMED;
        let status = match why {
            RequestError::Expired => Status::Expired,
            RequestError::AuthFailed => Status::AuthFailed,
            _ if shared.is_closing() => Status::Closed,
            other => Status::Connecting(format!("{}: {other}", settings.servers[*server].0)),
        };
        let is_over = status.is_over();
        shared.disconnected(status, &mut requests);
        if is_over {
            return;
        }
        if (attempt + 1).is_multiple_of(order.len()) {
            let (shortest, longest) = if std::mem::take(&mut was_unconfirmed) {
                (SHORTEST_PAUSE_UNCONFIRMED, LONGEST_PAUSE_UNCONFIRMED)
            } else {
                // The server is not there yet, or the session lives on there: be quick, but not busy.
                (SHORTEST_PAUSE, LONGEST_PAUSE)
            };
            pause = pause.clamp(shortest, longest);
            tokio::select! {
                () = Clock::Boot.sleep(pause.mul_f64(rand::random_range(0.7..1.0))) => {}
                () = shared.when_closing() => {}
            }
            pause *= 2;
        }
    }
}

/// A socket, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One connection whose session the server has confirmed.
struct Connection {
    incoming: ReadHalf<Box<dyn Stream>>,
    outgoing: WriteHalf<Box<dyn Stream>>,
    /// What came behind the handshake.
    received: Vec<u8>,
    timeout: Duration,
}

fn lost(error: impl std::fmt::Display) -> RequestError {
    RequestError::Unknown(error.to_string())
}

async fn connect(settings: &Settings, server: usize) -> io::Result<Box<dyn Stream>> {
    let (host, port) = &settings.servers[server];
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    // A create and the look behind it must not wait for each other's acknowledgement.
    stream.set_nodelay(true)?;
    match &settings.tls {
        None => Ok(Box::new(stream)),
        Some(connector) => {
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            Ok(Box::new(connector.connect(name, stream).await?))
        }
    }
}

/// Connects to one server and opens the session there, or resumes it.
async fn handshake(shared: &Shared, settings: &Settings, server: usize) -> Result<Connection, RequestError> {
    // A session that exists must find another server soon; a new one may wait for a server that has just started.
    let shortest =
        if shared.state().session == 0 { Duration::from_secs(2) } else { Duration::from_millis(250) };
    let limit = (settings.timeout / 6).clamp(shortest, Duration::from_secs(5));
    tokio::select! {
        done = handshake_without_timeout(shared, settings, server) => done,
        () = Clock::Boot.sleep(limit) => Err(lost(format_args!("no reply within {limit:?}"))),
        () = shared.when_closing() => Err(lost("the session was closed")),
    }
}

async fn handshake_without_timeout(
    shared: &Shared,
    settings: &Settings,
    server: usize,
) -> Result<Connection, RequestError> {
    let (mut incoming, mut outgoing) = tokio::io::split(connect(settings, server).await.map_err(lost)?);
    let request = {
        let state = shared.state();
        let timeout_ms = i32::try_from(settings.timeout.as_millis()).unwrap_or(i32::MAX);
        protocol::connect(state.last_zxid(), timeout_ms, state.session, &state.password)
    };
    outgoing.write_all(&request).await.map_err(lost)?;
    outgoing.flush().await.map_err(lost)?;
    let mut received = Vec::new();
    let mut reply = None;
    while reply.is_none() {
        read(&mut incoming, &mut received).await.map_err(lost)?;
        let rest = match next_frame(Reader(&received))? {
            Some((body, rest)) => {
                reply = Some(ConnectReply::read(body)?);
                rest.0.len()
            }
            None => received.len(),
        };
        received.drain(..received.len() - rest);
    }
    let reply = reply.ok_or(RequestError::Expired)?;
    let mut state = shared.state();
    // Another session than ours means that everything of ours is gone, whatever still stands there.
    if reply.session == 0 || (state.session != 0 && state.session != reply.session) {
        return Err(RequestError::Expired);
    }
    let timeout = Duration::from_millis(u64::try_from(reply.timeout_ms).unwrap_or_default());
    (state.session, state.password, state.timeout) = (reply.session, reply.password, timeout);
    drop(state);
    shared.kept_with(timeout - trusted(timeout));
    Ok(Connection { incoming, outgoing, received, timeout })
}

/// The first whole message, and what is behind it.
fn next_frame(mut bytes: Reader<'_>) -> Result<Option<(&[u8], Reader<'_>)>, RequestError> {
    let Ok(length) = bytes.int() else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_| lost("a message of negative length"))?;
    Ok(bytes.take(length).ok().map(|body| (body, bytes)))
}

/// Appends what has arrived; an error at the end of the stream.
async fn read(incoming: &mut ReadHalf<Box<dyn Stream>>, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.reserve(READ_BYTES);
    match incoming.read_buf(buffer).await? {
        0 => Err(io::Error::other("the server closed the connection")),
        _ => Ok(()),
    }
}

impl Connection {
    /// Serves until the connection ends; says why it ended.
    async fn serve(self, shared: &Shared, requests: &mut Requests, settings: &Settings) -> RequestError {
        let auth = settings.auth.iter().map(|(scheme, secret)| Request::auth(scheme, secret.as_bytes()));
        let first = auth.chain(shared.connected());
        let first = first.flat_map(|request| request.frame(0)).collect();
        tokio::select! {
            // First what has come: silence is judged by it.
            biased;
            error = receive(self.incoming, self.received, shared) => error,
            error = transmit(self.outgoing, first, requests, shared) => lost(error),
            error = keep_alive(shared, self.timeout) => error,
            error = close(shared) => error,
        }
    }
}

/// Sends what comes through the channel, behind these first bytes.
async fn transmit(
    mut outgoing: WriteHalf<Box<dyn Stream>>,
    mut bytes: Vec<u8>,
    requests: &mut Requests,
    shared: &Shared,
) -> io::Error {
    loop {
        let sent = async {
            outgoing.write_all(&bytes).await?;
            outgoing.flush().await
        };
        if let Err(error) = sent.await {
            return error;
        }
        bytes.clear();
        let Some(first) = requests.recv().await else { return io::Error::other("the session was dropped") };
        shared.encode(first, &mut bytes);
        while bytes.len() < WRITE_BYTES
            && let Ok(next) = requests.try_recv()
        {
            shared.encode(next, &mut bytes);
        }
    }
}

/// Reads replies and events.
async fn receive(
    mut incoming: ReadHalf<Box<dyn Stream>>,
    mut buffer: Vec<u8>,
    shared: &Shared,
) -> RequestError {
    loop {
        if let Err(error) = handle_all(&mut buffer, shared) {
            return error;
        }
        if let Err(error) = read(&mut incoming, &mut buffer).await {
            return lost(error);
        }
    }
}

/// Handles every whole message of the buffer.
fn handle_all(buffer: &mut Vec<u8>, shared: &Shared) -> Result<(), RequestError> {
    let mut rest = Reader(buffer);
    while let Some((body, next)) = next_frame(rest)? {
        handle(Reader(body), shared)?;
        rest = next;
    }
    let used = buffer.len() - rest.0.len();
    buffer.drain(..used);
    Ok(())
}

fn handle(mut reader: Reader<'_>, shared: &Shared) -> Result<(), RequestError> {
    let header = Header::read(&mut reader)?;
    match (header.xid, header.code) {
        (_, code::SESSION_EXPIRED) => Err(RequestError::Expired),
        (_, code::AUTH_FAILED) => Err(RequestError::AuthFailed),
        (XID_EVENT, _) => {
            shared.state().fired(&protocol::event_path(&mut reader)?);
            Ok(())
        }
        (XID_AUTH | XID_SET_WATCHES, _) => Ok(()),
        (xid, code) => {
            let reply = if code == 0 { Ok(reader.0.to_vec()) } else { Err(RequestError::Refused(code)) };
            let is_awaited = shared.replied(xid, header.zxid, reply);
            if is_awaited { Ok(()) } else { Err(lost("a reply to no request")) }
        }
    }
}

/// Sends signs of life; ends when the server is silent for too long.
async fn keep_alive(shared: &Shared, timeout: Duration) -> RequestError {
    let every = timeout / SIGNS_PER_TIMEOUT;
    let longest_silence = timeout * 2 / 5;
    // After a pause of this process, what has come meanwhile may not have been read yet.
    let grace = (timeout / 50).clamp(Duration::from_millis(1), Duration::from_millis(50));
    let mut is_suspected = false;
    shared.send_sign();
    let mut pause = every;
    loop {
        Clock::Boot.sleep(pause).await;
        let (silence, since_last_sign) = {
            let mut state = shared.state();
            state.prune_watches();
            (state.silence(), state.since_last_sign())
        };
        if silence > longest_silence {
            if is_suspected {
                return lost(format_args!("silent for {silence:?}"));
            }
            (is_suspected, pause) = (true, grace);
            continue;
        }
        is_suspected = false;
        // A request that the leader replies to is as good.
        pause = every.saturating_sub(since_last_sign);
        if pause.is_zero() {
            shared.send_sign();
            pause = every;
        }
    }
}

/// Waits until the session is to be closed, sends that to the server, and gives it a moment to close the connection.
async fn close(shared: &Shared) -> RequestError {
    shared.when_closing().await;
    let (reply, closed) = oneshot::channel();
    shared.send(vec![(Request::close(), Some(reply))]);
    let _ = Clock::Boot.timeout(Duration::from_secs(2), closed).await;
    lost("the session was closed")
}
