//! Locks that live on a connection: what the session and advisory styles share beside `sql-common`.
//! Apart from both styles, so that this is said once.
//!
//! The connections live on the background runtime, so that a lock outlives the runtime of its caller.

use crate::config::{Settings, whole_seconds};
use crate::connection::{Connection, Purpose};
use crate::error::ENGINE;
use crate::queue::RAISE_TOKENS;
use crate::view::Registry;
use lockkeeper_core::engine::{ClaimId, Clock, LockName, background};
use lockkeeper_core::{Abilities, Error, LockView, Result, Token};
use lockkeeper_sql_common::{Connections, Holds, Limits, Sessions};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

const SETUP: &str = include_str!("sql/held_setup.sql");

/// The statement that finds out which process is behind a connection.
pub(crate) const PROBE: &str = "SELECT pg_backend_pid()";

/// What makes a style: how its connections take locks, and these.
pub(crate) trait Kind: lockkeeper_sql_common::Connection + Sized {
    const ABILITIES: Abilities;
    /// The number under which keepers of this style register.
    const REGISTRY: i64;
    /// Over how many connections the locks are spread; 0 if one connection can hold only one.
    const SHARED: usize;
    const STATEMENTS: &'static [&'static str];
    /// The server's setting for how long a connection that holds a lock may be idle.
    const IDLE_TIMEOUT: &'static str;
    fn over(held: Held) -> Self;
    fn held(&self) -> &Held;
}

/// A connection that holds locks.
pub(crate) struct Held {
    pub(crate) connection: Connection,
    registry: Arc<Registry>,
    limits: Limits,
}

impl Held {
    /// The one row of a statement that waits in the server. A connection that is lost without a sign would wait for ever,
    /// and may even have been granted the lock: so another connection looks whether the server still waits.
    pub(crate) async fn wait(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
        doing: &'static str,
    ) -> Result<Row> {
        let mut reply = pin!(self.connection.row_without_limit(statement, params, doing));
        loop {
            if let Ok(reply) = Clock::Boot.timeout(self.limits.look, &mut reply).await {
                return reply;
            }
            match self.registry.is_active(self.connection.backend()).await {
                Ok(false) => {}
                // No other connection has a reply either: the server is away, and the wait must learn it.
                Err(error) if error.is_temporary() => return Err(error),
                Ok(true) | Err(_) => continue,
            }
            if let Ok(reply) = Clock::Boot.timeout(self.limits.request, &mut reply).await {
                return reply;
            }
            let _ = self.registry.terminate(self.connection.backend()).await;
            self.connection.cut();
            return Err(Error::temporary(
                ENGINE,
                doing,
                "the server has ended the wait, and its reply is lost",
            ));
        }
    }

    /// Sees that the connection still has the process that it had in the beginning, and with it its locks.
    pub(crate) async fn probe(&self, statement: usize) -> Result<()> {
        let row = self.connection.row(statement, &[], "probe the session").await?;
        self.connection.check_backend(row.get(0))
    }
}

pub(crate) fn token(number: i64) -> Token {
    Token(number.max(0).unsigned_abs())
}

/// Where such connections come from.
pub(crate) struct Source<K> {
    settings: Arc<Settings>,
    registry: Arc<Registry>,
    kind: PhantomData<fn() -> K>,
}

/// Opens the style.
pub(crate) async fn open<K: Kind>(settings: Arc<Settings>) -> Result<Sessions<Source<K>>> {
    let holds = Arc::new(Holds::default());
    let registry = Registry::join(&settings, K::ABILITIES.style, K::REGISTRY, &holds).await?;
    let (limits, at_most) = (settings.limits, settings.connections);
    Ok(Sessions::new(Arc::new(Source { settings, registry, kind: PhantomData }), holds, limits, at_most))
}

/// What a connection that holds locks is for. The server must not end it before the client's trust has ended, which is one
/// TTL after its last request at the latest, nor much later: its keepalives, the limit for unacknowledged data and the limit
/// for idleness are all longer than the TTL by a quarter.
fn purpose<K: Kind>(limits: &Limits) -> Purpose {
    let (takeover, idle) = (limits.takeover, whole_seconds(limits.takeover / 2));
    let interval = whole_seconds(takeover / 8);
    let count = takeover.saturating_sub(idle).as_millis().div_ceil(interval.as_millis()).max(1);
    let settings = SETUP
        .replace(":keepalives_idle", &idle.as_secs().to_string())
        .replace(":keepalives_interval", &interval.as_secs().to_string())
        .replace(":keepalives_count", &count.to_string())
        .replace(":idle_timeout", K::IDLE_TIMEOUT)
        .replace(":takeover_ms", &takeover.as_millis().to_string());
    Purpose { statements: K::STATEMENTS, settings, start: RAISE_TOKENS.into(), ..Purpose::default() }
}

impl<K: Kind> Connections for Source<K> {
    type Connection = K;

    const SHARED: usize = K::SHARED;

    fn abilities(&self) -> Abilities {
        K::ABILITIES
    }

    async fn open(&self) -> Result<Arc<K>> {
        let (settings, registry) = (Arc::clone(&self.settings), Arc::clone(&self.registry));
        let opening = background::handle().spawn(async move {
            let limits = settings.limits;
            let connection = Connection::open(&settings, &purpose::<K>(&limits), limits.request).await?;
            Ok(Arc::new(K::over(Held { connection, registry, limits })))
        });
        opening.await.unwrap_or_else(|error| Err(Error::temporary(ENGINE, "connect", error)))
    }

    async fn interrupt(&self, connection: &K) {
        if self.registry.cancel(connection.held().connection.backend()).await.is_err() {
            connection.cut();
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.registry.list(prefix, at_most).await
    }

    async fn evict(&self, _: &LockName, id: ClaimId) -> Result<bool> {
        self.registry.evict(id).await
    }

    async fn ask(&self, _: &LockName, id: ClaimId) -> Result<bool> {
        self.registry.ask_to_release(id).await
    }

    async fn asked(&self, _: &[ClaimId]) -> Result<Vec<ClaimId>> {
        Ok(Vec::new())
    }

    fn close(&self) {
        self.registry.close();
    }
}
