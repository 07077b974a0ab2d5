//! One connection of the driver: set up, its statements prepared, its replies watched.

use crate::config::{Backend, Host, Settings};
use crate::error::{ENGINE, failed, no_reply};
use futures_util::future::try_join_all;
use lockkeeper_core::engine::{Batch, Batcher, ClaimId, Lifeline, Replies};
use lockkeeper_core::{Error, Result};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

const SETUP: &str = include_str!("sql/connection_setup.sql");
const IDENTITY: &str = include_str!("sql/connection_identity.sql");

/// One connection. It is never repaired: when it ends, its lifeline does.
pub(crate) struct Connection {
    client: Client,
    statements: Vec<Statement>,
    replies: Arc<Replies>,
    lifeline: Lifeline,
    backend: Registered,
    task: AbortHandle,
}

/// What a connection is for.
#[derive(Clone, Default)]
pub(crate) struct Purpose {
    pub(crate) statements: &'static [&'static str],
    /// Settings of the session beyond those that every connection has.
    pub(crate) settings: String,
    /// Statements that are sent last, when the others are prepared.
    pub(crate) start: String,
    pub(crate) messages: Messages,
}

/// A message that the server sends by itself.
pub(crate) enum Message {
    Notification(Notification),
    /// The connection has ended.
    Closed,
}

/// Where a connection's messages go.
pub(crate) type Messages = Option<UnboundedSender<Message>>;

type DriverConnection = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

/// The server's process behind a connection, registered until the connection is dropped.
struct Registered {
    settings: Arc<Settings>,
    backend: Option<Backend>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(backend) = &self.backend {
            self.settings.backends.remove(backend);
        }
    }
}

/// What the server says of itself.
struct Identity {
    backend: Backend,
    standby: bool,
    read_only: bool,
}

impl Connection {
    /// Opens a connection on the runtime that polls this, to the first server that can be written. Without a reply within
    /// `limit` it is silent.
    pub(crate) async fn open(settings: &Arc<Settings>, purpose: &Purpose, limit: Duration) -> Result<Self> {
        let connect = settings.limits.connect;
        // As long as there are others, one that does not reply may not use up all the time.
        let share = connect / u32::try_from(settings.hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut outcome = Err(Error::temporary(ENGINE, "connect", "no server is named"));
        for host in &settings.hosts {
            let connecting = Self::connect(host, settings, purpose, limit);
            outcome = match tokio::time::timeout(share, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(Error::temporary(ENGINE, "connect", format!("no reply within {share:?}"))),
            };
        }
        outcome
    }

    async fn connect(
        host: &Host,
        settings: &Arc<Settings>,
        purpose: &Purpose,
        limit: Duration,
    ) -> Result<Self> {
        let mut driver = settings.driver.clone();
        driver.host(&host.name).port(host.port);
        let opened = driver.connect(settings.tls.clone()).await;
        let (client, connection) = opened.map_err(|error| failed("connect", error))?;
        let (lifeline, replies) = (Lifeline::new(), Arc::new(Replies::new(limit)));
        let end = End { lifeline: lifeline.clone(), messages: purpose.messages.clone() };
        let task = tokio::spawn(receive(connection, end, Arc::clone(&replies))).abort_handle();
        let backend = Registered { settings: Arc::clone(settings), backend: None };
        let mut connection = Self { client, statements: Vec::new(), replies, lifeline, backend, task };
        connection.set_up(settings, purpose).await?;
        Ok(connection)
    }

    async fn set_up(&mut self, settings: &Settings, purpose: &Purpose) -> Result<()> {
        self.batch(&format!("{SETUP}\n{}", purpose.settings)).await?;
        let identity = self.identity().await?;
        let refused = |why: &str| {
            Err(Error::permanent(ENGINE, "use this server", format!("{} {why}", settings.server)))
        };
        if identity.standby {
            return refused("is a hot standby, which cannot give locks: name the primary");
        }
        if identity.read_only {
            return refused("is read-only: name the primary");
        }
        if !settings.backends.insert(&identity.backend) {
            return Err(pooled());
        }
        let backend = self.backend.backend.insert(identity.backend).clone();
        let texts: Vec<String> = purpose.statements.iter().map(|text| backend.fill(text)).collect();
        let prepared = try_join_all(texts.iter().map(|text| self.client.prepare(text))).await;
        self.statements = prepared.map_err(|error| failed("prepare a statement", error))?;
        if !purpose.start.is_empty() {
            self.batch(&purpose.start).await?;
        }
        // A second time: a transaction pooler may have put another process behind the connection.
        self.check_backend(self.identity().await?.backend.pid)
    }

    /// Without a prepared statement, which not every pooler understands.
    async fn identity(&self) -> Result<Identity> {
        let reply = self.request("connect", self.client.simple_query(IDENTITY)).await?;
        let row = reply.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |column: &str| row.and_then(|row| row.get(column)).unwrap_or_default();
        let pid = text("pid").parse().map_err(|error| Error::permanent(ENGINE, "connect", error))?;
        Ok(Identity {
            backend: Backend { pid, started: text("started").into() },
            standby: text("standby") == "t",
            read_only: text("read_only") == "t",
        })
    }

    /// The server's process behind the connection.
    pub(crate) fn backend(&self) -> &Backend {
        static UNKNOWN: Backend = Backend { pid: 0, started: String::new() };
        self.backend.backend.as_ref().unwrap_or(&UNKNOWN)
    }

    /// Refuses a pooler that gives each transaction another process: session locks would be anybody's.
    pub(crate) fn check_backend(&self, pid: i32) -> Result<()> {
        if pid == self.backend().pid {
            return Ok(());
        }
        self.cut();
        Err(pooled())
    }

    /// What ends when the connection does.
    pub(crate) fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }

