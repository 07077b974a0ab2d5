//! What the two ends of a session share: bytes to send, replies awaited, watches set.

use crate::failure::Failure;
use crate::protocol::Request;
use lockkeeper_core::drive::Drive;
use lockkeeper_core::{Clock, Lifeline, Moment, background};
use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::net::TcpStream as Socket;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

/// Where the answer to a request goes.
pub(crate) type Reply = oneshot::Sender<Result<Vec<u8>, Failure>>;

/// A reply to come.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// Who waits for it; nobody, if it was only sent to show that we live.
    pub(crate) by: Option<Reply>,
    /// When the request was sent, if only a server that has its leader can answer it: then it is a sign of life.
    pub(crate) sign: Option<Moment>,
}

/// With more requests than this under way, new ones are left for the task to write together.
const CROWD: usize = 8;

/// So many requests in a row from one runtime, and it drives the connection itself: then no answer needs a switch of
/// threads. Moving costs about as much as a few such switches.
const MOVES_AFTER: u32 = 8;

/// Rung once by a watch; a ring before anybody listens is kept.
pub(crate) type Bell = Arc<Notify>;

/// How a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// No connection now; says why not.
    Connecting(String),
    Connected,
    /// The server says that it is over.
    Expired,
    AuthFailed,
    /// We ended it.
    Closed,
}

