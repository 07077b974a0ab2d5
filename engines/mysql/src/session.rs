//! Locks held by connections: the connection itself, and the styles whose statements are procedures (the session style,
//! and the advisory style on MySQL).
//!
//! Such a connection lives on the background runtime, so a lock outlives the runtime on which it was taken. Requests reach
//! it through a channel from any runtime, and are sent one after the other.

use crate::SESSION;
use crate::config::{HeldTimes, Settings};
use crate::connection::{Guarded, Work, first_row, open};
use crate::error::{Collisions, ENGINE, closed, failed, has_collided, too_late};
use crate::view::{Holders, ViewTexts};
use lockkeeper_core::engine::{BoxFuture, Claim, ClaimId, Clock, Lifeline, LockName, background};
use lockkeeper_core::{Abilities, Error, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use mysql_async::Value;
use mysql_async::prelude::FromRow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) const SCHEMA: &str = include_str!("sql/schema_session.sql");

/// One connection that holds locks. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Session {
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<Shared>,
    /// The server's number for it.
    pub(crate) number: u64,
    pub(crate) database: String,
    limit: Duration,
    pub(crate) times: HeldTimes,
}

/// What the task of the connection needs, too.
struct Shared {
    lifeline: Lifeline,
    /// How many requests are under way or wait for their turn.
    requests: AtomicUsize,
    closing: Notify,
}

/// Sends one request and passes on its reply; the connection is usable afterwards or not.
type Request = Box<dyn for<'a> FnOnce(&'a mut Guarded) -> BoxFuture<'a, ()> + Send>;

