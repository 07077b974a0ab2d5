//! Requests of many tasks in one transaction: beginning and committing is most of the cost of a short one.
//! Only here the transaction is ours and not the server's.
//!
//! The queue belongs to the engine's thread. A task that finds the connection free does not come here.

use crate::connection::{Shared, begin, commit, transaction};
use crate::error::{Sql, is_busy};
use crate::wake::Wakeup;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How many requests are served in one transaction at most, so that other processes do not wait for long.
const AT_MOST: usize = 32;

/// After how many batches of one the requests no longer count as contended.
const CALM: u32 = 32;

/// What a request needs when it is served alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It changes nothing, so a writer in another process does not matter.
    Read,
    /// At most one of its statements writes, so it needs no transaction: that saves two statements.
    Statement,
    Transaction,
}

/// The work of a request that returns `T`. What it wants to wake is woken after the commit.
pub(crate) trait Work<T>:
    Fn(&Connection, &Shared, &mut Vec<Wakeup>) -> Sql<T> + Send + 'static
{
}

impl<T, F: Fn(&Connection, &Shared, &mut Vec<Wakeup>) -> Sql<T> + Send + 'static> Work<T> for F {}

/// Serves one request without others.
pub(crate) fn serve_alone<T>(
    connection: &Connection,
    shared: &Shared,
    kind: Kind,
    work: &impl Work<T>,
) -> Sql<T> {
    let mut wakeups = Vec::new();
    let mut serve = || work(connection, shared, &mut wakeups);
    let done = if kind == Kind::Transaction { transaction(connection, serve) } else { serve() }?;
    shared.wake(&wakeups);
    Ok(done)
}

/// A request that waits for the engine's thread.
struct Pending<T, W> {
    kind: Kind,
    work: W,
    done: Option<T>,
    reply: oneshot::Sender<Sql<T>>,
}

/// A pending request, whatever its result is.
trait Request: Send {
    fn is_read(&self) -> bool;

    fn is_cancelled(&self) -> bool;

    /// Serves it in the present transaction; [`settle`](Self::settle) follows if that is committed.
    fn serve(&mut self, connection: &Connection, shared: &Shared, wakeups: &mut Vec<Wakeup>) -> Sql<()>;

    fn settle(self: Box<Self>);

    /// Serves it without others, and settles it. `Err` if the database is busy.
    fn serve_alone(self: Box<Self>, connection: &Connection, shared: &Shared)
    -> Result<(), Box<dyn Request>>;
}

impl<T: Send + 'static, W: Work<T>> Request for Pending<T, W> {
    fn is_read(&self) -> bool {
        self.kind == Kind::Read
    }

    fn is_cancelled(&self) -> bool {
        self.reply.is_closed()
    }

    fn serve(&mut self, connection: &Connection, shared: &Shared, wakeups: &mut Vec<Wakeup>) -> Sql<()> {
        self.done = Some((self.work)(connection, shared, wakeups)?);
        Ok(())
    }

    fn settle(self: Box<Self>) {
        if let Some(done) = self.done {
            let _ = self.reply.send(Ok(done));
        }
    }

    fn serve_alone(
        self: Box<Self>,
        connection: &Connection,
        shared: &Shared,
    ) -> Result<(), Box<dyn Request>> {
        match serve_alone(connection, shared, self.kind, &self.work) {
            Err(error) if is_busy(&error) => return Err(self),
            served => drop(self.reply.send(served)),
        }
        Ok(())
    }
}

type Writes = VecDeque<Box<dyn Request>>;

/// The requests that have not been begun.
#[derive(Default)]
pub(crate) struct Requests {
    /// Apart from the writes, which may have to wait for another process.
    reads: Mutex<Vec<Box<dyn Request>>>,
    writes: Mutex<Writes>,
    /// Above zero if a batch had several requests lately. Then tasks queue here even if the connection is free: else most
    /// would be served alone again, for twice the processor time. Lowered by each batch of one.
    contended: AtomicU32,
}

