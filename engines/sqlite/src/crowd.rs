//! Writes of many tasks in one transaction: whoever gets the connection does what all have asked for meanwhile.
//!
//! Beginning and committing is most of a short transaction, so this is what makes 64 tasks on 64 locks cheap. A task that
//! comes alone pays nothing for it: its work is run at once. There is no task or thread that does it for the others, either:
//! who asks while others do steps back once, so that all who are ready have asked, and then does what nobody else has done.

use crate::database::{Database, Sql, begin, commit, transaction};
use crate::wake::Ring;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are done in one transaction at most: others, here and in other processes, are not to wait for long.
const AT_MOST: usize = 32;

/// Those who have asked and whose work is not begun.
#[derive(Default)]
pub(crate) struct Crowd {
    gathered: Mutex<VecDeque<Arc<dyn Work>>>,
    /// Lately several have asked at once.
    crowded: AtomicBool,
}

/// What one task asks for.
pub(crate) struct Ask<T, F> {
    work: F,
    /// Whether it needs no transaction around it when it is alone.
    single_statement: bool,
    outcome: Mutex<Option<Sql<T>>>,
    settled: AtomicBool,
}

/// An ask, whatever its answer is.
trait Work: Send + Sync {
    /// Does it in the present transaction; the outcome counts when it is settled.
    fn run(&self, connection: &Connection, database: &Database, rings: &mut Vec<Ring>) -> Sql<()>;

    /// Does it on its own, and settles it.
    fn run_alone(&self, connection: &Connection, database: &Database);

    /// Its task may have the outcome.
    fn settle(&self);

    fn is_settled(&self) -> bool;
}

impl<T, F> Ask<T, F>
where
    F: Fn(&Connection, &Database, &mut Vec<Ring>) -> Sql<T>,
{
    /// Work that is to be done in a transaction.
    pub(crate) fn transaction(work: F) -> Self {
        Self { work, single_statement: false, outcome: Mutex::new(None), settled: AtomicBool::new(false) }
    }

    /// Work that needs no transaction around it when it is alone, which saves two statements.
    pub(crate) fn statement(work: F) -> Self {
        Self { single_statement: true, ..Self::transaction(work) }
    }

    fn alone(&self, connection: &Connection, database: &Database) -> Sql<T> {
        let mut rings = Vec::new();
        let mut work = || (self.work)(connection, database, &mut rings);
        let done = if self.single_statement { work() } else { transaction(connection, work) };
        if done.is_ok() {
            database.ring(&rings);
        }
        done
    }

    fn outcome(&self) -> Option<Sql<T>> {
        if self.settled.load(SeqCst) { self.slot().take() } else { None }
    }
}

impl<T, F> Ask<T, F> {
    fn slot(&self) -> MutexGuard<'_, Option<Sql<T>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, F> Work for Ask<T, F>
where
    T: Send,
    F: Fn(&Connection, &Database, &mut Vec<Ring>) -> Sql<T> + Send + Sync,
{
    fn run(&self, connection: &Connection, database: &Database, rings: &mut Vec<Ring>) -> Sql<()> {
        let done = (self.work)(connection, database, rings)?;
        *self.slot() = Some(Ok(done));
        Ok(())
    }

    fn run_alone(&self, connection: &Connection, database: &Database) {
        let outcome = self.alone(connection, database);
        *self.slot() = Some(outcome);
        self.settle();
    }

    fn settle(&self) {
        self.settled.store(true, SeqCst);
    }

    fn is_settled(&self) -> bool {
        self.settled.load(SeqCst)
    }
}

impl Crowd {
    fn gathered(&self) -> MutexGuard<'_, VecDeque<Arc<dyn Work>>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those whose turn it is.
    fn next(&self) -> Vec<Arc<dyn Work>> {
        let mut gathered = self.gathered();
        let room = AT_MOST.min(gathered.len());
        self.crowded.store(room > 1, SeqCst);
        gathered.drain(..room).collect()
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Crowd").field("gathered", &self.gathered().len()).finish_non_exhaustive()
    }
}

/// A place among those who have gathered. Dropped, it is given up: work that was not begun never will be, so a leave
/// that is sent after a dropped join cannot be overtaken by it (Law 4).
struct Gathered<'a> {
    crowd: &'a Crowd,
    ask: Arc<dyn Work>,
}

impl<'a> Gathered<'a> {
    fn enter(crowd: &'a Crowd, ask: Arc<dyn Work>) -> Self {
        crowd.gathered().push_back(Arc::clone(&ask));
        Self { crowd, ask }
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        if !self.ask.is_settled() {
            self.crowd.gathered().retain(|other| !Arc::ptr_eq(other, &self.ask));
        }
    }
}

