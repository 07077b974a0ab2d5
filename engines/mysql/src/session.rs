//! One connection that holds locks. It belongs to no runtime: whoever asks drives it, and the house does when nobody else
//! can, since a lock must not be lost because a user's runtime is blocked or has ended.

use crate::config::Settings;
use crate::fault::{ENGINE, cut, fault, too_late};
use crate::line::{Cell, Line, Row};
use crate::request::{Request, collided};
use lockkeeper_core::{Error, Lifeline, Result, house};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;

const WHO: &str = include_str!("sql/who.sql");
const SETUP: &str = include_str!("sql/setup.sql");
/// The server must notice a dead host, too: we ask several times a second.
const HELD: &str = include_str!("sql/held_setup.sql");
const PROBE: &str = include_str!("sql/probe.sql");

/// How often the house sees to it that the connection is driven: a request that it finds for the second time it takes over.
/// No timer of the caller's runtime watches, since that would cost more than a tenth of a request.
const GRACE: Duration = Duration::from_millis(25);

/// It goes on looking for so long after the last request: to be called again for each of many would take the one who asks a switch
/// of threads.
const STAYS: Duration = Duration::from_secs(1);

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
    /// Somebody has asked since the house looked last.
    asked: AtomicBool,
    /// The house does not look.
    unwatched: AtomicBool,
    watch: Arc<Notify>,
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
            asked: AtomicBool::new(false),
            unwatched: AtomicBool::new(true),
            watch: Arc::default(),
        });
        house::handle().spawn(watch(Arc::downgrade(&inner), Arc::clone(&inner.watch)));
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

    /// The same, tried again if the server undid it because it collided with another.
    pub(crate) async fn insist(&self, doing: &'static str, limit: Option<Duration>, ask: Ask) -> Result<Row> {
        let mut tries = 0;
        loop {
            let outcome = self.ask_within(doing, limit.unwrap_or(self.limit), ask.clone()).await;
            if tries == COLLISIONS || !collided(&outcome) {
                return outcome;
            }
            tries += 1;
            let pause = Duration::from_micros(rand::random_range(100..2000) * u64::from(tries));
            tokio::time::sleep(pause).await;
        }
    }

    /// The same with another time limit.
    pub(crate) async fn ask_within(&self, doing: &'static str, limit: Duration, ask: Ask) -> Result<Row> {
        let request = Request::new(doing, limit, Box::pin(Arc::clone(&self.inner).send(doing, ask)));
        self.inner.requests().push(Arc::clone(&request));
        self.inner.asked.store(true, SeqCst);
        if self.inner.unwatched.load(SeqCst) && self.inner.unwatched.swap(false, SeqCst) {
            self.inner.watch.notify_one();
        }
        Waiting { inner: &self.inner, request, over: false }.await
    }

    /// Sees that it is still the same session.
    pub(crate) async fn probe(&self) -> Result<()> {
        let row = self.ask("probe the session", (PROBE, Vec::new())).await?;
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

    /// Lets the house do the rest of a request.
    fn take_home(self: &Arc<Self>, request: &Arc<Request>) {
        if !request.go_home() {
            return;
        }
        let (inner, request) = (Arc::clone(self), Arc::clone(request));
        house::handle().spawn(async move {
            if !request.at_house().await {
                inner.cut();
            }
            inner.forget(&request);
        });
    }

    fn forget(&self, request: &Arc<Request>) {
        self.requests().retain(|known| !Arc::ptr_eq(known, request));
    }

    /// Takes over what has not ended soon: maybe the server is slow, maybe the runtime of somebody whose turn it is is
    /// blocked. Says whether there may soon be more of that kind.
    fn look_after(self: &Arc<Self>) -> bool {
        let requests = self.requests().clone();
        for request in &requests {
            if request.is_old() {
                self.take_home(request);
            }
        }
        self.asked.swap(false, SeqCst) || !requests.iter().all(|request| request.is_at_house())
    }

    fn cut(&self) {
        self.lifeline.end();
        self.watch.notify_one();
        let requests = std::mem::take(&mut *self.requests());
        requests.iter().for_each(|request| request.cut());
        if let Ok(mut slot) = self.slot.try_lock() {
            slot.take();
            return;
        }
        let slot = Arc::clone(&self.slot);
        house::handle().spawn(async move { slot.lock().await.take() });
    }
}

/// Looks after the requests of a connection until it ends; sleeps while there are none.
async fn watch(inner: Weak<Inner>, asked: Arc<Notify>) {
    let alive = || inner.upgrade().filter(|inner| !inner.lifeline.has_ended());
    loop {
        asked.notified().await;
        loop {
            let mut unused = Duration::ZERO;
            while unused < STAYS {
                tokio::time::sleep(GRACE).await;
                let Some(inner) = alive() else { return };
                unused = if inner.look_after() { Duration::ZERO } else { unused + GRACE };
            }
            let Some(inner) = alive() else { return };
            // One who asks from now on sees that nobody looks; one who has asked before is seen here.
            inner.unwatched.store(true, SeqCst);
            if !inner.look_after() || !inner.unwatched.swap(false, SeqCst) {
                break;
            }
        }
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
        if self.over {
            self.inner.forget(&self.request);
        } else {
            self.inner.take_home(&self.request);
        }
    }
}
