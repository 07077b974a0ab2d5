//! One connection that holds locks. It belongs to no runtime: whoever asks drives it, and the house does when nobody else
//! can, since a lock must not be lost because a user's runtime is blocked or has ended.

use crate::config::Settings;
use crate::fault::{ENGINE, cut, fault, too_late};
use crate::line::{Cell, Line, Row};
use crate::request::{Request, collided};
use lockkeeper_core::{Error, Lifeline, Result, house};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

const WHO: &str = include_str!("sql/who.sql");
const SETUP: &str = include_str!("sql/setup.sql");
/// The server must notice a dead host, too: we ask several times a second.
const HELD: &str = include_str!("sql/held_setup.sql");
const PROBE: &str = include_str!("sql/probe.sql");

/// How long an answer may take until the house sees to it that the connection is driven.
const GRACE: Duration = Duration::from_millis(50);

/// How often a statement that collided with another is tried again.
const COLLISIONS: u32 = 10;

/// One connection. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Session {
    inner: Arc<Inner>,
    /// The server's number for it.
    pub(crate) number: u64,
    pub(crate) database: String,
    pub(crate) lifeline: Lifeline,
    limit: Duration,
}

struct Inner {
    slot: Arc<tokio::sync::Mutex<Option<Line>>>,
    /// Those under way and those who wait for their turn.
    requests: Mutex<Vec<Arc<Request>>>,
    lifeline: Lifeline,
}

