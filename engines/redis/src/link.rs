//! A connection to one server that comes back by itself, to a master only.

use crate::config::Greeting;
use crate::connection::{Connection, Words};
use crate::failure::spoils_the_connection;
use crate::lua::Request;
use crate::target::{Spot, Target};
use lockkeeper_core::BoxFuture;
use lockkeeper_core::drive::Watch;
use rand::RngExt as _;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// What to do with messages.
pub struct Ears {
    /// The keeper's own channel.
    pub channel: String,
    /// Hears each message. Must not block.
    pub heard: Box<dyn Fn(&str) + Send + Sync>,
    /// Called when the connection is back after it was lost: messages may have been missed.
    pub back: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ears({})", self.channel)
    }
}

/// How a link reaches its server.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Which server.
    pub target: Target,
    /// How it is greeted.
    pub greeting: Greeting,
    /// The time limit of every request.
    pub time_limit: Duration,
    /// Who listens on this link, if anybody does.
    pub ears: Option<Arc<Ears>>,
    /// The last thing that is asked of a server before it is used.
    pub check: Option<Check>,
}

/// Refuses a server that is not fit for use yet.
#[derive(Clone)]
pub struct Check(pub Arc<dyn Fn(MultiplexedConnection) -> BoxFuture<'static, RedisResult<()>> + Send + Sync>);

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

/// A connection to one server that comes back by itself. A request whose connection breaks fails, and is never
/// sent again here: whoever knows what it means decides (Law 4).
#[derive(Debug, Clone)]
pub struct Link(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    live: watch::Receiver<Option<Live>>,
    broken: mpsc::UnboundedSender<u64>,
    time_limit: Duration,
    task: JoinHandle<()>,
}

/// The link's task ends with the last of its handles.
impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How long the first connection may take in all.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// Reported instead of a generation: the end of the link.
const CLOSE: u64 = u64::MAX;

#[derive(Clone)]
struct Live {
    generation: u64,
    connection: Connection,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Live({})", self.generation)
    }
}

impl Link {
    /// Starts a link whose tasks live on this runtime, and waits for its first connection.
    ///
    /// Cancel safety: dropping the future ends the link.
    ///
    /// # Errors
    /// Why the first connection could not be made.
    pub async fn start(runtime: &Handle, dial: Dial) -> RedisResult<Self> {
        let (first, outcome) = oneshot::channel();
        let link = Self::spawn(runtime, dial, Some(first));
        outcome.await.unwrap_or_else(|_| Err(gone())).map(|()| link)
    }

    /// Starts a link without waiting for it.
    pub fn start_unconnected(runtime: &Handle, dial: Dial) -> Self {
        Self::spawn(runtime, dial, None)
    }

    fn spawn(runtime: &Handle, dial: Dial, first: Option<oneshot::Sender<RedisResult<()>>>) -> Self {
        let (live_in, live) = watch::channel(None);
        let (broken, reports) = mpsc::unbounded_channel();
        let time_limit = dial.time_limit;
        let minder = Minder {
            watch: Watch::new(time_limit),
            dial,
            live: live_in,
            broken: broken.clone(),
            reports,
            generation: 0,
            spot: Spot::default(),
        };
        let task = runtime.spawn(minder.run(first));
        Self(Arc::new(Inner { live, broken, time_limit, task }))
    }

    /// Whether it is connected now.
    pub fn is_up(&self) -> bool {
        self.0.live.borrow().is_some()
    }

    /// Ends the connection for good.
    pub fn close(&self) {
        let _ = self.0.broken.send(CLOSE);
    }

