//! One ZooKeeper session: requests go out in order, replies come back in order, across reconnects.
//!
//! A client of our own, since a lock needs what the ready-made ones do not give: no delay between a create and
//! the look that follows it (TCP_NODELAY, one write for both), and everything on the house's runtime.

use crate::config::Settings;
use crate::failure::Failure;
use crate::jute::{Garbled, Reader};
use crate::protocol::{self, Created, Outcome, Request, Stat};
use crate::wire::{Bell, Reply, Shared, Status};
use lockkeeper_core::{Lifeline, Moment};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// One session. Its connection lives on the house's runtime; the session is closed when this is dropped.
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
    /// Opens a session and waits for it, at most so long.
    pub(crate) async fn open(settings: Arc<Settings>, patience: Duration) -> Result<Arc<Self>, Failure> {
        let shared = Arc::new(Shared::new());
        // From here on the session is closed if this future is dropped.
        let mut session =
            Self { shared: Arc::clone(&shared), id: 0, timeout: Duration::ZERO, lifeline: Lifeline::new() };
        lockkeeper_core::background::handle().spawn(crate::connection::run(shared, settings));
        session.connected(patience).await?;
        (session.id, session.timeout) = session.shared.wire().identity();
        // The server has said how long it keeps the session before it was called connected.
        session.lifeline = session.shared.lifeline().cloned().ok_or(Failure::Expired)?;
        Ok(Arc::new(session))
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// How long the server keeps the session without a sign of life, as negotiated.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Which of its connections is in use. Requests of one connection are done in their order; one that was
    /// under way on an earlier connection may still arrive late.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.wire().epoch()
    }

    /// The latest transaction that the server has told of.
    pub(crate) fn latest_zxid(&self) -> i64 {
        self.shared.wire().last_zxid
    }

    /// Whether it is over for good, so that every node it made is gone or going.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.status.borrow().is_over()
    }

    /// Resolves when it is over for good.
    pub(crate) async fn over(&self) {
        // The sender lives as long as we do.
        let _ = self.shared.status.subscribe().wait_for(Status::is_over).await;
    }

    fn is_connected(&self) -> bool {
        *self.shared.status.borrow() == Status::Connected
    }

    /// Waits until requests can be sent.
    pub(crate) async fn connected(&self, patience: Duration) -> Result<(), Failure> {
        if self.is_connected() {
            return Ok(());
        }
        let mut status = self.shared.status.subscribe();
        let settled = status.wait_for(|status| !matches!(status, Status::Connecting(_)));
        if let Ok(Ok(status)) = tokio::time::timeout(patience, settled).await {
            return status.as_failure().map_or(Ok(()), Err);
        }
        let now = self.shared.status.borrow().clone();
        now.as_failure().map_or(Ok(()), Err)
    }

    /// What its claims hang on.
    pub(crate) fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }

    /// When the last sign of life was sent that the leader has answered.
    pub(crate) fn alive_as_of(&self) -> Option<Moment> {
        self.shared.wire().alive_as_of()
    }

    /// A directory's children as of now: for a look after a reconnect, when another server may lag behind.
    pub(crate) async fn children_now(&self, path: &str, limit: Duration) -> Result<Vec<String>, Failure> {
        let mut batch = self.batch();
        let _synced = batch.add(Request::sync(path), |_| Ok(()));
        let children = batch.children(path);
        batch.send();
        children.within(limit).await
    }

    /// Several requests that go out in one piece.
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch { session: self, requests: Vec::new() }
    }

    pub(crate) async fn delete(&self, path: &str, limit: Duration) -> Result<(), Failure> {
        self.one(Request::delete(path), |_| Ok(())).within(limit).await
    }

    pub(crate) async fn exists(&self, path: &str, limit: Duration) -> Result<Stat, Failure> {
        self.one(Request::exists(path), protocol::read_stat).within(limit).await
    }

    /// The paths of all nodes that it has made and that still stand, as of what the server in use knows.
    pub(crate) async fn ephemerals(&self, limit: Duration) -> Result<Vec<String>, Failure> {
        self.one(Request::ephemerals(), |reader| reader.texts()).within(limit).await
    }

    pub(crate) async fn data(&self, path: &str, limit: Duration) -> Result<(Vec<u8>, Stat), Failure> {
        self.one(Request::data(path, false), protocol::read_data).within(limit).await
    }

    pub(crate) async fn children(&self, path: &str, limit: Duration) -> Result<Vec<String>, Failure> {
        self.one(Request::children(path), |reader| reader.texts()).within(limit).await
    }

    /// Sends one request on its own.
    pub(crate) fn one<T>(&self, request: Request, read: Read<T>) -> Answer<T> {
        let mut batch = self.batch();
        let answer = batch.add(request, read);
        batch.send();
        answer
    }

    /// Runs several steps, all or none; on refusal, the code of the step at fault.
    pub(crate) async fn multi(
        &self,
        steps: &[protocol::Step<'_>],
        limit: Duration,
    ) -> Result<Vec<Outcome>, Failure> {
        all_done(self.one(Request::multi(steps), protocol::read_multi).within(limit).await?)
    }

    /// Ends the session and with it every node it made; waits until the server has agreed, or a little.
    pub(crate) async fn close(&self, patience: Duration) {
        self.shared.end();
        let _ = tokio::time::timeout(patience, self.over()).await;
    }
}

/// The outcomes of a multi, if it was done; else the code of the step at fault.
pub(crate) fn all_done(outcomes: Vec<Outcome>) -> Result<Vec<Outcome>, Failure> {
    let at_fault = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Failed(code) if *code != 0 => Some(*code),
        _ => None,
    });
    at_fault.map_or(Ok(outcomes), |code| Err(Failure::Refused(code)))
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// How to read the body of a reply.
pub(crate) type Read<T> = fn(&mut Reader<'_>) -> Result<T, Garbled>;

/// Requests that go out in one piece and are answered in their order.
pub(crate) struct Batch<'a> {
    session: &'a Session,
    requests: Vec<(Request, Reply)>,
}

impl Batch<'_> {
    pub(crate) fn add<T>(&mut self, request: Request, read: Read<T>) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.push((request, reply));
        Answer { answer, read }
    }

    pub(crate) fn create(&mut self, request: Request) -> Answer<Created> {
        self.add(request, protocol::read_created)
    }

    pub(crate) fn children(&mut self, path: &str) -> Answer<Vec<String>> {
        self.add(Request::children(path), |reader| reader.texts())
    }

    /// Asks for a node's data and rings the bell when the node changes or goes. A node that is not there sets
    /// no watch.
    pub(crate) fn watch(&mut self, path: &str, bell: &Bell) -> Answer<(Vec<u8>, Stat)> {
        self.session.shared.wire().watch(path, bell);
        self.add(Request::data(path, true), protocol::read_data)
    }

    pub(crate) fn send(self) {
        self.session.shared.send(self.requests);
    }
}

/// The reply to one request, to come.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    answer: oneshot::Receiver<Result<Vec<u8>, Failure>>,
    read: Read<T>,
}

impl<T> Answer<T> {
    /// Waits for it, at most so long. Dropping the future does not take the request back.
    pub(crate) async fn within(self, limit: Duration) -> Result<T, Failure> {
        match tokio::time::timeout(limit, self.answer).await {
            Ok(Ok(body)) => Ok((self.read)(&mut Reader(&body?))?),
            Ok(Err(_)) => Err(Failure::Unknown("the session was closed".into())),
            Err(_) => Err(Failure::Unknown(format!("nothing within {limit:?}"))),
        }
    }
}
