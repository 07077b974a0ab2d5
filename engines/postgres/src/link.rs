//! A connection that is opened again when it breaks, shared by everybody: requests go out without waiting for
//! each other, answers come in order.

use crate::config::Settings;
use crate::session::{Messages, Session};
use lockkeeper_core::Result;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// One such connection.
pub(crate) struct Link {
    settings: Arc<Settings>,
    statements: &'static [&'static str],
    messages: Messages,
    /// To be sent when the connection is new: which channel to listen on.
    greeting: Option<String>,
    /// Whether it stays on the house runtime, or lives on that of whoever needs it.
    on_house: bool,
    current: Mutex<Option<Arc<Session>>>,
    opening: tokio::sync::Mutex<()>,
    busy: AtomicUsize,
}

impl Link {
    pub(crate) fn new(
        settings: &Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        greeting: Option<String>,
    ) -> Self {
        Self::on(true, settings, statements, messages, greeting)
    }

    /// A link that lives with its users.
    pub(crate) fn quick(
        settings: &Arc<Settings>,
        statements: &'static [&'static str],
        greeting: Option<String>,
    ) -> Self {
        Self::on(false, settings, statements, None, greeting)
    }

    fn on(
        on_house: bool,
        settings: &Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        greeting: Option<String>,
    ) -> Self {
        Self {
            on_house,
            settings: Arc::clone(settings),
            statements,
            messages,
            greeting,
            current: Mutex::new(None),
            opening: tokio::sync::Mutex::new(()),
            busy: AtomicUsize::new(0),
        }
    }

    /// The open connection, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|session| session.is_open()).cloned()
    }

    /// The open connection, or a new one.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        if let Some(session) = self.current() {
            if !self.on_house {
                session.backing.come_here();
            }
            return Ok(session);
        }
        let _one_at_a_time = self.opening.lock().await;
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let settings = Arc::clone(&self.settings);
        let session = if self.on_house {
            Session::open(settings, self.statements, self.messages.clone()).await?
        } else {
            Session::open_here(settings, self.statements).await?
        };
        if let Some(greeting) = &self.greeting {
            session.batch(greeting).await?;
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
        Ok(session)
    }

    /// How many requests are under way on it.
    pub(crate) fn load(&self) -> usize {
        self.busy.load(SeqCst)
    }

    /// Counts a request as long as the answer is kept.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        self.busy.fetch_add(1, SeqCst);
        UnderWay(&self.busy)
    }

    pub(crate) fn close(&self) {
        if let Some(session) = self.current.lock().unwrap_or_else(PoisonError::into_inner).take() {
            session.backing.abort();
        }
    }
}

pub(crate) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
