//! The connections of one runtime: a few of the driver's, each for one request at a time.
//!
//! A connection of the driver is polled by the runtime that opened it, so each runtime has its own set.

use crate::config::{Encryption, Mode, Settings};
use crate::error::{
    Collisions, ENGINE, closed, collided, failed, is_login_refused, name_of, no_reply, too_late,
};
use lockkeeper_core::Result;
use lockkeeper_core::engine::{BoxFuture, Clock, Connection, Replies, background};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, DriverError, Opts, OptsBuilder, Params};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

const WHO: &str = include_str!("sql/who.sql");

/// A connection that was idle for longer is probed before it is used: the server may have closed it (`wait_timeout`).
const IDLE: Duration = Duration::from_secs(5);

/// What is to be done on a connection; done again if two transactions collided.
pub(crate) type Work<T> =
    Box<dyn for<'a> Fn(&'a mut Conn) -> BoxFuture<'a, mysql_async::Result<T>> + Send + Sync>;

/// A statement with parameters whose reply does not matter.
pub(crate) fn statement(text: &'static str, params: impl Into<Params>) -> Work<()> {
    let params = params.into();
    Box::new(move |conn| {
        let params = params.clone();
        Box::pin(async move { conn.exec_drop(text, params).await })
    })
}

/// Asks for a sign of life.
pub(crate) fn ping() -> Work<()> {
    Box::new(|conn| Box::pin(conn.ping()))
}

/// A statement with parameters and the first row of its reply.
pub(crate) fn first_row<T>(text: &'static str, params: impl Into<Params>) -> Work<Option<T>>
where
    T: FromRow + Send + 'static,
{
    let params = params.into();
    Box::new(move |conn| {
        let params = params.clone();
        Box::pin(async move { conn.exec_first(text, params).await })
    })
}

/// A statement as it is, and all rows of its reply.
pub(crate) fn rows<T: FromRow + Send + 'static>(text: String) -> Work<Vec<T>> {
    Box::new(move |conn| {
        let text = text.clone();
        Box::pin(async move { conn.query(text).await })
    })
}

/// Several statements in one request: all rows of their replies, and how many rows they changed. What they have begun is
/// undone if one of them fails.
pub(crate) fn several<T: FromRow + Send + 'static>(statements: String) -> Work<(Vec<T>, u64)> {
    Box::new(move |conn| {
        let statements = statements.clone();
        Box::pin(async move {
            match collect(conn, statements).await {
                Err(error @ mysql_async::Error::Server(_)) => {
                    conn.query_drop("ROLLBACK").await?;
                    Err(error)
                }
                outcome => outcome,
            }
        })
    })
}

async fn collect<T: FromRow + Send + 'static>(
    conn: &mut Conn,
    statements: String,
) -> mysql_async::Result<(Vec<T>, u64)> {
    let mut result = conn.query_iter(statements).await?;
    let (mut rows, mut changed) = (Vec::new(), 0);
    while !result.is_empty() {
        // While rows are read the driver still has the number of the statement before.
        if result.columns_ref().is_empty() {
            changed += result.affected_rows();
        }
        rows.extend(result.collect::<T>().await?);
    }
    Ok((rows, changed))
}

/// A connection of the driver that is closed at once if it is dropped in the middle of a request. By itself the driver
/// would read the rest of the reply first, which may never come.
pub(crate) struct Guarded {
    conn: Option<Conn>,
    /// A request is under way.
    is_used: bool,
}

impl Guarded {
    fn new(conn: Conn) -> Self {
        Self { conn: Some(conn), is_used: false }
    }

    /// Runs the work once. A connection that fails is of no more use, and says so by [`is_usable`](Self::is_usable).
    pub(crate) async fn run<T>(&mut self, work: &Work<T>) -> mysql_async::Result<T> {
        self.is_used = true;
        let outcome = work(self).await;
        self.is_used = outcome.as_ref().is_err_and(mysql_async::Error::is_fatal);
        outcome
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_used
    }

    /// Says goodbye to the server if the connection is usable, and closes it in any case.
    pub(crate) async fn close(mut self) {
        const LIMIT: Duration = Duration::from_secs(1);
        if self.is_usable()
            && let Some(conn) = self.conn.take()
        {
            let _ = Clock::Boot.timeout(LIMIT, conn.disconnect()).await;
        }
    }
}

impl Deref for Guarded {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.conn.as_ref().expect("it is taken only when dropped")
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("it is taken only when dropped")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.is_used
            && let Some(conn) = self.conn.take()
        {
            // Outside of every runtime the driver just closes the socket.
            let _ = std::thread::Builder::new().name("lockkeeper-close".into()).spawn(move || drop(conn));
        }
    }
}

