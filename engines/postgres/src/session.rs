//! One connection to the server, with its statements prepared.

use crate::backing::Backing;
use crate::config::{Host, Settings};
use crate::drive::{self, Hangup};
use crate::fault::{ENGINE, could_not_connect, fault, too_late};
use crate::messages::{Numbers, number};
use lockkeeper_core::drive::{Moves, Stream, once_more, open_on};
use lockkeeper_core::{Error, Lifeline, Result, background};
use lockkeeper_sql_common::dial;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Notification, Row, SimpleQueryMessage, Statement};

const SETUP: &str = include_str!("sql/session_setup.sql");
const PATIENT: &str = include_str!("sql/session_patient.sql");
const CREATE: &str = include_str!("sql/create.sql");
const WHO: &str = include_str!("sql/session_who.sql");

/// One connection of the driver's.
pub(crate) struct Session {
    client: Client,
    statements: Vec<Statement>,
    pub(crate) backing: Backing,
    /// The socket once more, if somebody else is to have it.
    socket: Option<TcpStream>,
}

/// What a connection is for.
#[derive(Clone, Default)]
pub(crate) struct Purpose {
    pub(crate) statements: &'static [&'static str],
    pub(crate) messages: Messages,
    /// It holds locks: a statement may wait in the server for as long as it takes.
    pub(crate) patient: bool,
    /// Its socket is left to somebody else when it is set up.
    pub(crate) is_left: bool,
}

/// What the server says of itself.
struct Who {
    backend: i32,
    standby: bool,
    read_only: bool,
}

/// Where a connection's notifications go.
pub(crate) type Messages = Option<UnboundedSender<Notification>>;

/// Opens a connection that lives on this runtime.
pub(crate) async fn opened<T, F>(home: &Handle, connecting: impl Fn() -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    open_on(home, connecting).await.unwrap_or_else(|gone| Err(could_not_connect(gone)))
}

/// A truth or a whole number of any size, if it is one.
struct Number(Option<i64>);

impl<'a> FromSql<'a> for Number {
    fn from_sql(_: &Type, value: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(number(value)))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Session {
    /// Opens a connection that lives on the house runtime, and prepares the statements.
    pub(crate) async fn open(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
    ) -> Result<Arc<Self>> {
        let purpose = Purpose { statements, messages, ..Purpose::default() };
        Self::open_at(background::handle(), settings, purpose).await
    }

    /// Opens a connection that lives on the caller's runtime, where a request needs no switch of threads, which is
    /// half of its time; the house takes over when that runtime is blocked or has ended.
    pub(crate) async fn open_here(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
    ) -> Result<Arc<Self>> {
        let purpose = Purpose { statements, ..Purpose::default() };
        Self::open_at(&Handle::current(), settings, purpose).await
    }

    /// Like [`open_here`](Self::open_here), for a connection that holds locks.
    pub(crate) async fn open_patient(
        settings: Arc<Settings>,
        statements: &'static [&'static str],
    ) -> Result<Arc<Self>> {
        let purpose = Purpose { statements, patient: true, ..Purpose::default() };
        Self::open_at(&Handle::current(), settings, purpose).await
    }

    async fn open_at(home: &Handle, settings: Arc<Settings>, purpose: Purpose) -> Result<Arc<Self>> {
        let connecting = || {
            let (settings, purpose) = (Arc::clone(&settings), purpose.clone());
            async move { Self::connect_to_any(&settings, &purpose).await.map(Arc::new) }
        };
        opened(home, connecting).await
    }

