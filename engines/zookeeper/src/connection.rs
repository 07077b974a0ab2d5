//! The task behind a session: connects, greets, shows life, reads replies, and connects again.

use crate::config::Settings;
use crate::failure::{Failure, code};
use crate::jute::Reader;
use crate::protocol::{self, Header, Request, Welcome, XID_AUTH, XID_EVENT, XID_SET_WATCHES};
use crate::transport::{self, Incoming, Outgoing};
use crate::wire::{Shared, Status};
use lockkeeper_core::background;
use lockkeeper_core::drive::{Drive, Moves};
use rand::seq::SliceRandom as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How often a sign of life is sent, as a part of the session's timeout. Together with half a tick of the server (at
/// most a quarter of the timeout, with the server's defaults) it is the third of the timeout that the keeper
/// does not count on: see [`trusted`].
const PULSES_PER_TIMEOUT: u32 = 12;

/// How often the house looks whether another runtime, which drives the connection, does so: this part of the timeout, at most
/// [`LOOK_AFTER`].
const LOOKS_PER_TIMEOUT: u32 = 50;
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// How long a claim may be trusted after a request that reached the leader, of a session with this timeout.
///
/// A server that is not the leader tells it of our signs of life only every half tick. If it is cut off, the
/// leader counts the timeout from an earlier sign than our last one: one pulse and half a tick earlier.
pub(crate) fn trusted(timeout: Duration) -> Duration {
    timeout * 2 / 3
}

/// Keeps a session connected until it is over. Runs on the house's runtime; who reads may be another.
pub(crate) async fn run(shared: Arc<Shared>, settings: Arc<Settings>) {
    let mut order: Vec<usize> = (0..settings.servers.len()).collect();
    order.shuffle(&mut rand::rng());
    let mut pause = Duration::from_millis(10);
    for (attempt, server) in order.iter().cycle().enumerate() {
        let why = match greet(&shared, &settings, *server).await {
            Ok((link, welcome)) => {
                pause = Duration::from_millis(10);
                let why = link.serve(&shared, &settings, &welcome).await;
                tracing::debug!(session = welcome.session, %why, "the connection to ZooKeeper ended");
                why
            }
            Err(failure) => failure,
        };
        let status = match why {
            Failure::Expired => Status::Expired,
            Failure::AuthFailed => Status::AuthFailed,
            _ if shared.is_ended() => Status::Closed,
            other => Status::Connecting(format!("{}: {other}", settings.servers[*server].0)),
        };
        let over = status.is_over();
        shared.shut(status);
        if over {
            return;
        }
        if (attempt + 1).is_multiple_of(order.len()) {
            // The session lives on at the server: be quick, but not busy.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shared.when_ended() => {}
            }
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }
}

/// One connection.
struct Link {
    incoming: Incoming,
    outgoing: Outgoing,
    buffer: Vec<u8>,
    moves: Moves,
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::Unknown(error.to_string())
}

/// Connects to one server and opens the session there, or takes it up again.
async fn greet(shared: &Shared, settings: &Settings, server: usize) -> Result<(Link, Welcome), Failure> {
    let patience = (settings.timeout / 6).clamp(Duration::from_millis(250), Duration::from_secs(5));
    let greeting = async {
        let moves = Moves::default();
        let connected = transport::connect(settings, server, Arc::clone(&moves)).await;
        let (incoming, outgoing) = connected.map_err(lost)?;
        let mut link = Link { incoming, outgoing, buffer: Vec::new(), moves };
        let hello = {
            let wire = shared.wire();
            let timeout_ms = i32::try_from(settings.timeout.as_millis()).unwrap_or(i32::MAX);
            protocol::hello(wire.last_zxid, timeout_ms, wire.session, &wire.password)
        };
        link.outgoing.write_all(&hello).await.map_err(lost)?;
        let welcome = loop {
            if let Some(body) = take_frame(&mut link.buffer)? {
                break Welcome::read(&body)?;
            }
            link.incoming.read(&mut link.buffer).await.map_err(lost)?;
        };
        // Another session than ours means that everything of ours is gone, whatever still stands there.
        let ours = shared.wire().session;
        if welcome.session == 0 || (ours != 0 && ours != welcome.session) {
            return Err(Failure::Expired);
        }
        Ok((link, welcome))
    };
    tokio::select! {
        greeted = greeting => greeted,
        () = tokio::time::sleep(patience) => Err(lost(format_args!("nothing within {patience:?}"))),
        () = shared.when_ended() => Err(lost("the session was closed")),
    }
}

/// The first whole message of the buffer.
fn take_frame(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
    let mut reader = Reader(buffer);
    let Ok(length) = reader.int() else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_| lost("a message of negative length"))?;
    let Ok(body) = reader.take(length) else { return Ok(None) };
    let body = body.to_vec();
    buffer.drain(..4 + length);
    Ok(Some(body))
}