    /// Whether the runtime it lived on is gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.live.has_changed().is_err()
    }

    /// The number of the connection there is now: no two connections of a process have the same.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.0.live.borrow().as_ref().map(|live| live.generation)
    }

    /// The connection, if there is one now.
    fn live_now(&self) -> Option<Live> {
        self.0.live.borrow().clone()
    }

    async fn live(&self) -> RedisResult<Live> {
        let mut receiver = self.0.live.clone();
        let up = tokio::time::timeout(self.0.time_limit, receiver.wait_for(Option::is_some)).await;
        match up {
            Ok(Ok(live)) => live.clone().ok_or_else(gone),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(io_error(std::io::ErrorKind::TimedOut, "the server cannot be reached")),
        }
    }

    fn judge<T>(&self, generation: u64, outcome: &RedisResult<T>) {
        if let Err(error) = outcome
            && spoils_the_connection(error)
        {
            let _ = self.0.broken.send(generation);
        }
    }

    /// Sends one command.
    ///
    /// Cancel safety: the command may or may not be sent.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        self.send(command, None).await
    }

    async fn send(&self, words: &(impl Words + ?Sized), only_on: Option<u64>) -> RedisResult<Value> {
        let mut live = match self.live_now() {
            Some(live) => live,
            // What seldom happens goes into a box of its own: a request is quicker the less there is to move.
            None => Box::pin(self.live()).await?,
        };
        let Live { generation, connection } = &mut live;
        if only_on.is_some_and(|only| only != *generation) {
            return Err(io_error(std::io::ErrorKind::NotConnected, "the connection was replaced"));
        }
        let outcome = connection.send(words).await;
        self.judge(*generation, &outcome);
        outcome
    }

    /// Runs a script.
    ///
    /// Cancel safety: it may or may not run.
    ///
    /// # Errors
    /// What the server, the script or the connection says.
    pub async fn run(&self, request: &Request) -> RedisResult<Value> {
        match self.send(request, request.only_on).await {
            Err(error) if is_unknown_script(&error) => {
                Box::pin(async { self.send(&request.in_full(), request.only_on).await }).await
            }
            outcome => outcome,
        }
    }

    /// Sends all commands in one go; the replies come one by one.
    ///
    /// Cancel safety: they may or may not be sent.
    ///
    /// # Errors
    /// When the connection fails; what a server says to one command is in its place.
    pub async fn pipeline(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let Live { generation, mut connection } = self.live().await?;
        let outcome = connection.send_all(commands).await;
        self.judge(generation, &outcome);
        let replies = outcome?;
        replies.iter().for_each(|reply| self.judge(generation, reply));
        Ok(replies)
    }

    /// Runs scripts in one pipeline; those a server does not know are sent in full in a second one.
    ///
    /// Cancel safety: they may or may not run.
    ///
    /// # Errors
    /// When the connection fails; what a server says to one script is in its place.
    pub async fn run_all(&self, requests: &[Request]) -> RedisResult<Vec<RedisResult<Value>>> {
        Ok(self.run_all_then(requests, None).await?.0)
    }

    /// Runs scripts and then a command, in one pipeline on one connection.
    ///
    /// Cancel safety: they may or may not run.
    ///
    /// # Errors
    /// When the connection fails; what a server says to each is in its place.
    pub async fn run_all_and(
        &self,
        requests: &[Request],
        last: &Cmd,
    ) -> RedisResult<(Vec<RedisResult<Value>>, RedisResult<Value>)> {
        let (replies, last) = self.run_all_then(requests, Some(last)).await?;
        Ok((replies, last.unwrap_or_else(|| Err(gone()))))
    }

    async fn run_all_then(
        &self,
        requests: &[Request],
        last: Option<&Cmd>,
    ) -> RedisResult<(Vec<RedisResult<Value>>, Option<RedisResult<Value>>)> {
        if requests.is_empty() {
            return Ok((Vec::new(), None));
        }
        let send = async |in_full: bool, indices: &[usize]| {
            let mut pipeline = Pipeline::with_capacity(indices.len() + 1);
            for index in indices {
                let request = &requests[*index];
                pipeline.add_command(if in_full { request.in_full() } else { request.command() });
            }
            if let Some(last) = last {
                pipeline.add_command(last.clone());
            }
            self.pipeline(&pipeline).await
        };
        let all: Vec<usize> = (0..requests.len()).collect();
        let mut replies = send(false, &all).await?;
        let mut last_reply = last.and_then(|_| replies.pop());
        let unknown: Vec<usize> =
            all.into_iter().filter(|index| replies[*index].as_ref().is_err_and(is_unknown_script)).collect();
        // The first brings the script's text, so the others find it.
        for (in_full, indices) in [(true, unknown.get(..1)), (false, unknown.get(1..))] {
            let Some(indices) = indices.filter(|indices| !indices.is_empty()) else { continue };
            let mut again = send(in_full, indices).await?;
            last_reply = last.and_then(|_| again.pop());
            for (index, reply) in indices.iter().zip(again) {
                replies[*index] = reply;
            }
        }
        Ok((replies, last_reply))
    }
}

