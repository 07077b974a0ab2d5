//! One connection to the server, with its statements prepared.

use crate::config::{Backends, Settings};
use crate::fault::{ENGINE, fault, too_late};
use lockkeeper_core::{Error, Lifeline, Result, house};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification, Row, SimpleQueryMessage, Statement};

const SETUP: &str = include_str!("sql/session_setup.sql");
const CREATE: &str = include_str!("sql/create.sql");
const WHO: &str = include_str!("sql/session_who.sql");

/// One connection. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Session {
    client: Client,
    statements: Vec<Statement>,
    /// The server's process behind it.
    pub(crate) backend: i32,
    pub(crate) lifeline: Lifeline,
    driver: tokio::task::AbortHandle,
    limit: Duration,
    backends: Backends,
}

/// What the server says of itself.
struct Who {
    backend: i32,
    standby: bool,
    read_only: bool,
}

fn pooled() -> Error {
    Error::permanent(
        ENGINE,
        "keep one session",
        "the server's process behind this connection changes: there is a transaction pooler in between; \
         connect to PostgreSQL itself, or to a pooler in session mode",
    )
}

/// Where a connection's notifications go.
pub(crate) type Messages = Option<UnboundedSender<Notification>>;

impl Session {
    /// Opens a connection and prepares the statements.
    pub(crate) async fn open(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
    ) -> Result<Arc<Self>> {
        Self::open_with(settings, statements, messages, false, house::handle().clone()).await
    }

    /// Opens a connection that lives on the caller's runtime, and ends with it: a request needs no switch of
    /// threads there, which is half of its time. For nothing that keeps locks alive.
    pub(crate) async fn open_here(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
    ) -> Result<Arc<Self>> {
        Self::open_with(settings, statements, None, false, Handle::current()).await
    }

    /// Opens a connection on which a statement may wait in the server for as long as it takes.
    pub(crate) async fn open_patient(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
    ) -> Result<Arc<Self>> {
        Self::open_with(settings, statements, None, true, house::handle().clone()).await
    }

    async fn open_with(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        patient: bool,
        home: Handle,
    ) -> Result<Arc<Self>> {
        let limit = settings.limits.connect;
        let connecting =
            tokio::time::timeout(limit, Self::connect(settings, statements, messages, patient, home.clone()));
        match home.spawn(connecting).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(too_late("connect", limit)),
            Err(gone) => Err(Error::temporary(ENGINE, "connect", gone)),
        }
    }

    async fn connect(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        patient: bool,
        home: Handle,
    ) -> Result<Arc<Self>> {
        let opened = settings.driver.connect(settings.tls.clone()).await;
        let (client, mut connection) = opened.map_err(|error| fault("connect", error))?;
        let lifeline = Lifeline::new();
        let line = lifeline.clone();
        let driver = home.spawn(async move {
            let _ends = EndsWithMe(line);
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let (AsyncMessage::Notification(note), Some(messages)) = (message, &messages) {
                    let _ = messages.send(note);
                }
            }
        });
        let mut session = Self {
            client,
            statements: Vec::new(),
            backend: 0,
            lifeline,
            driver: driver.abort_handle(),
            limit: settings.limits.request,
            backends: settings.backends.clone(),
        };
        session.set_up(&settings, statements, patient).await?;
        Ok(Arc::new(session))
    }

    async fn set_up(
        &mut self,
        settings: &Settings,
        statements: &'static [&'static str],
        patient: bool,
    ) -> Result<()> {
        let limit_ms = if patient { 0 } else { settings.limits.request.as_millis() };
        let limits = format!("SET statement_timeout = {limit_ms}; SET lock_timeout = {limit_ms}");
        self.batch(SETUP).await?;
        self.batch(&limits).await?;
        let who = self.who().await?;
        if who.standby {
            return Err(Error::permanent(
                ENGINE,
                "use this server",
                format!("{} is a hot standby, which cannot give locks: name the primary", settings.server),
            ));
        }
        if who.read_only {
            return Err(Error::permanent(
                ENGINE,
                "use this server",
                format!("{} is read-only: name the primary", settings.server),
            ));
        }
        if !self.backends.enter(who.backend) {
            return Err(pooled());
        }
        self.backend = who.backend;
        for text in statements {
            let prepared = self.client.prepare(text).await.map_err(|error| fault("prepare", error))?;
            self.statements.push(prepared);
        }
        // The second look at the process behind the connection: a pooler may have put another one there.
        let who = self.who().await?;
        self.check_backend(who.backend)
    }

    /// Asks without a prepared statement, which not every pooler understands.
    async fn who(&self) -> Result<Who> {
        let answer = self.client.simple_query(WHO).await.map_err(|error| fault("connect", error))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |column: &str| row.and_then(|row| row.get(column)).unwrap_or_default();
        let backend = text("backend").parse().map_err(|error| Error::permanent(ENGINE, "connect", error))?;
        Ok(Who { backend, standby: text("standby") == "t", read_only: text("read_only") == "t" })
    }

    /// Refuses a pooler that gives each transaction another process: session locks would be anybody's.
    pub(crate) fn check_backend(&self, backend: i32) -> Result<()> {
        if backend == self.backend {
            return Ok(());
        }
        self.abort();
        Err(pooled())
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.lifeline.has_ended()
    }

    /// Cuts the connection; what it held is lost at once.
    pub(crate) fn abort(&self) {
        self.lifeline.end();
        self.driver.abort();
    }

    /// A statement without parameters, or several.
    pub(crate) async fn batch(&self, text: &str) -> Result<()> {
        self.within("set up the session", self.limit, self.client.batch_execute(text)).await
    }

    /// Creates tables and functions, in one transaction.
    pub(crate) async fn create(&self, text: &str, limit: Duration) -> Result<(), tokio_postgres::Error> {
        let limit_ms = limit.as_millis();
        let all = format!(
            "BEGIN; SET LOCAL statement_timeout = {limit_ms}; SET LOCAL lock_timeout = {limit_ms};\n{CREATE}{text}\n;COMMIT"
        );
        self.client.batch_execute(&all).await
    }

    /// The rows of a prepared statement.
    ///
    /// Cancel safety: when dropped, the statement may or may not run.
    pub(crate) async fn rows(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Vec<Row>> {
        self.within(doing, self.limit, self.client.query(&self.statements[statement], params)).await
    }

    /// The one row of a prepared statement.
    pub(crate) async fn row(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        self.within(doing, self.limit, self.client.query_one(&self.statements[statement], params)).await
    }

    /// The one row of a prepared statement that may wait in the server.
    pub(crate) async fn row_at_last(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let answer = self.client.query_one(&self.statements[statement], params).await;
        answer.map_err(|error| fault(doing, error))
    }

    /// A server that does not answer in time may be cut off, and nobody may wait behind it for longer.
    async fn within<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        // The server ends the statement by itself at this limit; a little later the line must be dead.
        let limit = limit + limit / 4;
        match tokio::time::timeout(limit, request).await {
            Ok(answer) => answer.map_err(|error| fault(doing, error)),
            Err(_) => {
                self.abort();
                Err(too_late(doing, limit))
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.backend != 0 {
            self.backends.forget(self.backend);
        }
        self.abort();
    }
}

/// However the driving task ends, what hangs on the connection is lost.
struct EndsWithMe(Lifeline);

impl Drop for EndsWithMe {
    fn drop(&mut self) {
        self.0.end();
    }
}
