//! One connection to the server. A request runs to its end, even if nobody waits for the answer any more: a
//! connection left in the middle of an answer would be of no use.

use crate::config::Settings;
use crate::fault::{ENGINE, cut, fault, is_collision, too_late};
use lockkeeper_core::{BoxFuture, Error, Lifeline, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

const WHO: &str = include_str!("sql/who.sql");

/// What is to be done on a connection; asked again if two transactions collided.
pub(crate) type Work<T> =
    Box<dyn for<'a> Fn(&'a mut Conn) -> BoxFuture<'a, mysql_async::Result<T>> + Send + Sync>;

/// How often a transaction that collided with another is tried again.
const COLLISIONS: u32 = 10;

/// One connection. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Wire {
    slot: Arc<Mutex<Option<Conn>>>,
    /// The server's number for it.
    pub(crate) number: u32,
    pub(crate) lifeline: Lifeline,
    home: Handle,
    limit: Duration,
}

impl Wire {
    /// Opens a connection that lives on this runtime.
    pub(crate) async fn open(settings: &Settings, home: &Handle) -> Result<Arc<Self>> {
        let (limit, driver) = (settings.limits.connect, settings.driver.clone());
        let opening = home.spawn(tokio::time::timeout(limit, async move {
            let mut conn = Conn::new(driver).await?;
            let who: Option<(u32, u8)> = conn.query_first(WHO).await?;
            mysql_async::Result::Ok((conn, who.unwrap_or_default()))
        }));
        let (conn, (number, read_only)) = match opening.await {
            Ok(Ok(opened)) => opened.map_err(|error| fault("connect", error))?,
            Ok(Err(_)) => return Err(too_late("connect", limit)),
            Err(gone) => return Err(Error::temporary(ENGINE, "connect", gone)),
        };
        if read_only != 0 {
            let why =
                format!("{} is read-only, so it must not give locks: name the primary", settings.server);
            return Err(Error::permanent(ENGINE, "use this server", why));
        }
        Ok(Arc::new(Self {
            slot: Arc::new(Mutex::new(Some(conn))),
            number,
            lifeline: Lifeline::new(),
            home: home.clone(),
            limit: settings.limits.request,
        }))
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.lifeline.has_ended()
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.slot.try_lock().is_err()
    }

    /// Runs the work within the usual time limit.
    pub(crate) async fn run<T: Send + 'static>(&self, doing: &'static str, work: Work<T>) -> Result<T> {
        self.run_within(doing, self.limit, work).await
    }

    /// Runs the work. Cancel safety: when dropped, it goes on to its end.
    pub(crate) async fn run_within<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: Work<T>,
    ) -> Result<T> {
        let (slot, line) = (Arc::clone(&self.slot), self.lifeline.clone());
        let task = self.home.spawn(async move {
            let mut slot = slot.lock_owned().await;
            if line.has_ended() {
                slot.take();
            }
            let Some(conn) = slot.as_mut() else { return Err(cut(doing)) };
            let outcome = match tokio::time::timeout(limit, insist(conn, &work)).await {
                Ok(outcome) => outcome.map_err(|error| (error.is_fatal(), fault(doing, error))),
                Err(_) => Err((true, too_late(doing, limit))),
            };
            outcome.map_err(|(fatal, error)| {
                if fatal {
                    line.end();
                    slot.take();
                }
                error
            })
        });
        match task.await {
            Ok(outcome) => outcome,
            Err(gone) => {
                self.lifeline.end();
                Err(Error::temporary(ENGINE, doing, gone))
            }
        }
    }

    /// Cuts the connection; what it holds is lost at once.
    pub(crate) fn cut(&self) {
        self.lifeline.end();
        let slot = Arc::clone(&self.slot);
        self.home.spawn(async move { slot.lock().await.take() });
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn insist<T>(conn: &mut Conn, work: &Work<T>) -> mysql_async::Result<T> {
    let mut tries = 0;
    loop {
        match work(conn).await {
            Err(mysql_async::Error::Server(told)) if is_collision(told.code) && tries < COLLISIONS => {
                tries += 1;
                tokio::time::sleep(Duration::from_micros(rand::random_range(100..2000) * u64::from(tries)))
                    .await;
            }
            outcome => return outcome,
        }
    }
}
