//! ZooKeeper sessions: requests go out in order, replies come back in order, across reconnects; a new session after one expired.
//!
//! A client of our own, since a lock needs what the ready-made ones do not give: no delay between a create and the look
//! that follows it (one write for both), and a hold that knows when the leader last replied.

use crate::config::Settings;
use crate::connection::{self, trusted};
use crate::error::RequestError;
use crate::jute::{Garbled, Reader};
use crate::protocol::{self, Outcome, Request, Stat};
use crate::shared::{Sending, Shared, Status, Wake};
use lockkeeper_core::engine::{Clock, Lifeline, Moment, background};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long to look for a server that opens a session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(8);

/// One session. Its connection lives on the background runtime; the session is closed when this is dropped.
pub(crate) struct Session {
    shared: Arc<Shared>,
    id: i64,
    timeout: Duration,
    lifeline: Lifeline,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session(0x{:x}, {:?})", self.id, self.timeout)
    }
}

impl Session {
    /// Opens a session and waits for it.
    async fn open(settings: Arc<Settings>) -> Result<Arc<Self>, RequestError> {
        let (shared, requests) = Shared::new();
        // From here on the session is closed if this future is dropped.
        let mut session =
            Self { shared: Arc::clone(&shared), id: 0, timeout: Duration::ZERO, lifeline: Lifeline::new() };
        background::handle().spawn(async move { connection::run(&shared, requests, &settings).await });
        session.connected(OPEN_TIMEOUT).await?;
        {
            let state = session.shared.state();
            (session.id, session.timeout) = (state.session, state.timeout);
        }
        // Made by the handshake, before the session counts as connected.
        session.lifeline = session.shared.lifeline().cloned().ok_or(RequestError::Expired)?;
        Ok(Arc::new(session))
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Which of its connections is in use. Requests of one connection are done in their order; one that was
    /// under way on an earlier connection may still arrive late.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.state().epoch
    }

    /// Whether a connection takes requests now.
    pub(crate) fn is_connected(&self) -> bool {
        *self.shared.status.borrow() == Status::Connected
    }

    /// Whether it is over for good, so that every node it made is gone or going.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.status.borrow().is_over()
    }

    /// Resolves when it is over for good.
    pub(crate) async fn over(&self) {
        // The sender lives as long as this.
        let _ = self.shared.status.subscribe().wait_for(Status::is_over).await;
    }

    /// Resolves when requests could not be sent for this long. The server may still have the session.
    pub(crate) async fn away(&self, timeout: Duration) -> RequestError {
        let mut status = self.shared.status.subscribe();
        loop {
            // The sender lives as long as this.
            let _ = status.wait_for(|status| *status != Status::Connected).await;
            if let Err(error) = self.connected(timeout).await {
                return error;
            }
        }
    }

    /// Waits until requests can be sent.
    pub(crate) async fn connected(&self, timeout: Duration) -> Result<(), RequestError> {
        if *self.shared.status.borrow() == Status::Connected {
            return Ok(());
        }
        let mut status = self.shared.status.subscribe();
        let settled = status.wait_for(|status| !matches!(status, Status::Connecting(_)));
        if let Ok(Ok(status)) = Clock::Boot.timeout(timeout, settled).await {
            return status.as_error().map_or(Ok(()), Err);
        }
        let now = self.shared.status.borrow().clone();
        now.as_error().map_or(Ok(()), Err)
    }

    /// What its claims are tied to.
    pub(crate) fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }

    /// When the last sign of life was sent that the leader has replied to.
    pub(crate) fn alive_as_of(&self) -> Option<Moment> {
        self.shared.state().alive_as_of
    }

    /// Several requests that go out in one piece.
    pub(crate) fn requests(&self) -> Requests<'_> {
        Requests { session: self, requests: Vec::new() }
    }

    /// A directory's children as of now: for a look after a reconnect, when another server may lag behind.
    pub(crate) async fn children_now(
        &self,
        path: &str,
        limit: Duration,
    ) -> Result<Vec<String>, RequestError> {
        let mut requests = self.requests();
        requests.add_without_reply(Request::sync(path));
        let children = requests.children(path);
        requests.send();
        children.within(limit).await
    }

    pub(crate) async fn children(&self, path: &str, limit: Duration) -> Result<Vec<String>, RequestError> {
        self.request(Request::children(path), |reader| reader.texts(), limit).await
    }

    pub(crate) async fn delete(&self, path: &str, limit: Duration) -> Result<(), RequestError> {
        self.request(Request::delete(path), |_| Ok(()), limit).await
    }

    pub(crate) async fn exists(&self, path: &str, limit: Duration) -> Result<Stat, RequestError> {
        self.request(Request::exists(path), protocol::read_stat, limit).await
    }

    pub(crate) async fn data(&self, path: &str, limit: Duration) -> Result<(Vec<u8>, Stat), RequestError> {
        self.request(Request::data(path, false), protocol::read_data, limit).await
    }

    /// The paths of all nodes that it has made and that still stand, as of what the server in use knows.
    pub(crate) async fn ephemerals(&self, limit: Duration) -> Result<Vec<String>, RequestError> {
        self.request(Request::ephemerals(), |reader| reader.texts(), limit).await
    }

    /// Runs several steps, all or none; on error, the code of the step that was refused.
    pub(crate) async fn multi(
        &self,
        steps: &[protocol::Step<'_>],
        limit: Duration,
    ) -> Result<Vec<Outcome>, RequestError> {
        all_done(self.request(Request::multi(steps), protocol::read_multi, limit).await?)
    }

    /// Sends one request and waits for its reply.
    async fn request<T>(&self, request: Request, read: Read<T>, limit: Duration) -> Result<T, RequestError> {
        let mut requests = self.requests();
        let reply = requests.add(request, read);
        requests.send();
        reply.within(limit).await
    }

    /// Closes the session and with it every node it made; waits a moment until the server has confirmed.
    async fn close(&self) {
        self.shared.close();
        let _ = Clock::Boot.timeout(Duration::from_secs(2), self.over()).await;
    }
}