/// What the server says of itself and of a connection.
pub(crate) struct Server {
    /// The server's number for the connection.
    pub(crate) number: u64,
    pub(crate) database: String,
    /// Whether it is MariaDB, which has sequences.
    pub(crate) is_mariadb: bool,
}

/// Opens a connection on the runtime that polls this.
pub(crate) async fn open(settings: &Settings, options: &Opts) -> Result<(Guarded, Server)> {
    type Who = (u64, u8, String, String);
    let mut options = OptsBuilder::from_opts(options.clone());
    if let Some(password) = settings.password.get(ENGINE).await? {
        options = options.pass(Some(password));
    }
    let opening = async {
        let mut conn = Guarded::new(open_encrypted(options, &settings.encryption).await?);
        let work: Work<Option<Who>> = Box::new(|conn| Box::pin(conn.query_first(WHO)));
        let who = conn.run(&work).await?;
        mysql_async::Result::Ok((conn, who))
    };
    let limit = settings.limits.connect;
    let opened = Clock::Boot.timeout(limit, opening).await.map_err(|_| too_late("connect", limit))?;
    let (conn, who) = opened.map_err(|error| {
        let is_refused = is_login_refused(&error);
        let error = failed("connect", error);
        if is_refused { settings.password.refused(error) } else { error }
    })?;
    settings.password.accepted();
    let (number, read_only, database, version) = who.ok_or_else(|| closed("connect"))?;
    let is_mariadb = version.contains("MariaDB");
    settings.check_version(&version)?;
    if read_only != 0 {
        return Err(settings.read_only());
    }
    Ok((conn, Server { number, database, is_mariadb }))
}

/// Opens the driver's connection, encrypted as the URL says.
async fn open_encrypted(options: OptsBuilder, encryption: &Encryption) -> mysql_async::Result<Conn> {
    let plain = || Conn::new(options.clone().ssl_opts(None));
    let tls = Opts::from(options.clone());
    let Some(ssl) = tls.ssl_opts().cloned() else { return plain().await };
    if encryption.mode == Mode::Preferred && encryption.has_none.load(SeqCst) {
        let opened = plain().await;
        encryption.has_none.store(opened.is_ok(), SeqCst);
        return opened;
    }
    // The driver takes the process's provider, and fails if there is none and several are compiled in.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Conn::new(tls).await {
        Err(mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer))
            if encryption.mode == Mode::Preferred =>
        {
            encryption.has_none.store(true, SeqCst);
            plain().await
        }
        // The driver cannot leave out the name, so one that the certificate has takes its place.
        Err(error) if encryption.mode == Mode::Authority => match name_of(&error) {
            Some(name) => {
                Conn::new(options.ssl_opts(ssl.with_danger_tls_hostname_override(Some(name)))).await
            }
            None => Err(error),
        },
        opened => opened,
    }
}

/// The connections of one runtime.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    runtime: Handle,
    /// Those without a request, and since when.
    idle: Mutex<Vec<(Guarded, Instant)>>,
    room: Semaphore,
    replies: Replies,
}

impl Connection for Pool {
    fn is_closed(&self) -> bool {
        self.0.replies.is_silent()
    }
}

