//! One connection to the server. A request runs to its end, even if nobody waits for the answer any more: a
//! connection left in the middle of an answer would be of no use.

use crate::collision::{Collisions, is_collision};
use crate::config::Settings;
use crate::fault::{ENGINE, cut, fault, too_late};
use lockkeeper_core::{BoxFuture, Error, Lifeline, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

const WHO: &str = include_str!("sql/who.sql");

/// What is to be done on a connection; asked again if two transactions collided.
pub(crate) type Work<T> =
    Box<dyn for<'a> Fn(&'a mut Conn) -> BoxFuture<'a, mysql_async::Result<T>> + Send + Sync>;

/// A statement whose answer does not matter.
pub(crate) fn statement<P>(text: &'static str, params: P) -> Work<()>
where
    P: Into<Params> + Clone + Send + Sync + 'static,
{
    Box::new(move |conn| {
        let params = params.clone().into();
        Box::pin(async move { conn.exec_drop(text, params).await })
    })
}

/// One connection. It is never repaired: when it breaks, its lifeline ends.
pub(crate) struct Wire {
    slot: Arc<Mutex<Option<Conn>>>,
    /// Whether it is MariaDB, which has sequences.
    pub(crate) mariadb: bool,
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
            let who: Option<(u32, u8, String, bool)> = conn.query_first(WHO).await?;
            mysql_async::Result::Ok((conn, who.unwrap_or_default()))
        }));
        let (conn, (_, read_only, _, mariadb)) = match opening.await {
            Ok(Ok(opened)) => opened.map_err(|error| fault("connect", error))?,
            Ok(Err(_)) => return Err(too_late("connect", limit)),
            Err(gone) => return Err(Error::temporary(ENGINE, "connect", gone)),
        };
        if read_only != 0 {
            return Err(settings.read_only());
        }
        Ok(Arc::new(Self {
            slot: Arc::new(Mutex::new(Some(conn))),
            mariadb,
            lifeline: Lifeline::new(),
            home: home.clone(),
            limit: settings.limits.request,
        }))
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.lifeline.has_ended()
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
        let request = async move {
            let mut slot = slot.lock_owned().await;
            if line.has_ended() {
                slot.take();
            }
            let Some(conn) = slot.as_mut() else { return Err(cut(doing)) };
            let mut half_done = HalfDone(Some(line));
            let outcome = match tokio::time::timeout(limit, insist(conn, &work)).await {
                Ok(outcome) => outcome.map_err(|error| (error.is_fatal(), fault(doing, error))),
                Err(_) => Err((true, too_late(doing, limit))),
            };
            if matches!(outcome, Err((true, _))) {
                slot.take();
            } else {
                half_done.0.take();
            }
            outcome.map_err(|(_, error)| error)
        };
        // At home it needs no task of its own, unless it is left.
        if Handle::try_current().is_ok_and(|here| here.id() == self.home.id()) {
            return ToItsEnd::of(Box::pin(request), &self.home).await;
        }
        match self.home.spawn(request).await {
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

/// Ends the lifeline of a connection on which a request was not finished: with its runtime, or by the time limit.
struct HalfDone(Option<Lifeline>);

impl Drop for HalfDone {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line.end();
        }
    }
}

/// A request that goes on by itself when nobody waits for it any more.
pub(crate) struct ToItsEnd<'a, T: Send + 'static> {
    request: Option<BoxFuture<'static, Result<T>>>,
    home: &'a Handle,
}

impl<'a, T: Send + 'static> ToItsEnd<'a, T> {
    /// This request; it goes on here.
    pub(crate) fn of(request: BoxFuture<'static, Result<T>>, home: &'a Handle) -> Self {
        Self { request: Some(request), home }
    }
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
            self.home.spawn(request);
        }
    }
}

async fn insist<T>(conn: &mut Conn, work: &Work<T>) -> mysql_async::Result<T> {
    let mut collisions = Collisions::default();
    loop {
        match work(conn).await {
            Err(mysql_async::Error::Server(told)) if is_collision(told.code) => {
                if !collisions.once_more().await {
                    return Err(told.into());
                }
            }
            outcome => return outcome,
        }
    }
}