impl Session {
    /// Opens a connection on the background runtime.
    pub(crate) async fn open(settings: &Arc<Settings>) -> Result<Arc<Self>> {
        let opened = Arc::clone(settings);
        let opening = background::handle().spawn(async move { open(&opened, &opened.held).await });
        let (conn, server) = opening.await.map_err(|error| Error::temporary(ENGINE, "connect", error))??;
        let (requests, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            lifeline: Lifeline::new(),
            requests: AtomicUsize::new(0),
            closing: Notify::new(),
        });
        background::handle().spawn(serve(conn, receiver, Arc::clone(&shared)));
        let (number, database) = (server.number, server.database);
        let (limit, times) = (settings.limits.request, settings.times);
        Ok(Arc::new(Self { requests, shared, number, database, limit, times }))
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.shared.lifeline.has_ended()
    }

    /// Whether a request would have to wait for another one.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.requests.load(SeqCst) > 0
    }

    pub(crate) fn lifeline(&self) -> &Lifeline {
        &self.shared.lifeline
    }

    /// The first row of a statement's reply.
    ///
    /// Cancel safety: when dropped, the statement runs nevertheless.
    pub(crate) async fn request<T: FromRow + Send + 'static>(
        &self,
        doing: &'static str,
        text: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<T>> {
        self.run(doing, self.limit, first_row(text, values)).await
    }

    /// The same for a statement that may wait in the server, for one slice of the wait.
    pub(crate) async fn wait<T: FromRow + Send + 'static>(
        &self,
        text: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<T>> {
        let limit = Duration::from_secs(self.times.wait) + self.limit;
        self.run("wait for the lock", limit, first_row(text, values)).await
    }

    async fn run<T: Send + 'static>(&self, doing: &'static str, limit: Duration, work: Work<T>) -> Result<T> {
        let (reply, replied) = oneshot::channel();
        let request: Request = Box::new(move |conn| {
            Box::pin(async move {
                // The connection's own timer: it is closed when it is silent, whether or not the caller still waits.
                let outcome = match Clock::Boot.timeout(limit, conn.run(&work)).await {
                    Ok(outcome) => outcome.map_err(|error| failed(doing, error)),
                    Err(_) => Err(too_late(doing, limit)),
                };
                let _ = reply.send(outcome);
            })
        });
        self.shared.requests.fetch_add(1, SeqCst);
        if self.requests.send(request).is_err() {
            self.shared.requests.fetch_sub(1, SeqCst);
        }
        replied.await.unwrap_or_else(|_| Err(closed(doing)))
    }

    /// Checks that it is still the same session.
    pub(crate) async fn probe(&self) -> Result<()> {
        let number = self.request("probe the session", "SELECT CONNECTION_ID()", Vec::new()).await?;
        self.check(number)
    }

    /// A proxy may have put another session behind this connection: then nothing is held for certain.
    pub(crate) fn check(&self, number: Option<u64>) -> Result<()> {
        if number == Some(self.number) { Ok(()) } else { Err(self.is_another()) }
    }

    /// Closes it, for the session behind it is not the one that it was.
    pub(crate) fn is_another(&self) -> Error {
        self.close();
        Error::permanent(
            ENGINE,
            "keep one session",
            "the session behind this connection changes: there is a pooling proxy in between; connect to the server itself",
        )
    }

    /// Closes the connection; what it holds is lost at once.
    pub(crate) fn close(&self) {
        self.shared.lifeline.end();
        self.shared.closing.notify_one();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

/// The task of a connection: sends requests until the connection fails or is closed.
async fn serve(mut conn: Guarded, mut requests: mpsc::UnboundedReceiver<Request>, shared: Arc<Shared>) {
    while conn.is_usable() && !shared.lifeline.has_ended() {
        let request = tokio::select! {
            biased;
            request = requests.recv() => request,
            () = shared.closing.notified() => None,
        };
        let Some(request) = request else { break };
        tokio::select! {
            biased;
            () = request(&mut conn) => {}
            () = shared.closing.notified() => {}
        }
        shared.requests.fetch_sub(1, SeqCst);
    }
    shared.lifeline.end();
    conn.close().await;
}

/// Sends a request again after a collision.
async fn retry<T, F: Future<Output = Result<T>>>(request: impl Fn() -> F) -> Result<T> {
    let mut collisions = Collisions::default();
    loop {
        let outcome = request().await;
        if !has_collided(&outcome) || !collisions.pause().await {
            return outcome;
        }
    }
}

/// What makes a style whose statements are procedures.
pub(crate) struct Style {
    pub(crate) abilities: Abilities,
    pub(crate) take: &'static str,
    pub(crate) free: &'static str,
    pub(crate) view: ViewTexts,
}

/// The session style: a lock is a row that an open transaction has selected for update.
pub(crate) static STYLE: Style = Style {
    abilities: SESSION,
    take: "CALL lockkeeper_session_take(?, ?, ?, ?)",
    free: "CALL lockkeeper_session_free(?)",
    view: ViewTexts {
        list: include_str!("sql/session_list.sql"),
        find: "SELECT connection FROM lockkeeper_sessions WHERE name = ? AND id = ? AND connection IS NOT NULL",
        clean: "CALL lockkeeper_session_clean(86400)",
        has_foreign: false,
    },
};

/// A connection of such a style, with one lock or many.
pub(crate) struct Held {
    session: Arc<Session>,
    style: &'static Style,
}

impl Held {
    /// What the procedure needs that takes a lock.
    fn values(claim: &Claim, wait_seconds: u64) -> Vec<Value> {
        let (id, holder) = (claim.id.to_string(), claim.holder.encode());
        vec![claim.name.as_str().into(), id.into(), holder.into(), wait_seconds.into()]
    }

    /// The token, if the lock was taken.
    fn taken(&self, row: Option<(Option<u64>, u64)>) -> Result<Option<Token>> {
        let (token, number) = row.unwrap_or_default();
        self.session.check(Some(number))?;
        Ok(token.map(Token))
    }
}

impl Connection for Held {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        let take = || self.session.request("take the lock", self.style.take, Self::values(claim, 0));
        self.taken(retry(take).await?)
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        loop {
            let values = Self::values(claim, self.session.times.wait);
            let waited = self.session.wait(self.style.take, values).await;
            // One slice is over without the lock, which the session style sees as a collision.
            if has_collided(&waited) {
                continue;
            }
            if let Some(token) = self.taken(waited?)? {
                return Ok(token);
            }
        }
    }

    async fn free(&self, lock: &LockName) -> Result<()> {
        let free = || {
            let values = vec![lock.as_str().into()];
            self.session.request::<mysql_async::Row>("free the lock", self.style.free, values)
        };
        retry(free).await.map(drop)
    }

    async fn probe(&self) -> Result<()> {
        self.session.probe().await
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy()
    }

    fn lifeline(&self) -> &Lifeline {
        self.session.lifeline()
    }

    fn cut(&self) {
        self.session.close();
    }
}

/// Where such connections come from. The locks are spread over `SHARED` of them; 0 if each can hold only one.
pub(crate) struct Source<const SHARED: usize> {
    settings: Arc<Settings>,
    holders: Arc<Holders>,
    style: &'static Style,
}

/// Opens the style.
pub(crate) fn open_style<const SHARED: usize>(
    settings: Arc<Settings>,
    style: &'static Style,
) -> Sessions<Source<SHARED>> {
    let holders = Holders::open(&settings, style.view);
    let (limits, at_most) = (settings.limits, settings.connections);
    let source = Arc::new(Source { settings, holders, style });
    Sessions::new(source, Arc::new(Holds::default()), limits, at_most)
}

impl<const SHARED: usize> Connections for Source<SHARED> {
    type Connection = Held;

    const SHARED: usize = SHARED;

    fn abilities(&self) -> Abilities {
        self.style.abilities
    }

    async fn open(&self) -> Result<Arc<Held>> {
        Ok(Arc::new(Held { session: Session::open(&self.settings).await?, style: self.style }))
    }

    async fn interrupt(&self, connection: &Held) {
        if self.holders.interrupt(connection.session.number).await.is_err() {
            connection.cut();
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.holders.list(prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.holders.evict(name, id).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.holders.ask(name, id).await
    }

    async fn asked(&self, ids: &[ClaimId]) -> Result<Vec<ClaimId>> {
        self.holders.asked(ids).await
    }

    fn close(&self) {
        self.holders.close();
    }
}