impl Pool {
    /// Opens the first connection on the runtime that polls this.
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let (conn, _) = open(&settings, &settings.driver).await?;
        let runtime = Handle::current();
        let is_background = runtime.id() == background::handle().id();
        let limit = if is_background { settings.limits.renewal } else { settings.limits.request };
        Ok(Self(Arc::new(Inner {
            runtime,
            idle: Mutex::new(vec![(conn, Instant::now())]),
            // On the background two for renewals and one for looks, whatever else is sent there.
            room: Semaphore::new(settings.connections + if is_background { 3 } else { 0 }),
            replies: Replies::new(limit),
            settings,
        })))
    }

    /// Runs the work on a connection that is idle, or on a new one.
    ///
    /// Cancel safety: when dropped, it goes on to its end on the pool's runtime.
    pub(crate) async fn run<T: Send + 'static>(&self, doing: &'static str, work: Work<T>) -> Result<T> {
        let request = Arc::clone(&self.0).request(doing, work);
        ToItsEnd { request: Some(Box::pin(request)), runtime: &self.0.runtime }.await
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<(Guarded, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request<T>(self: Arc<Self>, doing: &'static str, work: Work<T>) -> Result<T> {
        let room = match self.room.try_acquire() {
            Ok(room) => room,
            Err(_) => {
                let (limit, from) = (self.settings.limits.connect, Clock::Boot.now());
                match Clock::Boot.timeout(limit, self.room.acquire()).await {
                    Ok(Ok(room)) => room,
                    _ => {
                        // Without any reply all are used by tasks that are not polled: the next caller opens others.
                        self.replies.give_up_unless_received_since(from);
                        return Err(too_late(doing, limit));
                    }
                }
            }
        };
        let from = Instant::now();
        let sent = self.replies.request(self.send(doing, work)).await;
        drop(room);
        sent.unwrap_or_else(|error| {
            // Those that were idle all the time may be as silent; new ones show it.
            let idle: Vec<_> = self.idle().extract_if(.., |(_, since)| *since < from).collect();
            drop(idle);
            Err(no_reply(doing, error))
        })
    }

    async fn send<T>(&self, doing: &'static str, work: Work<T>) -> Result<T> {
        let mut conn = self.conn().await?;
        let mut collisions = Collisions::default();
        let mut outcome = conn.run(&work).await;
        while collided(&outcome) && collisions.pause().await {
            // It has waited for others: the server replies, though not to this.
            self.replies.received();
            outcome = conn.run(&work).await;
        }
        if conn.is_usable() {
            self.idle().push((conn, Instant::now()));
        }
        outcome.map_err(|error| failed(doing, error))
    }

    async fn conn(&self) -> Result<Guarded> {
        loop {
            let Some((mut conn, since)) = self.idle().pop() else { break };
            if since.elapsed() < IDLE || conn.run(&ping()).await.is_ok() {
                return Ok(conn);
            }
        }
        Ok(open(&self.settings, &self.settings.driver).await?.0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The driver says goodbye on the runtime that this is dropped on, which must be the connections' own.
        if Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id()) {
            return;
        }
        self.idle().iter_mut().for_each(|(conn, _)| conn.is_used = true);
    }
}

/// A request that goes on by itself when its caller has gone: a leave that is sent then must come after its join.
struct ToItsEnd<'a, T: Send + 'static> {
    request: Option<BoxFuture<'static, Result<T>>>,
    runtime: &'a Handle,
}

impl<T: Send + 'static> Future for ToItsEnd<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(request) = self.request.as_mut() else { return Poll::Pending };
        let outcome = ready!(request.as_mut().poll(context));
        self.request = None;
        Poll::Ready(outcome)
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<'_, T> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.runtime.spawn(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::engine::Address;
    use lockkeeper_testkit::MariaDb;
    use std::cell::Cell;

    /// The request of a pool may last for half of it.
    const TTL: Duration = Duration::from_secs(4);

    async fn pool(server: &MariaDb) -> Pool {
        let address = Address::parse(&server.url()).expect("a URL");
        let settings = Settings::from_address(address, TTL, "queue").expect("settings");
        Pool::open(Arc::new(settings)).await.expect("a pool")
    }

    #[tokio::test]
    async fn a_pool_without_any_reply_is_closed_and_another_one_is_not() {
        let server = MariaDb::start();
        for is_alone in [true, false] {
            let pool = pool(&server).await;
            let number = || pool.run("ask", first_row::<u64>("SELECT CONNECTION_ID()", ()));
            let used = Cell::new(None);
            let sleeping = pool.run("sleep", statement("DO SLEEP(3)", ()));
            let others = async {
                if is_alone {
                    return std::future::pending().await;
                }
                loop {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    used.set(number().await.expect("a reply"));
                }
            };
            tokio::select! {
                biased;
                slept = sleeping => slept.expect_err("it sleeps for too long"),
                () = others => unreachable!(),
            };
            assert_eq!(pool.is_closed(), is_alone);
            if !is_alone {
                assert_eq!(number().await.expect("a reply"), used.get(), "that one replies");
            }
        }
    }

    #[tokio::test]
    async fn a_wait_for_a_row_does_not_close_the_pool() {
        let server = MariaDb::start();
        let [holder, waiter] = [pool(&server).await, pool(&server).await];
        let table = "CREATE TABLE it (number INT PRIMARY KEY) ENGINE = InnoDB";
        holder.run("create", statement(table, ())).await.expect("a table");
        let take: Work<(Vec<u8>, u64)> = several("START TRANSACTION; INSERT INTO it VALUES (1)".to_owned());
        holder.run("take", take).await.expect("the row");
        // The server may do the first one, whose caller gives up, after all.
        let put = || waiter.run("put", statement("REPLACE INTO it VALUES (1)", ()));
        put().await.expect_err("somebody has the row");
        assert!(!waiter.is_closed());
        holder.run("free", statement("ROLLBACK", ())).await.expect("the end");
        put().await.expect("it is free");
    }
}
