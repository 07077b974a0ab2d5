//! One connection to the server, with its statements prepared.

use crate::config::{Backends, Host, Settings};
use crate::drive::{self, Hangup};
use crate::fault::{ENGINE, fault, too_late};
use lockkeeper_core::drive::{Moves, Stream, Watched, open_on};
use lockkeeper_core::{Error, Lifeline, Result, house};
use lockkeeper_sql_common::dial;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Notification, Row, SimpleQueryMessage, Statement};

const SETUP: &str = include_str!("sql/session_setup.sql");
const PATIENT: &str = include_str!("sql/session_patient.sql");
const CREATE: &str = include_str!("sql/create.sql");
const WHO: &str = include_str!("sql/session_who.sql");

/// One connection. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Session {
    client: Client,
    statements: Vec<Statement>,
    /// The server's process behind it.
    pub(crate) backend: i32,
    pub(crate) lifeline: Lifeline,
    line: Arc<Watched>,
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
    /// Opens a connection that lives on the house runtime, and prepares the statements.
    pub(crate) async fn open(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
    ) -> Result<Arc<Self>> {
        Self::open_on(house::handle(), settings, statements, messages, false).await
    }

    /// Opens a connection that lives on the caller's runtime, where a request needs no switch of threads, which is
    /// half of its time; the house takes over when that runtime is blocked or has ended.
    pub(crate) async fn open_here(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
    ) -> Result<Arc<Self>> {
        Self::open_on(&Handle::current(), settings, statements, None, false).await
    }

    /// Like [`open_here`](Self::open_here), for a connection that holds locks: a statement may wait in the server for
    /// as long as it takes.
    pub(crate) async fn open_patient(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
    ) -> Result<Arc<Self>> {
        Self::open_on(&Handle::current(), settings, statements, None, true).await
    }

    async fn open_on(
        home: &Handle,
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        patient: bool,
    ) -> Result<Arc<Self>> {
        let connecting =
            || Self::connect_to_any(Arc::clone(&settings), statements, messages.clone(), patient);
        let opened = open_on(home, connecting).await;
        opened.unwrap_or_else(|gone| Err(Error::temporary(ENGINE, "connect", gone)))
    }

    async fn connect_to_any(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        patient: bool,
    ) -> Result<Arc<Self>> {
        let limit = settings.limits.connect;
        let mut outcome = Err(too_late("connect", limit));
        // As long as there are others, one that does not answer may not use up all the time.
        let share = limit / u32::try_from(settings.hosts.len()).unwrap_or(u32::MAX).max(1);
        for host in &settings.hosts {
            let connecting = Self::connect(host, &settings, statements, messages.clone(), patient);
            outcome = match tokio::time::timeout(share, connecting).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(too_late("connect", share)),
            };
        }
        outcome
    }

    async fn connect(
        host: &Host,
        settings: &Settings,
        statements: &'static [&'static str],
        messages: Messages,
        patient: bool,
    ) -> Result<Arc<Self>> {
        let moves = Moves::default();
        let stream = dial(&host.name, host.port).await;
        let stream = stream.map_err(|error| Error::temporary(ENGINE, "connect", error))?;
        let stream = Stream::new(stream, Arc::clone(&moves));
        let hangup = Hangup::of(&stream).map_err(|error| Error::temporary(ENGINE, "connect", error))?;
        let mut tls = settings.tls.clone();
        let tls = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls, &host.name);
        let tls = tls.map_err(|error| Error::permanent(ENGINE, "connect", error))?;
        let opened = settings.driver.connect_raw(stream, tls).await;
        let (client, line) = opened.map_err(|error| fault("connect", error))?;
        let lifeline = Lifeline::new();
        let drive = drive::start(line, hangup, moves, messages, lifeline.clone(), &Handle::current());
        let mut session = Self {
            client,
            statements: Vec::new(),
            backend: 0,
            lifeline,
            line: settings.watch.over(drive),
            limit: settings.limits.request,
            backends: settings.backends.clone(),
        };
        session.set_up(settings, statements, patient).await?;
        Ok(Arc::new(session))
    }

    async fn set_up(
        &mut self,
        settings: &Settings,
        statements: &'static [&'static str],
        patient: bool,
    ) -> Result<()> {
        let limit_ms = settings.limits.request.as_millis();
        let limits = format!("SET statement_timeout = {limit_ms}; SET lock_timeout = {limit_ms}");
        self.batch(SETUP).await?;
        self.batch(if patient { PATIENT } else { &limits }).await?;
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
            let text = text.replace(":backend", &who.backend.to_string());
            let prepared = self
                .line
                .drive()
                .ask(self.client.prepare(&text))
                .await
                .map_err(|error| fault("prepare", error))?;
            self.statements.push(prepared);
        }
        // The second look at the process behind the connection: a pooler may have put another one there.
        let who = self.who().await?;
        self.check_backend(who.backend)
    }

    /// Asks without a prepared statement, which not every pooler understands.
    async fn who(&self) -> Result<Who> {
        let answer = self
            .line
            .drive()
            .ask(self.client.simple_query(WHO))
            .await
            .map_err(|error| fault("connect", error))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |column: &str| row.and_then(|row| row.get(column)).unwrap_or_default();
        let backend = text("backend").parse().map_err(|error| Error::permanent(ENGINE, "connect", error))?;
        Ok(Who { backend, standby: text("standby") == "t", read_only: text("read_only") == "t" })
    }

    /// The statement was answered by another process than ours.
    pub(crate) fn is_pooled(&self) -> Error {
        self.abort();
        pooled()
    }

    /// Refuses a pooler that gives each transaction another process: session locks would be anybody's.
    pub(crate) fn check_backend(&self, backend: i32) -> Result<()> {
        if backend == self.backend {
            return Ok(());
        }
        Err(self.is_pooled())
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.lifeline.has_ended()
    }

    /// Cuts the connection; what it held is lost at once.
    pub(crate) fn abort(&self) {
        self.line.drive().close();
    }

    /// From now on the runtime of the caller drives the connection, unless another user's does.
    pub(crate) fn come_here(&self) {
        self.line.drive().come_here();
    }

    /// A statement without parameters, or several.
    pub(crate) async fn batch(&self, text: &str) -> Result<()> {
        self.within("set up the session", self.client.batch_execute(text)).await
    }

    /// Creates tables and functions, in one transaction.
    pub(crate) async fn create(&self, text: &str, limit: Duration) -> Result<(), tokio_postgres::Error> {
        let limit_ms = limit.as_millis();
        let all = format!(
            "BEGIN; SET LOCAL statement_timeout = {limit_ms}; SET LOCAL lock_timeout = {limit_ms};\n{CREATE}{text}\n;COMMIT"
        );
        self.line.drive().ask(self.client.batch_execute(&all)).await
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
        let request = pin!(self.client.query(&self.statements[statement], params));
        self.within(doing, request).await
    }

    /// The one row of a prepared statement.
    pub(crate) async fn row(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let request = pin!(self.client.query_one(&self.statements[statement], params));
        self.within(doing, request).await
    }

    /// The one row of a prepared statement that may wait in the server.
    pub(crate) async fn row_at_last(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        // Nobody sees to it meanwhile that it is driven.
        self.line.drive().go_home();
        let answer = self.line.drive().ask(self.client.query_one(&self.statements[statement], params)).await;
        answer.map_err(|error| fault(doing, error))
    }

    /// A server that does not answer in time may be cut off; the house watches.
    async fn within<T>(
        &self,
        doing: &'static str,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        self.line.ask(request).await.map_err(|error| match self.line.was_late() {
            true => too_late(doing, self.limit),
            false => fault(doing, error),
        })
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