    /// Closes the connection; what it holds is lost at once.
    pub(crate) fn cut(&self) {
        // First here, then at the server.
        self.lifeline.end();
        self.task.abort();
    }

    async fn request<T>(
        &self,
        doing: &'static str,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match self.replies.request(request).await {
            Ok(reply) => reply.map_err(|error| failed(doing, error)),
            Err(error) => {
                if self.replies.is_silent() {
                    self.cut();
                }
                Err(no_reply(doing, error))
            }
        }
    }

    /// Sends statements without parameters.
    pub(crate) async fn batch(&self, text: &str) -> Result<()> {
        self.request("set up the session", self.client.batch_execute(text)).await
    }

    /// The number that a statement of its own returns, if it returns a row.
    pub(crate) async fn value(&self, text: &str) -> Result<Option<i64>> {
        let row = self.request("look for the tables", self.client.query_opt(text, &[])).await?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Sends statements without parameters that may take as long as it takes to connect.
    pub(crate) async fn slow_batch(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<(), Option<tokio_postgres::Error>> {
        let reply = tokio::time::timeout(limit, self.client.batch_execute(text)).await;
        reply.map_err(|_| None)?.map_err(Some)
    }

    /// The rows of a prepared statement.
    ///
    /// Cancel safety: when dropped, the statement may or may not run; a later one runs after it.
    pub(crate) async fn rows(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Vec<Row>> {
        self.request(doing, self.client.query(&self.statements[statement], params)).await
    }

    /// The one row of a prepared statement.
    ///
    /// Cancel safety: as [`rows`](Self::rows).
    pub(crate) async fn row(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        self.request(doing, self.client.query_one(&self.statements[statement], params)).await
    }

    /// The one row of a prepared statement that waits in the server, without a limit: the caller sees to it that the
    /// connection is still alive.
    pub(crate) async fn row_without_limit(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let reply = self.client.query_one(&self.statements[statement], params).await;
        self.replies.heard();
        reply.map_err(|error| failed(doing, error))
    }
}

impl lockkeeper_core::engine::Connection for Connection {
    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.replies.is_silent() || self.lifeline.has_ended()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.cut();
    }
}

fn pooled() -> Error {
    Error::permanent(
        ENGINE,
        "keep one session",
        "the server's process behind this connection changes: there is a transaction pooler in between; \
         connect to PostgreSQL itself, or to a pooler in session mode",
    )
}

/// Ends what depends on the connection, however its task ends.
struct End {
    lifeline: Lifeline,
    messages: Messages,
}

impl Drop for End {
    fn drop(&mut self) {
        self.lifeline.end();
        if let Some(messages) = &self.messages {
            let _ = messages.send(Message::Closed);
        }
    }
}

/// The task of a connection: sends, receives and passes messages on until the connection ends.
async fn receive(mut connection: DriverConnection, end: End, replies: Arc<Replies>) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        replies.heard();
        if let (AsyncMessage::Notification(note), Some(messages)) = (message, &end.messages) {
            let _ = messages.send(Message::Notification(note));
        }
    }
    // What depends on the connection ends before the server sees its end.
    drop(end);
}

/// A connection with what is sent over it together: joins share a commit, and so do leaves.
pub(crate) struct Batched<J: Batch, L: Batch> {
    pub(crate) connection: Arc<Connection>,
    pub(crate) joins: Batcher<J>,
    pub(crate) leaves: Batcher<L>,
}

impl<J: Batch, L: Batch> Batched<J, L> {
    /// To be called on the runtime of the connection. One request is under way and the next one follows it at once; what
    /// comes meanwhile goes together.
    pub(crate) fn new(connection: Arc<Connection>, joins: J, leaves: L) -> Self {
        const AT_ONCE: usize = 2;
        let runtime = Handle::current();
        let joins = Batcher::new(joins, runtime.clone(), AT_ONCE);
        Self { connection, joins, leaves: Batcher::new(leaves, runtime, AT_ONCE) }
    }
}

impl<J: Batch, L: Batch> lockkeeper_core::engine::Connection for Batched<J, L> {
    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }
}

/// How many joins or leaves travel together at most. Each lock needs room in the server's table of locks until the commit,
/// of which it has some thousands for everybody.
pub(crate) const BATCH_AT_MOST: usize = 32;

/// The error of a batch whose runtime has ended.
pub(crate) fn runtime_ended(doing: &'static str) -> Error {
    Error::temporary(ENGINE, doing, "the runtime of the connection has ended")
}

/// The claims whose join was sent and not answered, each with its connection: a leave must not overtake the join, and does
/// not if it follows it over the same connection.
pub(crate) struct Unanswered<C>(Mutex<HashMap<ClaimId, Arc<C>>>);

impl<C> Default for Unanswered<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Unanswered<C> {
    fn map(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the join is sent.
    pub(crate) fn insert(&self, id: ClaimId, connection: &Arc<C>) {
        self.map().insert(id, Arc::clone(connection));
    }

    /// The join was answered, or a leave follows it over this connection.
    pub(crate) fn remove(&self, id: ClaimId) -> Option<Arc<C>> {
        self.map().remove(&id)
    }
}