impl Link {
    /// Serves until the connection ends; says why it ended.
    async fn serve(self, shared: &Arc<Shared>, settings: &Settings, welcome: &Welcome) -> Failure {
        let timeout = Duration::from_millis(u64::try_from(welcome.timeout_ms).unwrap_or_default());
        {
            let mut wire = shared.wire();
            wire.session = welcome.session;
            wire.password.clone_from(&welcome.password);
            wire.timeout = timeout;
            wire.heard = Instant::now();
        }
        shared.kept_with(timeout - trusted(timeout));
        let Self { incoming, mut outgoing, buffer, moves } = self;
        let auth = settings.auth.iter().map(|(scheme, secret)| Request::auth(scheme, secret.as_bytes()));
        let (ends, end) = oneshot::channel();
        let reading = {
            let shared = Arc::clone(shared);
            async move {
                let _ = ends.send(receive(incoming, buffer, &shared).await);
            }
        };
        // Only whoever reads the bare socket can be another from one moment to the next.
        let socket = outgoing.shared_socket();
        let drive = Arc::new(Drive::start(reading, moves, background::handle(), true));
        let roaming = socket.is_some().then(|| Arc::clone(&drive));
        shared.open(socket, roaming, auth);
        let why = tokio::select! {
            failure = end => failure.unwrap_or_else(|_| lost("nobody reads any more")),
            failure = tend(shared, &drive, timeout) => failure,
            error = outgoing.pump(shared) => lost(error),
            failure = farewell(shared) => failure,
        };
        // Nothing may be heard of this connection after its end.
        drive.close();
        why
    }
}

/// Reads replies and events, on whatever runtime.
async fn receive(mut incoming: Incoming, mut buffer: Vec<u8>, shared: &Shared) -> Failure {
    loop {
        if let Err(failure) = handle_all(&mut buffer, shared) {
            return failure;
        }
        if let Err(error) = incoming.read(&mut buffer).await {
            return lost(error);
        }
        shared.wire().heard = Instant::now();
    }
}

/// Shows life, and sees to it that somebody reads; ends when the server is silent for too long.
async fn tend(shared: &Shared, drive: &Drive, timeout: Duration) -> Failure {
    let pulse = timeout / PULSES_PER_TIMEOUT;
    let look_after = (timeout / LOOKS_PER_TIMEOUT).clamp(Duration::from_millis(1), LOOK_AFTER);
    let longest_silence = timeout * 2 / 5;
    let mut pulses = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    let mut look = std::pin::pin!(tokio::time::sleep(look_after));
    let mut before = None;
    let mut suspected = None;
    let mut ticks = 0u32;
    loop {
        tokio::select! {
            () = shared.moved_away.notified() => {
                before = Some(shared.wire().progress());
                look.as_mut().reset(Instant::now() + look_after);
            }
            () = &mut look, if before.is_some() => {
                let progress = shared.wire().progress();
                // A runtime that asks nothing any more, or does not read its answers, may be blocked or idle.
                if before.is_some_and(|before| progress.has_stopped_since(before)) {
                    shared.wire().begin_anew();
                    drive.go_home();
                }
                before = (!drive.is_home()).then_some(progress);
                look.as_mut().reset(Instant::now() + look_after);
            }
            () = &mut pulses => {
                let heard = shared.wire().heard;
                if heard.elapsed() > longest_silence {
                    if suspected == Some(heard) {
                        return lost(format_args!("silent for {:?}", heard.elapsed()));
                    }
                    // After a pause of this process, what has come meanwhile may not have been read yet.
                    suspected = Some(heard);
                    drive.go_home();
                    pulses.as_mut().reset(Instant::now() + look_after);
                    continue;
                }
                // A request that the leader answers is as good.
                let not_before = pulse.saturating_sub(shared.wire().since_last_sign());
                let is_due = ticks == 0 || not_before.is_zero();
                if is_due {
                    shared.send_pulse();
                }
                pulses.as_mut().reset(Instant::now() + if is_due { pulse } else { not_before });
                ticks = ticks.wrapping_add(1);
                if ticks.is_multiple_of(16 * PULSES_PER_TIMEOUT) {
                    shared.wire().prune_watches();
                }
            }
        }
    }
}

/// Handles every whole message of the buffer.
fn handle_all(buffer: &mut Vec<u8>, shared: &Shared) -> Result<(), Failure> {
    let mut rest = Reader(buffer);
    loop {
        let mut peek = rest;
        let Ok(length) = peek.int() else { break };
        let length = usize::try_from(length).map_err(|_| lost("a message of negative length"))?;
        let Ok(body) = peek.take(length) else { break };
        handle(Reader(body), shared)?;
        rest = peek;
    }
    let used = buffer.len() - rest.0.len();
    buffer.drain(..used);
    Ok(())
}

fn handle(mut reader: Reader<'_>, shared: &Shared) -> Result<(), Failure> {
    let header = Header::read(&mut reader)?;
    match (header.xid, header.code) {
        (_, code::SESSION_EXPIRED) => Err(Failure::Expired),
        (_, code::AUTH_FAILED) => Err(Failure::AuthFailed),
        (XID_EVENT, _) => {
            let path = protocol::event_path(&mut reader)?;
            shared.wire().fired(&path);
            Ok(())
        }
        (XID_AUTH | XID_SET_WATCHES, _) => Ok(()),
        (xid, code) => {
            let mut wire = shared.wire();
            wire.last_zxid = wire.last_zxid.max(header.zxid);
            let awaited = wire.take_awaited(xid).ok_or_else(|| lost("a reply nobody asked for"))?;
            let sign = awaited.sign.filter(|_| code == 0);
            sign.into_iter().for_each(|sent| wire.alive(sent));
            drop(wire);
            if sign.is_some() {
                shared.alive();
            }
            if let Some(reply) = awaited.by {
                let answer = if code == 0 { Ok(reader.0.to_vec()) } else { Err(Failure::Refused(code)) };
                let _ = reply.send(answer);
            }
            Ok(())
        }
    }
}

/// Waits for the session's end, tells the server, and gives it a moment to agree: it closes the connection.
async fn farewell(shared: &Shared) -> Failure {
    shared.when_ended().await;
    let (reply, closed) = tokio::sync::oneshot::channel();
    shared.send(vec![(Request::close(), reply)]);
    let _ = tokio::time::timeout(Duration::from_secs(2), closed).await;
    lost("the session was closed")
}