impl Status {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Expired | Self::AuthFailed | Self::Closed)
    }

    pub(crate) fn as_failure(&self) -> Option<Failure> {
        match self {
            Self::Connected => None,
            Self::Connecting(why) => Some(Failure::NotSent(why.clone())),
            Self::Expired | Self::Closed => Some(Failure::Expired),
            Self::AuthFailed => Some(Failure::AuthFailed),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    wire: Mutex<Wire>,
    pub(crate) status: watch::Sender<Status>,
    /// What the session's claims hang on; made when the server has said how long it keeps the session.
    lifeline: OnceLock<Lifeline>,
    /// Bytes are waiting that could not be written at once.
    pub(crate) bytes_wait: Notify,
    /// Another runtime than the house's drives the connection from now on.
    pub(crate) moved_away: Notify,
    ended: AtomicBool,
    end: Notify,
}

#[derive(Debug)]
pub(crate) struct Wire {
    /// Requests are taken.
    open: bool,
    /// How many connections the session has had.
    epoch: u64,
    /// For writing straight from the caller's thread, which saves a switch of threads; not with TLS.
    socket: Option<Arc<Socket>>,
    /// For reading on the caller's thread; not with TLS.
    drive: Option<Arc<Drive>>,
    /// The runtime that sent the last request, and how many in a row.
    asker: (Option<Id>, u32),
    /// How many replies have come.
    answered: u64,
    /// When something came last.
    pub(crate) heard: Instant,
    out: Vec<u8>,
    in_flight: VecDeque<(i32, Awaited)>,
    /// When the last sign of life was sent.
    last_sign: Moment,
    /// When the last one was sent that the leader has answered.
    alive_as_of: Option<Moment>,
    last_xid: i32,
    watches: HashMap<String, Vec<Weak<Notify>>>,
    pub(crate) last_zxid: i64,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout: Duration,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let wire = Wire {
            open: false,
            epoch: 0,
            socket: None,
            drive: None,
            asker: (None, 0),
            answered: 0,
            heard: Instant::now(),
            out: Vec::new(),
            in_flight: VecDeque::new(),
            last_sign: Moment::ORIGIN,
            alive_as_of: None,
            last_xid: 0,
            watches: HashMap::new(),
            last_zxid: 0,
            session: 0,
            password: vec![0; 16],
            timeout: Duration::ZERO,
        };
        Self {
            wire: Mutex::new(wire),
            status: watch::Sender::new(Status::Connecting("no server has answered yet".into())),
            lifeline: OnceLock::new(),
            bytes_wait: Notify::new(),
            moved_away: Notify::new(),
            ended: AtomicBool::new(false),
            end: Notify::new(),
        }
    }

    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends requests in one piece, so that nothing gets between them and one packet carries them.
    pub(crate) fn send(&self, requests: Vec<(Request, Reply)>) {
        let mut wire = self.wire();
        if !wire.open {
            drop(wire);
            let failure = self.status.borrow().as_failure();
            let failure = failure.unwrap_or(Failure::NotSent("the connection was just lost".into()));
            for (_, reply) in requests {
                let _ = reply.send(Err(failure.clone()));
            }
            return;
        }
        let mut bytes = Vec::new();
        for (request, reply) in requests {
            bytes.extend(wire.await_reply(request, Some(reply)));
        }
        let bytes_wait = wire.write(bytes);
        let moves = wire.asked();
        drop(wire);
        if bytes_wait {
            self.bytes_wait.notify_one();
        }
        if let Some(drive) = moves {
            self.move_here(&drive);
        }
    }

    /// Lets whoever asks read the answers, too; the house looks after it.
    fn move_here(&self, drive: &Drive) {
        if drive.is_home() {
            drive.come_here();
            self.moved_away.notify_one();
        } else {
            drive.go_home();
        }
    }

    /// Shows the leader that we live, when nothing else was sent that does.
    ///
    /// Any server answers a ping, even one that has lost its leader and does not know it yet. A sync goes
    /// through the leader, which refuses it if the session has expired.
    pub(crate) fn send_pulse(&self) {
        let mut wire = self.wire();
        let bytes = wire.await_reply(Request::sync("/"), None);
        if wire.write(bytes) {
            drop(wire);
            self.bytes_wait.notify_one();
        }
    }

    /// The leader has just answered: it has the session, and so its claims.
    pub(crate) fn alive(&self) {
        if let Some(lifeline) = self.lifeline() {
            lifeline.trust();
        }
    }

    /// The server keeps the session; so much of its timeout is not counted on.
    pub(crate) fn kept_with(&self, reserve: Duration) {
        let _ = self.lifeline.set(Lifeline::with_reserve(reserve));
    }

    pub(crate) fn lifeline(&self) -> Option<&Lifeline> {
        self.lifeline.get()
    }

    /// Begins to take requests, after these first ones.
    pub(crate) fn open(
        &self,
        socket: Option<Arc<Socket>>,
        drive: Option<Arc<Drive>>,
        first: impl IntoIterator<Item = Request>,
    ) {
        let mut wire = self.wire();
        wire.socket = socket;
        wire.drive = drive;
        wire.out = first.into_iter().flat_map(|request| request.frame(0)).collect();
        let first = wire.watches_again();
        wire.out.extend(first);
        wire.open = true;
        wire.epoch += 1;
        drop(wire);
        self.bytes_wait.notify_one();
        self.status.send_replace(Status::Connected);
    }

    /// The connection is gone; what was in flight has an unknown outcome.
    pub(crate) fn shut(&self, status: Status) {
        let mut wire = self.wire();
        wire.open = false;
        wire.socket = None;
        let drive = wire.drive.take();
        wire.out.clear();
        let in_flight = std::mem::take(&mut wire.in_flight);
        if status.is_over() {
            for bell in wire.watches.drain().flat_map(|(_, bells)| bells) {
                ring(&bell);
            }
        }
        drop(wire);
        drop(drive);
        let failure = match &status {
            Status::Connecting(why) => Failure::Unknown(why.clone()),
            over => over.as_failure().unwrap_or(Failure::Expired),
        };
        // First this: whoever gets a failure and asks again must not find 'connected', nor a hold without doubt.
        match self.lifeline() {
            Some(lifeline) if status.is_over() => lifeline.end(),
            Some(lifeline) => lifeline.doubt(),
            None => {}
        }
        self.status.send_replace(status);
        for (_, awaited) in in_flight {
            if let Some(reply) = awaited.by {
                let _ = reply.send(Err(failure.clone()));
            }
        }
    }

    /// Asks the connection's task to end the session.
    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
        self.end.notify_one();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Resolves when the session is to end.
    pub(crate) async fn when_ended(&self) {
        while !self.is_ended() {
            self.end.notified().await;
        }
    }
}

