//! What a session's handle and the task of its connection share: the status, requests under way, watches. Apart, since one is
//! on the caller's runtime and the other on the background's.

use crate::error::RequestError;
use crate::protocol::Request;
use lockkeeper_core::engine::{Clock, Lifeline, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Where the reply to a request goes.
pub(crate) type Reply = oneshot::Sender<Result<Vec<u8>, RequestError>>;

/// A request, and who waits for its reply: nobody, if it only keeps the session alive.
pub(crate) type Sending = (Request, Option<Reply>);

/// The connection's end of the channel; what comes in one piece is sent in one piece.
pub(crate) type Requests = mpsc::UnboundedReceiver<Vec<Sending>>;

/// Woken once by a watch; a wake before anybody waits is kept.
pub(crate) type Wake = Arc<Notify>;

/// How a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// No connection now; says why not.
    Connecting(String),
    Connected,
    /// The server says that it has expired.
    Expired,
    AuthFailed,
    /// We closed it.
    Closed,
}

impl Status {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Expired | Self::AuthFailed | Self::Closed)
    }

    pub(crate) fn as_error(&self) -> Option<RequestError> {
        match self {
            Self::Connected => None,
            Self::Connecting(why) => Some(RequestError::NotSent(why.clone())),
            Self::Expired | Self::Closed => Some(RequestError::Expired),
            Self::AuthFailed => Some(RequestError::AuthFailed),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    requests: mpsc::UnboundedSender<Vec<Sending>>,
    state: Mutex<State>,
    pub(crate) status: watch::Sender<Status>,
    /// The session's claims are tied to it; made when the server has confirmed the session.
    lifeline: OnceLock<Lifeline>,
    closing: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// How many connections the session has had.
    pub(crate) epoch: u64,
    in_flight: VecDeque<InFlight>,
    last_xid: i32,
    /// When the last reply came.
    last_reply: Option<Moment>,
    /// When the last request was sent that reaches the leader.
    last_sign: Option<Moment>,
    /// When the last one was sent that the leader has replied to.
    pub(crate) alive_as_of: Option<Moment>,
    watches: HashMap<String, Vec<Weak<Notify>>>,
    last_zxid: i64,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout: Duration,
}

/// A request that was sent and has no reply yet.
#[derive(Debug)]
struct InFlight {
    xid: i32,
    sent: Moment,
    reaches_leader: bool,
    reply: Option<Reply>,
}

impl Shared {
    /// For a session that has no connection yet, and the requests that will be sent to it.
    pub(crate) fn new() -> (Arc<Self>, Requests) {
        let (sender, requests) = mpsc::unbounded_channel();
        let shared = Self {
            requests: sender,
            state: Mutex::new(State { password: vec![0; 16], ..State::default() }),
            status: watch::Sender::new(Status::Connecting("no server has replied yet".into())),
            lifeline: OnceLock::new(),
            closing: watch::Sender::new(false),
        };
        (Arc::new(shared), requests)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands requests to the connection's task, which sends them in one piece and in the order of these calls.
    pub(crate) fn send(&self, requests: Vec<Sending>) {
        let error = self.status.borrow().as_error();
        match error {
            Some(error) => refuse(requests, &error),
            // If the task has ended, the dropped senders of the replies say so.
            None => drop(self.requests.send(requests)),
        }
    }

    /// Keeps the session alive when nothing else was sent that does.
    ///
    /// Any server replies to a ping, even one that has lost its leader and does not know it yet. A sync goes
    /// through the leader, which refuses it if the session has expired.
    pub(crate) fn send_sign(&self) {
        self.send(vec![(Request::sync("/"), None)]);
    }

    /// Numbers requests, notes that their replies are awaited, and appends their bytes.
    pub(crate) fn encode(&self, requests: Vec<Sending>, bytes: &mut Vec<u8>) {
        let (mut state, sent) = (self.state(), Clock::Boot.now());
        for (request, reply) in requests {
            let (xid, reaches_leader) = (state.next_xid(), request.reaches_leader());
            if reaches_leader {
                state.last_sign = Some(sent);
            }
            state.in_flight.push_back(InFlight { xid, sent, reaches_leader, reply });
            bytes.extend(request.frame(xid));
        }
    }

    /// Gives a reply to the caller that waits for it; replies come in the order of requests.
    pub(crate) fn replied(&self, xid: i32, zxid: i64, reply: Result<Vec<u8>, RequestError>) -> bool {
        let mut state = self.state();
        if state.in_flight.front().is_none_or(|first| first.xid != xid) {
            return false;
        }
        let Some(request) = state.in_flight.pop_front() else { return false };
        state.last_zxid = state.last_zxid.max(zxid);
        state.last_reply = Some(Clock::Boot.now());
        let is_alive = request.reaches_leader && reply.is_ok();
        if is_alive {
            state.alive_as_of = state.alive_as_of.max(Some(request.sent));
        }
        drop(state);
        if let Some(lifeline) = self.lifeline().filter(|_| is_alive) {
            lifeline.trust();
        }
        if let Some(waiting) = request.reply {
            let _ = waiting.send(reply);
        }
        true
    }

    /// The server keeps the session for this timeout, of which the reserve is not counted on.
    pub(crate) fn kept_with(&self, reserve: Duration) {
        let _ = self.lifeline.set(Lifeline::with_reserve(reserve));
    }

    pub(crate) fn lifeline(&self) -> Option<&Lifeline> {
        self.lifeline.get()
    }

    /// A new connection takes requests from now on. Returns the requests that set the watches again.
    pub(crate) fn connected(&self) -> Vec<Request> {
        let mut state = self.state();
        state.epoch += 1;
        state.last_reply = Some(Clock::Boot.now());
        let watches = state.watches_again();
        drop(state);
        self.status.send_replace(Status::Connected);
        watches
    }

    /// The connection is gone: what was in flight has an unknown outcome, what waits in the channel was not sent.
    pub(crate) fn disconnected(&self, status: Status, requests: &mut Requests) {
        let in_flight = std::mem::take(&mut self.state().in_flight);
        // First the doubt: who gets an error and requests again must not find 'connected', nor a certain hold.
        match self.lifeline() {
            Some(lifeline) if status.is_over() => lifeline.end(),
            Some(lifeline) => lifeline.doubt(),
            None => {}
        }
        self.status.send_replace(status.clone());
        let not_sent = status.as_error().unwrap_or(RequestError::Expired);
        let unknown = match &status {
            Status::Connecting(why) => RequestError::Unknown(why.clone()),
            _ => not_sent.clone(),
        };
        for reply in in_flight.into_iter().filter_map(|request| request.reply) {
            let _ = reply.send(Err(unknown.clone()));
        }
        while let Ok(waiting) = requests.try_recv() {
            refuse(waiting, &not_sent);
        }
        if status.is_over() {
            let watches = std::mem::take(&mut self.state().watches);
            watches.into_values().flatten().for_each(|waiting| wake(&waiting));
        }
    }

    /// Makes the connection's task close the session.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Resolves when the session is to be closed.
    pub(crate) async fn when_closing(&self) {
        // The sender lives as long as this.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

impl State {
    fn next_xid(&mut self) -> i32 {
        // Zero and below have meanings of their own.
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    pub(crate) fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// For how long nothing was replied although something should have been, whether or not a caller still waits.
    pub(crate) fn silence(&self) -> Duration {
        let oldest = self.in_flight.front().map(|request| request.sent);
        oldest.map_or(Duration::ZERO, |sent| {
            Clock::Boot.now().since(self.last_reply.map_or(sent, |reply| reply.max(sent)))
        })
    }

    /// How long ago the last request was sent that reaches the leader.
    pub(crate) fn since_last_sign(&self) -> Duration {
        Clock::Boot.now().since(self.last_sign.unwrap_or(Moment::ORIGIN))
    }

    /// Remembers who waits for a node to change, before the request is sent. Nodes of claims are never made
    /// twice, so an entry that outlives its node does no harm.
    pub(crate) fn watch(&mut self, path: &str, waiting: &Wake) {
        let all = self.watches.entry(path.to_owned()).or_default();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(waiting));
    }

    /// A watch has fired.
    pub(crate) fn fired(&mut self, path: &str) {
        self.watches.remove(path).into_iter().flatten().for_each(|waiting| wake(&waiting));
    }

    /// Forgets watches nobody waits for any more.
    pub(crate) fn prune_watches(&mut self) {
        self.watches.retain(|_, all| all.iter().any(|waiting| waiting.strong_count() > 0));
    }

    /// The watches to set again on a new connection, in packets the server takes.
    fn watches_again(&mut self) -> Vec<Request> {
        const PATHS_PER_PACKET: usize = 500;
        self.prune_watches();
        let paths: Vec<&str> = self.watches.keys().map(String::as_str).collect();
        let packets = paths.chunks(PATHS_PER_PACKET);
        packets.map(|paths| Request::set_watches(self.last_zxid, paths.iter().copied())).collect()
    }
}

fn refuse(requests: Vec<Sending>, error: &RequestError) {
    for reply in requests.into_iter().filter_map(|(_, reply)| reply) {
        let _ = reply.send(Err(error.clone()));
    }
}

fn wake(waiting: &Weak<Notify>) {
    if let Some(waiting) = waiting.upgrade() {
        waiting.notify_one();
    }
}
