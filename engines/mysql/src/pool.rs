//! A few connections that share the work of one keeper, each for one request at a time.

use crate::config::Settings;
use crate::wire::{Wire, Work};
use lockkeeper_core::{Result, background};
use mysql_async::prelude::Queryable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// The server may have ended a connection that was idle for longer (`wait_timeout`), and it does not notice by itself.
const IDLE: Duration = Duration::from_secs(5);

/// Whose runtime the connections live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The house's: for whatever keeps locks alive.
    House,
    /// That of whoever needs one first: a request needs no switch of threads there.
    Caller,
}

/// The connections.
pub(crate) struct Pool {
    settings: Arc<Settings>,
    home: Home,
    /// Those that nobody uses, and since when.
    idle: Mutex<Vec<(Arc<Wire>, Instant)>>,
    room: Semaphore,
}

impl Pool {
    pub(crate) fn new(settings: &Arc<Settings>, home: Home, at_most: usize) -> Self {
        Self { settings: Arc::clone(settings), home, idle: Mutex::default(), room: Semaphore::new(at_most) }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Arc<Wire>, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wire(&self) -> Result<Arc<Wire>> {
        loop {
            let idle = self.idle().pop();
            match idle {
                Some((wire, since)) if wire.is_open() && (since.elapsed() < IDLE || answers(&wire).await) => {
                    return Ok(wire);
                }
                Some(_) => {}
                None => break,
            }
        }
        match self.home {
            Home::House => Wire::open(&self.settings, background::handle()).await,
            Home::Caller => Wire::open(&self.settings, &Handle::current()).await,
        }
    }

    /// Runs the work on a connection that is free.
    pub(crate) async fn run<T: Send + 'static>(&self, doing: &'static str, work: Work<T>) -> Result<T> {
        let _room = self.room.acquire().await;
        let returned = Returned { pool: self, wire: self.wire().await? };
        returned.wire.run(doing, work).await
    }

    pub(crate) fn close(&self) {
        self.room.close();
        self.idle().drain(..).for_each(|(wire, _)| wire.cut());
    }
}

/// Whether the server is still there. A connection on which it is not is not open any more.
async fn answers(wire: &Wire) -> bool {
    Box::pin(wire.run("see whether a connection lives", Box::new(|conn| Box::pin(conn.ping())))).await.is_ok()
}

/// Goes back to the pool however the request ends; if it was left, the next one waits for its end.
struct Returned<'a> {
    pool: &'a Pool,
    wire: Arc<Wire>,
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        if self.wire.is_open() && !self.pool.room.is_closed() {
            self.pool.idle().push((Arc::clone(&self.wire), Instant::now()));
        }
    }
}