/// The outcomes of a multi, if it was done; else the code of the step that was refused.
pub(crate) fn all_done(outcomes: Vec<Outcome>) -> Result<Vec<Outcome>, RequestError> {
    let refused = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Failed(code) if *code != 0 => Some(*code),
        _ => None,
    });
    refused.map_or(Ok(outcomes), |code| Err(RequestError::Refused(code)))
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// How to read the body of a reply.
pub(crate) type Read<T> = fn(&mut Reader<'_>) -> Result<T, Garbled>;

/// Requests that go out in one piece and are replied to in their order.
pub(crate) struct Requests<'a> {
    session: &'a Session,
    requests: Vec<Sending>,
}

impl Requests<'_> {
    pub(crate) fn add<T>(&mut self, request: Request, read: Read<T>) -> Reply<T> {
        let (sender, reply) = oneshot::channel();
        self.requests.push((request, Some(sender)));
        Reply { reply, read }
    }

    pub(crate) fn add_without_reply(&mut self, request: Request) {
        self.requests.push((request, None));
    }

    pub(crate) fn children(&mut self, path: &str) -> Reply<Vec<String>> {
        self.add(Request::children(path), |reader| reader.texts())
    }

    /// Reads a node and wakes the caller when the node changes or goes. A node that is not there sets no watch.
    pub(crate) fn watch(&mut self, path: &str, wake: &Wake) -> Reply<(Vec<u8>, Stat)> {
        self.session.shared.state().watch(path, wake);
        self.add(Request::data(path, true), protocol::read_data)
    }

    pub(crate) fn send(self) {
        self.session.shared.send(self.requests);
    }
}

/// The reply to one request, to come.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    reply: oneshot::Receiver<Result<Vec<u8>, RequestError>>,
    read: Read<T>,
}

impl<T> Reply<T> {
    /// Waits for it, with a timer of the caller's. Dropping the future does not take the request back.
    pub(crate) async fn within(self, limit: Duration) -> Result<T, RequestError> {
        match Clock::Boot.timeout(limit, self.reply).await {
            Ok(Ok(body)) => Ok((self.read)(&mut Reader(&body?))?),
            Ok(Err(_)) => Err(RequestError::Unknown("the session was closed".into())),
            Err(_) => Err(RequestError::Unknown(format!("no reply within {limit:?}"))),
        }
    }
}

/// The session in use. All claims of a keeper live in one; when it expires they are dead, and later claims get a new one.
#[derive(Debug)]
pub(crate) struct Sessions {
    settings: Arc<Settings>,
    present: Mutex<Arc<Session>>,
    /// Held by the task that opens the next session, so that there is only one.
    opening: tokio::sync::Mutex<()>,
    timeout: Duration,
    closed: AtomicBool,
}

impl Sessions {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, RequestError> {
        let first = Session::open(Arc::clone(&settings)).await?;
        Ok(Self {
            settings,
            timeout: first.timeout,
            present: Mutex::new(first),
            opening: tokio::sync::Mutex::new(()),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How long the server keeps a session without a sign of life, as negotiated: the keeper's TTL.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The time limit of one request: a third of the time that a claim is trusted.
    pub(crate) fn limit(&self) -> Duration {
        trusted(self.timeout) / 3
    }

    /// The session in use, be it connected or over.
    pub(crate) fn present(&self) -> Arc<Session> {
        Arc::clone(&self.present.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The session a claim was made in, unless that is over and the claim dead with it.
    pub(crate) fn living(&self, id: i64) -> Option<Arc<Session>> {
        Some(self.present()).filter(|session| session.id() == id && !session.is_over())
    }

    /// A session that takes requests; a new one if the last is over.
    pub(crate) async fn usable(&self) -> Result<Arc<Session>, RequestError> {
        let mut session = self.present();
        if session.is_over() {
            session = self.next().await?;
        }
        session.connected(self.limit()).await?;
        Ok(session)
    }

    async fn next(&self) -> Result<Arc<Session>, RequestError> {
        let _only_one = self.opening.lock().await;
        let present = self.present();
        if !present.is_over() {
            return Ok(present);
        }
        if self.closed.load(SeqCst) {
            return Err(RequestError::Expired);
        }
        let next = Session::open(Arc::clone(&self.settings)).await?;
        if next.timeout < self.timeout {
            return Err(RequestError::NotSent(format!(
                "the server now gives sessions of {:?} only; connect again",
                next.timeout
            )));
        }
        tracing::info!(session = next.id(), "new ZooKeeper session; claims of the last one are lost");
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        Ok(next)
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, SeqCst);
        self.present().close().await;
    }
}