impl Database {
    /// Does what is asked for, at once or with others; fails if another process was at work.
    pub(crate) async fn do_one<T, F>(&self, ask: &Arc<Ask<T, F>>) -> Sql<T>
    where
        T: Send + 'static,
        F: Fn(&Connection, &Self, &mut Vec<Ring>) -> Sql<T> + Send + Sync + 'static,
    {
        if !self.crowd.crowded.load(SeqCst)
            && let Some(connection) = self.free_connection()
        {
            return ask.alone(&connection, self);
        }
        let _gathered = Gathered::enter(&self.crowd, Arc::clone(ask) as Arc<dyn Work>);
        loop {
            tokio::task::yield_now().await;
            if let Some(outcome) = ask.outcome() {
                return outcome;
            }
            let connection = self.connection();
            if let Some(outcome) = ask.outcome() {
                return outcome;
            }
            self.do_gathered(&connection)?;
            if let Some(outcome) = ask.outcome() {
                return outcome;
            }
        }
    }

    /// Does what those ask for whose turn it is, in one transaction. Fails only before anything was begun, and then they
    /// have not had their turn.
    fn do_gathered(&self, connection: &Connection) -> Sql<()> {
        let open = begin(connection)?;
        let turn = self.crowd.next();
        let mut rings = Vec::new();
        let all = turn.iter().try_for_each(|ask| ask.run(connection, self, &mut rings));
        match all.and_then(|()| commit(open)) {
            Ok(()) => {
                turn.iter().for_each(|ask| ask.settle());
                self.ring(&rings);
            }
            // One that fails must not be the failure of others.
            Err(error) => {
                tracing::debug!(%error, asks = turn.len(), "could not do them together; one after the other");
                self.numbers.undone();
                turn.iter().for_each(|ask| ask.run_alone(connection, self));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::row::SCHEMA;
    use lockkeeper_core::address::Address;
    use std::task::Poll;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A database in which several have just asked at once, so that those who ask now gather.
    fn crowded(directory: &tempfile::TempDir) -> Database {
        let url = format!("sqlite:{}?style=row", directory.path().join("locks.db").display());
        let config = Config::from(Address::parse(&url).unwrap()).unwrap();
        let database = Database::open(&config, SCHEMA, "DELETE FROM lockkeeper_rows", LIMIT).unwrap();
        database.crowd.crowded.store(true, SeqCst);
        database
    }

    async fn write(database: &Database, statement: &'static str) -> lockkeeper_core::Result<usize> {
        let ask = Ask::transaction(move |connection: &Connection, _: &Database, _: &mut Vec<Ring>| {
            connection.execute(statement, [])
        });
        database.write("write", LIMIT, ask).await
    }

    fn styles(database: &Database) -> Vec<String> {
        let connection = database.connection();
        let mut statement =
            connection.prepare("SELECT style FROM lockkeeper_counter ORDER BY style").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    const A: &str = "INSERT INTO lockkeeper_counter VALUES ('a', 0, 0, '', 1)";
    const B: &str = "INSERT INTO lockkeeper_counter VALUES ('b', 0, 0, '', 1)";

    #[tokio::test]
    async fn those_who_ask_at_once_are_done_in_one_transaction() {
        let directory = tempfile::tempdir().unwrap();
        let database = crowded(&directory);
        let second = Ask::transaction(|connection: &Connection, database: &Database, _: &mut Vec<Ring>| {
            assert!(database.crowd.gathered().is_empty());
            let seen: u32 = connection.query_row(
                "SELECT count(*) FROM lockkeeper_counter WHERE style = 'a'",
                [],
                |row| row.get(0),
            )?;
            Ok((seen, connection.is_autocommit()))
        });
        let (first, second) = tokio::join!(write(&database, A), database.write("write", LIMIT, second));
        assert_eq!((first.unwrap(), second.unwrap()), (1, (1, false)));
        assert!(database.crowd.crowded.load(SeqCst));
        write(&database, B).await.unwrap();
        assert!(!database.crowd.crowded.load(SeqCst), "one who came alone has ended it");
    }

    #[tokio::test]
    async fn one_that_fails_is_not_the_failure_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let database = crowded(&directory);
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
        let database = crowded(&directory);
        let mut given_up = Box::pin(write(&database, A));
        let polled = std::future::poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx))).await;
        assert!(polled.is_pending() && !database.crowd.gathered().is_empty());
        drop(given_up);
        assert!(database.crowd.gathered().is_empty());
        write(&database, B).await.unwrap();
        assert_eq!(styles(&database), ["b", "row"]);
    }
}