impl Requests {
    fn reads(&self) -> MutexGuard<'_, Vec<Box<dyn Request>>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_contended(&self) -> bool {
        self.contended.load(SeqCst) > 0
    }

    pub(crate) fn are_none(&self) -> bool {
        self.reads().is_empty() && self.writes().is_empty()
    }

    /// Appends a request. Its result comes over the channel; a request whose receiver is dropped before it was begun is
    /// never served, so a leave that is sent after a dropped join cannot be overtaken by it (Law 4).
    pub(crate) fn add<T: Send + 'static>(&self, kind: Kind, work: impl Work<T>) -> oneshot::Receiver<Sql<T>> {
        let (reply, result) = oneshot::channel();
        self.put(Box::new(Pending { kind, work, done: None, reply }), VecDeque::push_back);
        result
    }

    fn put(&self, request: Box<dyn Request>, at: fn(&mut Writes, Box<dyn Request>)) {
        match request.is_read() {
            true => self.reads().push(request),
            false => at(&mut self.writes(), request),
        }
    }

    /// Takes the next batch of writes.
    fn take_writes(&self) -> Vec<Box<dyn Request>> {
        let mut writes = self.writes();
        writes.retain(|request| !request.is_cancelled());
        let count = AT_MOST.min(writes.len());
        match count {
            0 => {}
            1 => self.contended.store(self.contended.load(SeqCst).saturating_sub(1), SeqCst),
            _ => self.contended.store(CALM, SeqCst),
        }
        writes.drain(..count).collect()
    }

    fn take_reads(&self) -> Vec<Box<dyn Request>> {
        let mut reads = std::mem::take(&mut *self.reads());
        reads.retain(|request| !request.is_cancelled());
        reads
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("writes", &self.writes().len()).finish_non_exhaustive()
    }
}

/// Serves the next batch. `false` if another process is at work; the requests it hinders then wait on.
pub(crate) fn serve_next(connection: &Connection, shared: &Shared) -> bool {
    let mut busy = each_alone(shared.requests.take_reads(), connection, shared);
    busy.extend(together(shared.requests.take_writes(), connection, shared));
    let is_free = busy.is_empty();
    busy.into_iter().rev().for_each(|request| shared.requests.put(request, VecDeque::push_front));
    is_free
}

/// Serves the requests in one transaction; returns those for which the database was busy.
fn together(
    mut requests: Vec<Box<dyn Request>>,
    connection: &Connection,
    shared: &Shared,
) -> Vec<Box<dyn Request>> {
    if requests.is_empty() {
        return requests;
    }
    let open = match begin(connection) {
        Ok(open) => open,
        Err(error) if is_busy(&error) => return requests,
        Err(_) => return each_alone(requests, connection, shared),
    };
    let mut wakeups = Vec::new();
    let served = requests.iter_mut().try_for_each(|request| request.serve(connection, shared, &mut wakeups));
    match served.and_then(|()| commit(open)) {
        Ok(()) => {
            requests.into_iter().for_each(Request::settle);
            shared.wake(&wakeups);
            Vec::new()
        }
        // One request's error must not be the error of others.
        Err(error) => {
            tracing::debug!(%error, requests = requests.len(), "could not serve them together; one after the other");
            shared.tokens.rolled_back();
            each_alone(requests, connection, shared)
        }
    }
}

/// Serves each request without the others; returns those for which the database was busy.
fn each_alone(
    requests: Vec<Box<dyn Request>>,
    connection: &Connection,
    shared: &Shared,
) -> Vec<Box<dyn Request>> {
    requests.into_iter().filter_map(|request| request.serve_alone(connection, shared).err()).collect()
}

