//! The session in use, and a new one after it expired.

use crate::config::Settings;
use crate::connection::trusted;
use crate::failure::Failure;
use crate::session::Session;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to look for a server that opens a session.
const OPENING_PATIENCE: Duration = Duration::from_secs(8);

/// All claims of a keeper live in one session. When it expires they are dead, and later claims get a new one.
#[derive(Debug)]
pub(crate) struct Sessions {
    settings: SettingsInUse,
    present: Mutex<Arc<Session>>,
    /// Held by whoever opens the next session, so that there is only one.
    opening: tokio::sync::Mutex<()>,
    timeout: Duration,
    closed: AtomicBool,
}

struct SettingsInUse(Arc<Settings>);

impl std::fmt::Debug for SettingsInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the secrets.
        write!(f, "{:?}", self.0.servers)
    }
}

impl Sessions {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, Failure> {
        let first = Session::open(Arc::clone(&settings), OPENING_PATIENCE).await?;
        Ok(Self {
            settings: SettingsInUse(settings),
            timeout: first.timeout(),
            present: Mutex::new(first),
            opening: tokio::sync::Mutex::new(()),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings.0
    }

    /// How long the server keeps a session without a sign of life, as negotiated: the keeper's TTL.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The time limit of one request: a third of the time that a claim is trusted.
    pub(crate) fn limit(&self) -> Duration {
        trusted(self.timeout) / 3
    }

    /// The session in use, be it connected or over.
    pub(crate) fn present(&self) -> Arc<Session> {
        Arc::clone(&self.present.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The session a claim was made in, unless that is over and the claim dead with it.
    pub(crate) fn living(&self, id: i64) -> Option<Arc<Session>> {
        Some(self.present()).filter(|session| session.id() == id && !session.is_over())
    }

    /// A session that takes requests; a new one if the last is over.
    pub(crate) async fn usable(&self) -> Result<Arc<Session>, Failure> {
        let mut session = self.present();
        if session.is_over() {
            session = self.renewed().await?;
        }
        session.connected(self.limit()).await?;
        Ok(session)
    }

    async fn renewed(&self) -> Result<Arc<Session>, Failure> {
        let _only_one = self.opening.lock().await;
        let present = self.present();
        if !present.is_over() {
            return Ok(present);
        }
        if self.closed.load(SeqCst) {
            return Err(Failure::Expired);
        }
        let next = Session::open(Arc::clone(&self.settings.0), OPENING_PATIENCE).await?;
        if next.timeout() < self.timeout {
            return Err(Failure::NotSent(format!(
                "the server now gives sessions of {:?} only; connect again",
                next.timeout()
            )));
        }
        tracing::info!(session = next.id(), "a new ZooKeeper session; claims of the last one are lost");
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        Ok(next)
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, SeqCst);
        self.present().close(Duration::from_secs(2)).await;
    }
}