/// A statement, and the values for its question marks.
pub(crate) type Ask = (&'static str, Vec<Cell>);

impl Session {
    /// Opens a connection.
    pub(crate) async fn open(settings: &Settings) -> Result<Arc<Self>> {
        let (limit, login) = (settings.limits.connect, Arc::clone(&settings.login));
        // On the house, since a connection left half open would be of no use, and one left behind of harm.
        let opening = house::handle().spawn(tokio::time::timeout(limit, async move {
            let mut line = Line::open(&login).await?;
            for text in SETUP.lines().chain([HELD]) {
                line.query(text).await?;
            }
            let who = line.query(WHO).await?;
            mysql_async::Result::Ok((line, who))
        }));
        let (line, who) = match opening.await {
            Ok(Ok(opened)) => opened.map_err(|error| fault("connect", error))?,
            Ok(Err(_)) => return Err(too_late("connect", limit)),
            Err(gone) => return Err(Error::temporary(ENGINE, "connect", gone)),
        };
        let [number, read_only, Cell::Bytes(database), _] = who.as_slice() else {
            return Err(Error::permanent(ENGINE, "connect", "the server does not say who it is"));
        };
        if read_only.number() != Some(0) {
            return Err(settings.read_only());
        }
        let lifeline = Lifeline::new();
        let inner = Arc::new(Inner {
            slot: Arc::new(tokio::sync::Mutex::new(Some(line))),
            requests: Mutex::default(),
            lifeline: lifeline.clone(),
        });
        Ok(Arc::new(Self {
            inner,
            number: number.number().unwrap_or_default(),
            database: String::from_utf8_lossy(database).into_owned(),
            lifeline,
            limit: settings.limits.request,
        }))
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.lifeline.has_ended()
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.inner.slot.try_lock().is_err()
    }

    /// The first row of the answer. Cancel safety: when dropped, the request goes on to its end.
    pub(crate) async fn ask(&self, doing: &'static str, ask: Ask) -> Result<Row> {
        self.ask_within(doing, self.limit, ask).await
    }

    /// The same with another time limit.
    pub(crate) async fn ask_within(&self, doing: &'static str, limit: Duration, ask: Ask) -> Result<Row> {
        let mut tries = 0;
        loop {
            let outcome = self.try_within(doing, limit, ask.clone()).await;
            if tries == COLLISIONS || !collided(&outcome) {
                return outcome;
            }
            tries += 1;
            let pause = Duration::from_micros(rand::random_range(100..2000) * u64::from(tries));
            tokio::time::sleep(pause).await;
        }
    }

    async fn try_within(&self, doing: &'static str, limit: Duration, ask: Ask) -> Result<Row> {
        let request = Request::new(doing, Box::pin(Arc::clone(&self.inner).send(doing, ask)));
        self.inner.requests().push(Arc::clone(&request));
        let soon = GRACE.min(limit / 4);
        let mut waiting = Waiting { inner: &self.inner, request, limit, over: false };
        let mut answer = tokio::time::timeout(soon, &mut waiting).await;
        if answer.is_err() {
            // Maybe the server is slow, maybe the runtime of somebody whose turn it is is blocked.
            self.inner.go_home(limit);
            answer = tokio::time::timeout(limit - soon, &mut waiting).await;
        }
        answer.unwrap_or_else(|_| {
            self.cut();
            Err(too_late(doing, limit))
        })
    }

    /// Sees that it is still the same session.
    pub(crate) async fn probe(&self) -> Result<()> {
        let row = self.ask("probe the session", (PROBE, Vec::new())).await?;
        self.check(row.first())
    }

    /// A proxy may have put another session behind this connection: then nothing is held for certain.
    pub(crate) fn check(&self, number: Option<&Cell>) -> Result<()> {
        if number.and_then(Cell::number) == Some(self.number) {
            return Ok(());
        }
        self.cut();
        Err(Error::permanent(
            ENGINE,
            "keep one session",
            "the session behind this connection changes: there is a pooling proxy in between; connect to the server itself",
        ))
    }

    /// Cuts the connection; what it holds is lost at once.
    pub(crate) fn cut(&self) {
        self.inner.cut();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Inner {
    fn requests(&self) -> MutexGuard<'_, Vec<Arc<Request>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(self: Arc<Self>, doing: &'static str, (text, values): Ask) -> Result<Row> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if self.lifeline.has_ended() {
            slot.take();
        }
        let Some(line) = slot.as_mut() else { return Err(cut(doing)) };
        let mut half_done = HalfDone(Some(&self.lifeline));
        let outcome = line.execute(text, &values).await;
        if outcome.as_ref().is_err_and(mysql_async::Error::is_fatal) {
            slot.take();
        } else {
            half_done.0.take();
        }
        outcome.map_err(|error| fault(doing, error))
    }

    /// Lets the house drive all that is under way.
    fn go_home(self: &Arc<Self>, limit: Duration) {
        let requests = self.requests().clone();
        for request in requests {
            self.take_home(&request, limit);
        }
    }

    fn take_home(self: &Arc<Self>, request: &Arc<Request>, limit: Duration) {
        let inner = Arc::clone(self);
        request.go_home(limit, move || inner.cut());
    }

    fn cut(&self) {
        self.lifeline.end();
        let requests = std::mem::take(&mut *self.requests());
        requests.iter().for_each(|request| request.abandon());
        let slot = Arc::clone(&self.slot);
        if let Ok(mut slot) = Arc::clone(&slot).try_lock_owned() {
            slot.take();
            return;
        }
        house::handle().spawn(async move { slot.lock().await.take() });
    }
}

/// Ends the lifeline of a connection on which a request was not finished.
struct HalfDone<'a>(Option<&'a Lifeline>);

impl Drop for HalfDone<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line.end();
        }
    }
}

/// Drives a request; when left, the house does.
struct Waiting<'a> {
    inner: &'a Arc<Inner>,
    request: Arc<Request>,
    limit: Duration,
    over: bool,
}

impl Future for Waiting<'_> {
    type Output = Result<Row>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Row>> {
        let polled = self.request.poll(cx);
        self.over = polled.is_ready();
        polled
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.inner.requests().retain(|known| !Arc::ptr_eq(known, &self.request));
        if !self.over {
            self.inner.take_home(&self.request, self.limit);
        }
    }
}
