//! One connection of the driver: set up, its statements prepared, its replies watched.

use crate::config::{Backend, Encryption, Host, Mode, Settings};
use crate::error::{ENGINE, failed, is_about_names, is_login_refused, no_reply};
use crate::schema::is_too_old;
use futures_util::future::{join3, try_join_all};
use lockkeeper_core::engine::{Clock, Lifeline, Replies};
use lockkeeper_core::{Error, Result};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Notification, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

const SETUP: &str = include_str!("sql/connection_setup.sql");
const POOLED_BEGIN: &str = include_str!("sql/pooled_begin.sql");
const IDENTITY: &str = include_str!("sql/connection_identity.sql");

/// One connection. It is never repaired: when it ends, its lifeline does.
pub(crate) struct Connection {
    client: Client,
    statements: Vec<Prepared>,
    /// Behind a transaction pooler: how each transaction begins.
    begin: Option<String>,
    /// Held while a transaction is sent, so that no other request comes in between.
    sending: Mutex<()>,
    replies: Arc<Replies>,
    lifeline: Lifeline,
    backend: Registered,
    task: AbortHandle,
    /// Until then all its requests together have the time that a new connection may take, however long one of them does.
    is_set_up: bool,
}

/// A statement that is ready to be sent.
enum Prepared {
    Named(Statement),
    /// Parsed each time, since behind a transaction pooler a name is everybody's.
    Unnamed(&'static str, Vec<Type>),
}

/// What a connection is for.
#[derive(Clone, Default)]
pub(crate) struct Purpose {
    /// Nothing is set for the session.
    pub(crate) bare: bool,
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
    version: String,
}

impl Identity {
    /// Refuses a server that cannot give locks.
    fn check(&self, settings: &Settings) -> Result<()> {
        let why = if self.version.contains("CockroachDB") {
            "is CockroachDB, which grants advisory locks without keeping anybody out, and every style relies on them: \
             use PostgreSQL, or another engine, such as etcd"
        } else if is_too_old(&self.version) {
            "is too old: PostgreSQL 12 or newer is needed"
        } else if self.standby {
            "is a hot standby, which cannot give locks: name the primary"
        } else {
            return Ok(());
        };
        Err(settings.refused(why))
    }

    /// Refuses a server that stays read-only although the session has set that it is not.
    fn check_writable(&self, settings: &Settings, purpose: &Purpose) -> Result<()> {
        if self.read_only && !purpose.bare {
            return Err(settings.refused("is read-only: name the primary"));
        }
        Ok(())
    }
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
            outcome = match Clock::Boot.timeout(share, connecting).await {
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
        if let Some(password) = settings.password.get(ENGINE).await? {
            driver.password(password);
        }
        let (client, connection) = match open_driver(&mut driver, host, &settings.encryption).await {
            Ok(opened) => opened,
            Err(error) if is_login_refused(&error) => {
                return Err(settings.password.refused(failed("connect", error)));
            }
            Err(error) => return Err(failed("connect", error)),
        };
        settings.password.accepted();
        let (lifeline, replies) = (Lifeline::new(), Arc::new(Replies::new(limit)));
        let end = End { lifeline: lifeline.clone(), messages: purpose.messages.clone() };
        let task = tokio::spawn(receive(connection, end, Arc::clone(&replies))).abort_handle();
        let backend = Registered { settings: Arc::clone(settings), backend: None };
        let mut connection = Self {
            client,
            statements: Vec::new(),
            begin: None,
            sending: Mutex::default(),
            replies,
            lifeline,
            backend,
            task,
            is_set_up: false,
        };
        if settings.pooled {
            connection.set_up_pooled(settings, purpose).await?;
        } else {
            connection.set_up(settings, purpose).await?;
        }
        connection.is_set_up = true;
        Ok(connection)
    }

    async fn set_up(&mut self, settings: &Settings, purpose: &Purpose) -> Result<()> {
        let identity = self.identity().await?;
        identity.check(settings)?;
        // Before anything is set: a session behind a transaction pooler belongs to everybody.
        if !settings.backends.insert(&identity.backend) {
            return Err(pooled());
        }
        if !purpose.bare {
            self.batch(&format!("{SETUP}\n{}", purpose.settings)).await?;
        }
        let backend = self.backend.backend.insert(identity.backend).clone();
        let texts: Vec<String> = purpose.statements.iter().map(|text| backend.fill(text)).collect();
        let prepared = try_join_all(texts.iter().map(|text| self.client.prepare(text))).await;
        self.statements = match prepared {
            Ok(prepared) => prepared.into_iter().map(Prepared::Named).collect(),
            Err(error) if is_about_names(&error) => return Err(pooled()),
            Err(error) => return Err(failed("prepare a statement", error)),
        };
        if !purpose.start.is_empty() {
            self.batch(&purpose.start).await?;
        }
        // A second time: a transaction pooler may have put another process behind the connection.
        let identity = self.identity().await?;
        identity.check_writable(settings, purpose)?;
        self.check_backend(identity.backend.pid)
    }