impl Wire {
    pub(crate) fn identity(&self) -> (i64, Duration) {
        (self.session, self.timeout)
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    fn next_xid(&mut self) -> i32 {
        // Zero and below have meanings of their own.
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// Writes now what the socket takes; says whether the task must be told that something is left for it.
    ///
    /// When many requests are under way, all is left for the task: it is about to be woken by their answers, and
    /// then writes for everybody at once.
    fn write(&mut self, bytes: Vec<u8>) -> bool {
        if !self.out.is_empty() {
            // The task knows already.
            self.out.extend(bytes);
            return false;
        }
        let written = match &self.socket {
            // A broken socket is found out by whoever reads it.
            Some(socket) if self.in_flight.len() <= CROWD => (&**socket).write(&bytes).unwrap_or(0),
            _ => 0,
        };
        self.out.extend_from_slice(&bytes[written..]);
        !self.out.is_empty()
    }

    /// Writes what waits, as far as the socket takes it; says whether something is left. An error ends the connection.
    pub(crate) fn flush(&mut self, mut socket: &Socket) -> std::io::Result<bool> {
        while !self.out.is_empty() {
            match socket.write(&self.out) {
                Ok(written) => drop(self.out.drain(..written)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Notes on which runtime a request was just sent; the connection's driver, if that should change.
    fn asked(&mut self) -> Option<Arc<Drive>> {
        let here = Handle::try_current().ok().map(|here| here.id());
        let in_a_row = if here == self.asker.0 { self.asker.1.saturating_add(1) } else { 1 };
        self.asker = (here, in_a_row);
        let is_house = here == Some(background::handle().id());
        let moves = |drive: &&Arc<Drive>| drive.is_home() != is_house;
        self.drive.as_ref().filter(|_| here.is_some() && in_a_row >= MOVES_AFTER).filter(moves).cloned()
    }

    /// How far requests and replies have come.
    pub(crate) fn progress(&self) -> Progress {
        Progress { asked: self.last_xid, answered: self.answered }
    }

    /// Whoever has asked last must ask some more before it drives.
    pub(crate) fn begin_anew(&mut self) {
        self.asker = (None, 0);
    }

    /// Takes the bytes that wait, for a stream that only its task can write.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Numbers a request and notes that its reply is awaited; the bytes to send.
    fn await_reply(&mut self, request: Request, by: Option<Reply>) -> Vec<u8> {
        let sign = request.reaches_leader().then(|| Clock::Boot.now());
        self.last_sign = self.last_sign.max(sign.unwrap_or(Moment::ORIGIN));
        let xid = self.next_xid();
        self.in_flight.push_back((xid, Awaited { by, sign }));
        request.frame(xid)
    }

    /// What this reply was awaited for; replies come in the order of requests.
    pub(crate) fn take_awaited(&mut self, xid: i32) -> Option<Awaited> {
        self.answered += 1;
        self.in_flight.pop_front_if(|(expected, _)| *expected == xid).map(|(_, awaited)| awaited)
    }

    /// How long ago the last sign of life was sent.
    pub(crate) fn since_last_sign(&self) -> Duration {
        Clock::Boot.now().since(self.last_sign)
    }

    /// The leader has answered a sign of life that was sent at this moment.
    pub(crate) fn alive(&mut self, as_of: Moment) {
        self.alive_as_of = self.alive_as_of.max(Some(as_of));
    }

    pub(crate) fn alive_as_of(&self) -> Option<Moment> {
        self.alive_as_of
    }

    /// Remembers who wants to know of a node, before the request is sent. Nodes of claims are never made
    /// twice, so an entry that outlives its node does no harm.
    pub(crate) fn watch(&mut self, path: &str, bell: &Bell) {
        let bells = self.watches.entry(path.to_owned()).or_default();
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(bell));
    }

    /// A watch has fired, or the node was not there.
    pub(crate) fn fired(&mut self, path: &str) {
        for bell in self.watches.remove(path).into_iter().flatten() {
            ring(&bell);
        }
    }

    /// The watches to set again on a new connection, in packets the server takes; nobody's are forgotten.
    fn watches_again(&mut self) -> Vec<u8> {
        const PATHS_PER_PACKET: usize = 500;
        self.watches.retain(|_, bells| bells.iter().any(|bell| bell.strong_count() > 0));
        let paths: Vec<&str> = self.watches.keys().map(String::as_str).collect();
        let packets = paths.chunks(PATHS_PER_PACKET);
        let last = self.last_zxid;
        packets.flat_map(|paths| Request::set_watches(last, paths.iter().copied()).frame(0)).collect()
    }

    /// Forgets watches nobody waits for any more.
    pub(crate) fn prune_watches(&mut self) {
        self.watches.retain(|_, bells| bells.iter().any(|bell| bell.strong_count() > 0));
    }
}

/// How far requests and replies have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    asked: i32,
    answered: u64,
}

impl Progress {
    /// Whether nothing was asked since then, or nothing answered.
    pub(crate) fn has_stopped_since(self, before: Self) -> bool {
        self.asked == before.asked || self.answered == before.answered
    }
}

fn ring(bell: &Weak<Notify>) {
    if let Some(bell) = bell.upgrade() {
        bell.notify_one();
    }
}