#[cfg(test)]
mod tests {
    use super::{CALM, Kind};
    use crate::config::Config;
    use crate::connection::{Database, Shared};
    use crate::row::SCHEMA;
    use crate::wake::Wakeup;
    use lockkeeper_core::engine::Address;
    use rusqlite::Connection;
    use std::pin::Pin;
    use std::sync::atomic::Ordering::SeqCst;
    use std::task::{Context, Waker};
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A database whose last batch had several requests, so that those that come now are queued.
    fn contended(directory: &tempfile::TempDir) -> Database {
        let url = format!("sqlite:{}?style=row", directory.path().join("locks.db").display());
        let config = Config::from(Address::parse(&url).unwrap()).unwrap();
        let database = Database::open(&config, &SCHEMA, LIMIT).unwrap();
        database.shared.requests.contended.store(CALM, SeqCst);
        database
    }

    async fn write(database: &Database, statement: &'static str) -> lockkeeper_core::Result<usize> {
        let work =
            move |connection: &Connection, _: &Shared, _: &mut Vec<Wakeup>| connection.execute(statement, []);
        database.request("write", LIMIT, Kind::Transaction, work).await
    }

    fn styles(database: &Database) -> Vec<String> {
        let slot = database.shared.connection();
        let mut statement =
            slot.as_ref().unwrap().prepare("SELECT style FROM lockkeeper_counter ORDER BY style").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// Sends a request that has to wait.
    fn begin(request: &mut Pin<Box<impl Future>>) {
        assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    const A: &str = "INSERT INTO lockkeeper_counter VALUES ('a', 0, 0, '', 1)";
    const B: &str = "INSERT INTO lockkeeper_counter VALUES ('b', 0, 0, '', 1)";

    #[tokio::test]
    async fn requests_that_come_together_are_served_in_one_transaction() {
        let directory = tempfile::tempdir().unwrap();
        let database = contended(&directory);
        let second = |connection: &Connection, shared: &Shared, _: &mut Vec<Wakeup>| {
            assert!(shared.requests.are_none());
            let seen: u32 = connection.query_row(
                "SELECT count(*) FROM lockkeeper_counter WHERE style = 'a'",
                [],
                |row| row.get(0),
            )?;
            Ok((seen, connection.is_autocommit()))
        };
        // Both are queued before the engine's thread gets the connection.
        let held = database.shared.connection();
        let both = async {
            tokio::join!(write(&database, A), database.request("write", LIMIT, Kind::Transaction, second))
        };
        let mut both = Box::pin(both);
        begin(&mut both);
        drop(held);
        let (first, second) = both.await;
        assert_eq!((first.unwrap(), second.unwrap()), (1, (1, false)));
        assert!(database.shared.requests.are_contended());
        write(&database, B).await.unwrap();
        for _ in 1..CALM {
            assert!(database.shared.requests.are_contended());
            write(&database, "UPDATE lockkeeper_counter SET base = 0").await.unwrap();
        }
        assert!(!database.shared.requests.are_contended(), "batches of one have ended it");
    }

    #[tokio::test]
    async fn one_that_fails_is_not_the_failure_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let database = contended(&directory);
        let (first, bad, last) = tokio::join!(
            write(&database, A),
            write(&database, "INSERT INTO there_is_no_such_table VALUES (1)"),
            write(&database, B)
        );
        assert_eq!((first.unwrap(), last.unwrap()), (1, 1));
        assert!(bad.unwrap_err().to_string().contains("there_is_no_such_table"));
        assert_eq!(styles(&database), ["a", "b", "row"]);
    }

    #[tokio::test]
    async fn what_is_given_up_before_it_was_begun_is_never_done() {
        let directory = tempfile::tempdir().unwrap();
        let database = contended(&directory);
        let held = database.shared.connection();
        let mut given_up = Box::pin(write(&database, A));
        begin(&mut given_up);
        assert!(!database.shared.requests.are_none());
        drop(given_up);
        drop(held);
        write(&database, B).await.unwrap();
        assert_eq!(styles(&database), ["b", "row"]);
    }
}
