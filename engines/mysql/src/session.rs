//! One connection of our own. Whoever asks drives it, and the house does when nobody else can, since a lock that it holds must not
//! be lost because a user's runtime is blocked or has ended.

use crate::answer::{Answer, Cell, Row, Said, reads};
use crate::collision::Collisions;
use crate::config::Settings;
use crate::fault::{ENGINE, collided, cut, fault, too_late};
use crate::line::Line;
use crate::packets::Endpoint;
use crate::request::{Value, put_execute};
use lockkeeper_core::drive::{Drive, Manner, Moves, Watched, Wire, open_on};
use lockkeeper_core::{Error, Lifeline, Result};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;

const WHO: &str = include_str!("sql/who.sql");
const SETUP: &str = include_str!("sql/setup.sql");
/// For one that holds locks the server must notice a dead host, too: we ask several times a second.
const HELD: &str = include_str!("sql/held_setup.sql");
const PROBE: &str = include_str!("sql/probe.sql");

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its end frees what it holds.
    Holds,
    /// It only writes what everybody can see.
    Writes,
}

/// One connection. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Session {
    wire: Wire<Answer>,
    line: Arc<Watched>,
    /// What the server knows its statements by; the last one is the probe, if it holds locks.
    statements: Vec<u32>,
    /// The server's number for it.
    pub(crate) number: u64,
    pub(crate) database: String,
    pub(crate) lifeline: Lifeline,
    limit: Duration,
}

impl Session {
    /// Opens a connection for these statements, in which `{connection}` is the server's number for it.
    pub(crate) async fn open<S: AsRef<str> + Sync>(
        settings: &Arc<Settings>,
        used: Use,
        statements: &'static [S],
    ) -> Result<Arc<Self>> {
        let connecting = || {
            let settings = Arc::clone(settings);
            async move {
                let limit = settings.limits.connect;
                let connecting = Self::connect(&settings, used, statements);
                tokio::time::timeout(limit, connecting)
                    .await
                    .unwrap_or_else(|_| Err(too_late("connect", limit)))
            }
        };
        let opened = open_on(&Handle::current(), connecting).await;
        opened.unwrap_or_else(|gone| Err(Error::temporary(ENGINE, "connect", gone))).map(Arc::new)
    }

    async fn connect<S: AsRef<str>>(settings: &Settings, used: Use, statements: &[S]) -> Result<Self> {
        let moves = Moves::default();
        let (line, who, statements) = set_up(settings, used, Arc::clone(&moves), statements)
            .await
            .map_err(|error| fault("connect", error))?;
        let [number, read_only, Cell::Bytes(database), _] = who.as_slice() else {
            return Err(Error::permanent(ENGINE, "connect", "the server does not say who it is"));
        };
        if read_only.number() != Some(0) {
            return Err(settings.read_only());
        }
        let lifeline = Lifeline::new();
        let without_eof = line.without_eof;
        let (wire, drive) = match line.leave().map_err(|error| fault("connect", error))? {
            Endpoint::Plain(stream) => start(stream, moves, without_eof, lifeline.clone()),
            Endpoint::Tls(stream) => start(stream, moves, without_eof, lifeline.clone()),
        };
        Ok(Self {
            wire,
            line: settings.watch.over(drive),
            statements,
            number: number.number().unwrap_or_default(),
            database: String::from_utf8_lossy(database).into_owned(),
            lifeline,
            limit: settings.limits.request,
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.lifeline.has_ended()
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.wire.is_busy()
    }

    /// The first row that a statement answers. Cancel safety: when dropped, the statement may or may not run.
    pub(crate) async fn ask(
        &self,
        doing: &'static str,
        statement: usize,
        values: &[Value<'_>],
    ) -> Result<Row> {
        Ok(self.run(doing, statement, values).await?.row)
    }

    /// The same for one whose counts matter.
    pub(crate) async fn run(
        &self,
        doing: &'static str,
        statement: usize,
        values: &[Value<'_>],
    ) -> Result<Said> {
        self.line.drive().come_here();
        let answer = self.line.ask(self.send(statement, values)).await;
        self.outcome(doing, answer)
    }

    /// The same for a statement that may wait in the server.
    pub(crate) async fn ask_at_last(
        &self,
        doing: &'static str,
        statement: usize,
        values: &[Value<'_>],
    ) -> Result<Row> {
        let answer = self.line.ask_at_last(self.send(statement, values)).await;
        Ok(self.outcome(doing, answer)?.row)
    }

    async fn send(&self, statement: usize, values: &[Value<'_>]) -> io::Result<Answer> {
        self.wire.ask(|out| put_execute(out, self.statements[statement], values)).await
    }

    fn outcome(&self, doing: &'static str, answer: io::Result<Answer>) -> Result<Said> {
        match answer {
            Ok(answer) => answer.map_err(|told| fault(doing, mysql_async::Error::Server(told))),
            Err(_) if self.line.was_late() => Err(too_late(doing, self.limit)),
            Err(_) => Err(cut(doing)),
        }
    }

    /// Sees that it is still the same session.
    pub(crate) async fn probe(&self) -> Result<()> {
        let row = self.ask("probe the session", self.statements.len() - 1, &[]).await?;
        self.check(row.first())
    }

    /// A proxy may have put another session behind this connection: then nothing is held for certain.
    pub(crate) fn check(&self, number: Option<&Cell>) -> Result<()> {
        if number.and_then(Cell::number) == Some(self.number) { Ok(()) } else { Err(self.is_another()) }
    }

    /// Cuts it, for the session behind it is not the one that it was.
    pub(crate) fn is_another(&self) -> Error {
        self.cut();
        Error::permanent(
            ENGINE,
            "keep one session",
            "the session behind this connection changes: there is a pooling proxy in between; connect to the server itself",
        )
    }

    /// Cuts the connection; what it holds is lost at once.
    pub(crate) fn cut(&self) {
        self.line.drive().close();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cut();
    }
}

/// What is done before a connection is ours alone: says who the server is, and what it knows the statements by.
async fn set_up<S: AsRef<str>>(
    settings: &Settings,
    used: Use,
    moves: Moves,
    statements: &[S],
) -> mysql_async::Result<(Line, Row, Vec<u32>)> {
    let mut line = Line::open(&settings.login, moves).await?;
    let (held, probe) = match used {
        Use::Holds => (Some(HELD), Some(PROBE)),
        Use::Writes => (None, None),
    };
    for text in SETUP.lines().chain(held) {
        line.query(text).await?;
    }
    let who = line.query(WHO).await?;
    let number = who.first().and_then(Cell::number).unwrap_or_default().to_string();
    let mut prepared = Vec::new();
    for text in statements.iter().map(AsRef::as_ref).chain(probe) {
        prepared.push(line.prepare(&text.replace("{connection}", &number)).await?);
    }
    Ok((line, who, prepared))
}

/// Drives it from now on, here at first. The lifeline ends before the server sees the end.
fn start<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    moves: Moves,
    without_eof: bool,
    lifeline: Lifeline,
) -> (Wire<Answer>, Drive) {
    let reads = if without_eof { reads::<true> } else { reads::<false> };
    let (wire, line) = Wire::over(stream, Manner::InTurn, reads, move || lifeline.end());
    (wire, Drive::start(line, moves, &Handle::current(), false))
}

/// Asks again if the server undid a statement because it collided with another.
pub(crate) async fn insist<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    let mut collisions = Collisions::default();
    loop {
        let outcome = ask().await;
        if !collided(&outcome) || !collisions.once_more().await {
            return outcome;
        }
    }
}
