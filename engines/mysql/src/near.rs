//! The connection for whoever comes alone: one of our own, on which a request costs less than on the driver's. Whoever
//! comes meanwhile takes one of the pool's.

use crate::answer::Said;
use crate::config::Settings;
use crate::pool::Pool;
use crate::request::{Value, params};
use crate::session::{Session, Use, insist};
use crate::wire::{ToItsEnd, Work};
use lockkeeper_core::{Result, background};
use mysql_async::prelude::Queryable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Writes single rows, over that connection or one of the pool's.
pub(crate) struct Writer {
    pub(crate) near: Near,
    pub(crate) pool: Arc<Pool>,
}

impl Writer {
    /// Writes with one of the statements. What is `kept` is let go when that is over.
    ///
    /// Cancel safety: when dropped, it goes on to its end, unless it has not begun.
    pub(crate) async fn write(
        &self,
        doing: &'static str,
        statement: usize,
        values: Vec<Value<'static>>,
        kept: impl Send + Sync + 'static,
    ) -> Result<Said> {
        if let Some(session) = self.near.free().await? {
            let request = Box::pin(async move {
                let _kept = kept;
                insist(|| session.run(doing, statement, &values)).await
            });
            return ToItsEnd::of(request, background::handle()).await;
        }
        let text = self.near.statements[statement].as_str();
        let work: Work<Said> = Box::new(move |conn| {
            let (_kept, params) = (&kept, params(&values));
            Box::pin(async move {
                conn.exec_drop(text, params).await?;
                let number = conn.last_insert_id().unwrap_or_default();
                Ok(Said { changed: conn.affected_rows(), number, ..Said::default() })
            })
        });
        self.pool.run(doing, work).await
    }
}

/// The connection, opened when it is first used and again when it has broken.
pub(crate) struct Near {
    settings: Arc<Settings>,
    statements: &'static [String],
    state: Mutex<State>,
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    is_closed: bool,
}

impl Near {
    /// A connection for these statements.
    pub(crate) fn new(settings: &Arc<Settings>, statements: &'static [String]) -> Self {
        let (state, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { settings: Arc::clone(settings), statements, state, opening }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, unless somebody uses it or opens it.
    pub(crate) async fn free(&self) -> Result<Option<Arc<Session>>> {
        let session = self.state().session.clone();
        match session {
            Some(session) if session.is_open() => Ok(Some(session).filter(|session| !session.is_busy())),
            _ => Box::pin(self.open()).await,
        }
    }

    async fn open(&self) -> Result<Option<Arc<Session>>> {
        let Ok(_alone) = self.opening.try_lock() else { return Ok(None) };
        if self.state().is_closed {
            return Ok(None);
        }
        let session = Session::open(&self.settings, Use::Writes, self.statements).await?;
        let mut state = self.state();
        if !state.is_closed {
            state.session = Some(Arc::clone(&session));
        }
        Ok(Some(session))
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.session = None;
    }
}