    /// Opens a connection on the runtime that this is called on.
    pub(crate) async fn connect_to_any(settings: &Settings, purpose: &Purpose) -> Result<Self> {
        let limit = settings.limits.connect;
        let mut outcome = Err(too_late("connect", limit));
        // As long as there are others, one that does not answer may not use up all the time.
        let share = limit / u32::try_from(settings.hosts.len()).unwrap_or(u32::MAX).max(1);
        for host in &settings.hosts {
            let connecting = Self::connect(host, settings, purpose);
            outcome = match tokio::time::timeout(share, connecting).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(too_late("connect", share)),
            };
        }
        outcome
    }

    async fn connect(host: &Host, settings: &Settings, purpose: &Purpose) -> Result<Self> {
        let moves = Moves::default();
        let stream = dial(&host.name, host.port).await.map_err(could_not_connect)?;
        let stream = Stream::new(stream, Arc::clone(&moves));
        let hangup = Hangup::of(&stream).map_err(could_not_connect)?;
        let socket = purpose.is_left.then(|| once_more(&stream));
        let socket = socket.transpose().map_err(could_not_connect)?;
        let mut tls = settings.tls.clone();
        let tls = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls, &host.name);
        let tls = tls.map_err(|error| Error::permanent(ENGINE, "connect", error))?;
        let opened = settings.driver.connect_raw(stream, tls).await;
        let (client, line) = opened.map_err(|error| fault("connect", error))?;
        let lifeline = Lifeline::new();
        let messages = purpose.messages.clone();
        let drive = drive::start(line, hangup, moves, messages, lifeline.clone(), &Handle::current());
        let backing = Backing::new(settings, drive, lifeline);
        let mut session = Self { client, statements: Vec::new(), backing, socket };
        session.set_up(settings, purpose).await?;
        Ok(session)
    }

    async fn set_up(&mut self, settings: &Settings, purpose: &Purpose) -> Result<()> {
        let limit_ms = settings.limits.request.as_millis();
        let limits = format!("SET statement_timeout = {limit_ms}; SET lock_timeout = {limit_ms}");
        self.batch(SETUP).await?;
        self.batch(if purpose.patient { PATIENT } else { &limits }).await?;
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
        self.backing.enter(who.backend)?;
        for text in purpose.statements {
            let text = self.fill(text);
            let prepared = self.backing.line.drive().ask(self.client.prepare(&text)).await;
            self.statements.push(prepared.map_err(|error| fault("prepare", error))?);
        }
        // The second look at the process behind the connection: a pooler may have put another one there.
        let who = self.who().await?;
        self.backing.check_backend(who.backend)
    }

    /// A statement's text with what it may say of this connection.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace(":backend", &self.backing.backend.to_string())
    }

    /// Asks without a prepared statement, which not every pooler understands.
    async fn who(&self) -> Result<Who> {
        let answer = self.backing.line.drive().ask(self.client.simple_query(WHO)).await;
        let answer = answer.map_err(|error| fault("connect", error))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |column: &str| row.and_then(|row| row.get(column)).unwrap_or_default();
        let backend = text("backend").parse().map_err(|error| Error::permanent(ENGINE, "connect", error))?;
        Ok(Who { backend, standby: text("standby") == "t", read_only: text("read_only") == "t" })
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.backing.lifeline.has_ended()
    }

    /// Ends the driver's part, on which nothing may be under way; the socket and the process behind it are left.
    pub(crate) fn leave(&mut self) -> io::Result<(i32, TcpStream)> {
        let socket = self.socket.take().ok_or_else(|| io::Error::other("the socket stays the driver's"))?;
        self.backing.abort();
        Ok((self.backing.leave(), socket))
    }

    /// A statement without parameters, or several.
    pub(crate) async fn batch(&self, text: &str) -> Result<()> {
        self.backing.within("set up the session", self.client.batch_execute(text), fault).await
    }

    /// Creates tables and functions, in one transaction.
    pub(crate) async fn create(&self, text: &str, limit: Duration) -> Result<(), tokio_postgres::Error> {
        let limit_ms = limit.as_millis();
        let all = format!(
            "BEGIN; SET LOCAL statement_timeout = {limit_ms}; SET LOCAL lock_timeout = {limit_ms};\n{CREATE}{text}\n;COMMIT"
        );
        self.backing.line.drive().ask(self.client.batch_execute(&all)).await
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
        self.backing.within(doing, request, fault).await
    }

    /// The one row of a prepared statement.
    pub(crate) async fn row(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let request = pin!(self.client.query_one(&self.statements[statement], params));
        self.backing.within(doing, request, fault).await
    }

    /// The one row of a prepared statement that may wait in the server.
    pub(crate) async fn row_at_last(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let request = self.client.query_one(&self.statements[statement], params);
        self.backing.at_last(doing, request, fault).await
    }
}

/// The numbers in a row.
pub(crate) fn numbers(row: &Row) -> Numbers {
    [0, 1].map(|column| row.try_get::<_, Option<Number>>(column).ok().flatten().and_then(|number| number.0))
}