/// Keeps one connection alive, and replaces it.
struct Minder {
    watch: Watch,
    dial: Dial,
    live: watch::Sender<Option<Live>>,
    broken: mpsc::UnboundedSender<u64>,
    reports: mpsc::UnboundedReceiver<u64>,
    generation: u64,
    spot: Spot,
}

impl Minder {
    async fn run(mut self, first: Option<oneshot::Sender<RedisResult<()>>>) {
        let mut first = first;
        let mut pause = Duration::ZERO;
        let mut was_up = false;
        let started = std::time::Instant::now();
        loop {
            self.generation = GENERATIONS.fetch_add(1, Relaxed);
            match self.connect().await {
                Ok(connection) => {
                    self.live.send_replace(Some(Live { generation: self.generation, connection }));
                    match first.take() {
                        Some(first) => drop(first.send(Ok(()))),
                        None => self.say_that_we_are_back(was_up),
                    }
                    was_up = true;
                    let ended = self.until_broken().await;
                    self.live.send_replace(None);
                    if ended == CLOSE {
                        return;
                    }
                    pause = Duration::ZERO;
                }
                // A busy machine is no reason to give up at once; one that refuses is.
                Err(error) if first.is_some() && error.is_timeout() && started.elapsed() < FIRST_PATIENCE => {
                }
                Err(error) => {
                    if let Some(first) = first.take() {
                        drop(first.send(Err(error)));
                        return;
                    }
                    tracing::debug!(target = ?self.dial.target, %error, "could not connect; trying again");
                    pause = (pause * 2).clamp(Duration::from_millis(10), self.dial.time_limit);
                }
            }
            let share = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(pause.mul_f64(share)).await;
        }
    }

    fn say_that_we_are_back(&self, was_up: bool) {
        if was_up && let Some(ears) = &self.dial.ears {
            (ears.back)();
        }
    }

    /// Returns when this generation's connection is reported broken, the master has moved, or all is to end.
    async fn until_broken(&mut self) -> u64 {
        let mut switches = self.dial.target.switches();
        loop {
            tokio::select! {
                report = self.reports.recv() => match report {
                    None => return CLOSE,
                    Some(report) if report == self.generation || report == CLOSE => return report,
                    Some(_) => {}
                },
                // Every sentinel tells it once; the first to do so may be the only one who knows it yet.
                () = switches.next() => if self.dial.target.find().await.ok().as_ref() != Some(&self.spot) {
                    return self.generation;
                },
            }
        }
    }

    async fn connect(&mut self) -> RedisResult<Connection> {
        let limit = self.dial.time_limit.max(Duration::from_millis(200));
        match tokio::time::timeout(limit, self.connect_at_last()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(io_error(std::io::ErrorKind::TimedOut, "no connection in time")),
        }
    }

    async fn connect_at_last(&mut self) -> RedisResult<Connection> {
        self.spot = self.dial.target.find().await?;
        let (generation, broken) = (self.generation, self.broken.clone());
        let ended = move || {
            let _ = broken.send(generation);
        };
        let spot = (&*self.spot.0, self.spot.1);
        Connection::open(spot, &self.dial, &self.watch, self.push_sender(), ended).await
    }

    fn push_sender(&self) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static {
        let (generation, broken) = (self.generation, self.broken.clone());
        let ears = self.dial.ears.clone();
        move |push: PushInfo| {
            match push.kind {
                PushKind::Disconnection => drop(broken.send(generation)),
                PushKind::Message => {
                    if let (Some(ears), Some(Value::BulkString(text))) = (&ears, push.data.get(1))
                        && let Ok(text) = std::str::from_utf8(text)
                    {
                        (ears.heard)(text);
                    }
                }
                _ => {}
            }
            Ok(())
        }
    }
}

pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(crate) fn io_error(kind: std::io::ErrorKind, text: &'static str) -> RedisError {
    std::io::Error::new(kind, text).into()
}

pub(crate) fn gone() -> RedisError {
    io_error(std::io::ErrorKind::NotConnected, "the connection's runtime is gone")
}