    /// Behind a transaction pooler nothing is set up: each transaction brings its own.
    async fn set_up_pooled(&mut self, settings: &Settings, purpose: &Purpose) -> Result<()> {
        self.identity().await?.check(settings)?;
        let local = purpose.settings.replace("SET ", "SET LOCAL ");
        self.begin = Some(format!("{POOLED_BEGIN}{local}"));
        let texts = purpose.statements.iter();
        self.statements = texts.map(|text| Prepared::Unnamed(text, types(text))).collect();
        if !purpose.start.is_empty() {
            let start = self.in_transaction(self.client.batch_execute(&purpose.start));
            self.request("set up the session", start).await?;
        }
        Ok(())
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
            version: text("version").into(),
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
        if !self.is_set_up {
            return request.await.map_err(|error| failed(doing, error));
        }
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

    /// The first column of a statement's first row, as text. Without a transaction of its own, so that it may be inside one.
    pub(crate) async fn text(&self, statement: &str) -> Result<Option<String>> {
        let reply = self.request("look for the tables", self.client.simple_query(statement)).await?;
        Ok(reply.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    /// Sends statements without parameters that may take as long as it takes to connect.
    pub(crate) async fn slow_batch(
        &self,
        text: &str,
        limit: Duration,
    ) -> Result<(), Option<tokio_postgres::Error>> {
        let reply = Clock::Boot.timeout(limit, self.client.batch_execute(text)).await;
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
        match &self.statements[statement] {
            Prepared::Named(statement) => self.request(doing, self.client.query(statement, params)).await,
            Prepared::Unnamed(text, types) => {
                let params: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                // Boxed, so that the usual request is a small future.
                let query = Box::pin(self.in_transaction(self.client.query_typed(text, &params)));
                self.request(doing, query).await
            }
        }
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
        let rows = self.rows(statement, params, doing).await?;
        rows.into_iter().next().ok_or_else(|| Error::permanent(ENGINE, doing, "the server returned no row"))
    }

    /// Sends a statement in a transaction of its own: its begin, the statement and its commit go together, in this order and
    /// in one round trip.
    async fn in_transaction<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let begin = self.client.batch_execute(self.begin.as_deref().unwrap_or("BEGIN"));
        let mut all = pin!(join3(begin, statement, self.client.batch_execute("COMMIT")));
        let mut is_sent = false;
        let (begun, done, committed) = poll_fn(|context| {
            // Each is sent when it is first polled.
            let _sending = (!std::mem::replace(&mut is_sent, true))
                .then(|| self.sending.lock().unwrap_or_else(PoisonError::into_inner));
            all.as_mut().poll(context)
        })
        .await;
        begun?;
        let done = done?;
        committed.map(|()| done)
    }

    /// The one row of a prepared statement that waits in the server, without a limit: the caller sees to it that the
    /// connection is still alive.
    pub(crate) async fn row_without_limit(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let Prepared::Named(statement) = &self.statements[statement] else { return Err(pooled()) };
        let reply = self.client.query_one(statement, params).await;
        self.replies.received();
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

/// Opens the driver's connection, encrypted as the URL says. To a socket it never is.
async fn open_driver(
    driver: &mut tokio_postgres::Config,
    host: &Host,
    Encryption { mode, tls }: &Encryption,
) -> Result<(Client, DriverConnection), tokio_postgres::Error> {
    let mode = if host.is_socket() { Mode::Never } else { *mode };
    let first = match mode {
        Mode::Never | Mode::Allowed => SslMode::Disable,
        Mode::Preferred => SslMode::Prefer,
        Mode::Required => SslMode::Require,
    };
    match driver.ssl_mode(first).connect(tls.clone()).await {
        Err(error) if mode == Mode::Allowed && is_login_refused(&error) => {
            driver.ssl_mode(SslMode::Require).connect(tls.clone()).await
        }
        opened => opened,
    }
}

fn pooled() -> Error {
    Error::permanent(
        ENGINE,
        "keep one session",
        "the server's process behind this connection changes: there is a transaction pooler in between; add \
         pooler=transaction to the URL (styles queue and row), or connect to PostgreSQL itself or to a pooler in session mode",
    )
}

/// The types of a statement's parameters. Each is cast where it first stands: `$1::text`.
fn types(text: &str) -> Vec<Type> {
    let types = (1..).map_while(|number| text.split_once(&format!("${number}::")).map(|(_, rest)| rest));
    let types = types.map(|rest| {
        let name = rest.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
        match (name, rest[name.len()..].starts_with("[]")) {
            ("text", false) => Type::TEXT,
            ("text", true) => Type::TEXT_ARRAY,
            ("bigint", false) => Type::INT8,
            ("bigint", true) => Type::INT8_ARRAY,
            ("float8", false) => Type::FLOAT8,
            ("float8", true) => Type::FLOAT8_ARRAY,
            _ => Type::UNKNOWN,
        }
    });
    types.collect()
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
        replies.received();
        if let (AsyncMessage::Notification(note), Some(messages)) = (message, &end.messages) {
            let _ = messages.send(Message::Notification(note));
        }
    }
    // What depends on the connection ends before the server sees its end.
    drop(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Behind a transaction pooler nobody else says which types they have.
    #[test]
    fn every_parameter_is_cast_where_it_first_stands() {
        for text in [crate::queue::STATEMENTS, crate::row::STATEMENTS].concat() {
            let types = types(text);
            assert!(!text.contains(&format!("${}", types.len() + 1)), "{text}: {types:?}");
            assert!(!types.contains(&Type::UNKNOWN), "{text}: {types:?}");
        }
    }
}
