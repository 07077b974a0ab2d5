//! The advisory style: PostgreSQL's own advisory locks, many of them on one connection.

use crate::config::Settings;
use crate::roll::Roll;
use crate::session::Session;
use crate::styles::ADVISORY;
use lockkeeper_core::{Abilities, Claim, ClaimId, Lifeline, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::sync::Arc;
use tokio_postgres::Row;

pub(crate) const SCHEMA: &str =
    concat!(include_str!("sql/schema_tokens.sql"), "\n", include_str!("sql/schema_advisory.sql"));

const STATEMENTS: &[&str] = &[
    include_str!("sql/advisory_take.sql"),
    include_str!("sql/advisory_free.sql"),
    include_str!("sql/session_probe.sql"),
    include_str!("sql/advisory_wait.sql"),
    include_str!("sql/raise_tokens.sql"),
];
const TAKE: usize = 0;
const FREE: usize = 1;
const PROBE: usize = 2;
const WAIT: usize = 3;
const RAISE: usize = 4;

/// The number under which keepers of this style announce themselves.
const ROLL: i64 = 1;

/// A connection that holds advisory locks.
pub(crate) struct Advisory(Arc<Session>);

impl Connection for Advisory {
    const NOTICES_LOSS: bool = true;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        let row = self.0.row(TAKE, &[&claim.name.as_str()], "take the lock").await?;
        self.0.check_backend(row.get("backend"))?;
        Ok(row.get::<_, Option<i64>>("token").map(token))
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let row = self.0.row_at_last(WAIT, &[&claim.name.as_str()], "wait for the lock").await?;
        self.0.check_backend(row.get("backend"))?;
        Ok(token(row.get("token")))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        self.0.row(FREE, &[&name.as_str()], "free the lock").await.map(drop)
    }

    async fn probe(&self) -> Result<()> {
        probe(&self.0, self.0.row(PROBE, &[], "probe the session").await?)
    }

    fn lifeline(&self) -> &Lifeline {
        &self.0.lifeline
    }

    fn cut(&self) {
        self.0.abort();
    }
}

/// Sees that the process behind the connection is the one that took the locks.
pub(crate) fn probe(session: &Session, row: Row) -> Result<()> {
    session.check_backend(row.get("backend"))
}

pub(crate) fn token(number: i64) -> Token {
    Token(number.max(0).unsigned_abs())
}

/// Where such connections come from.
pub(crate) struct Source {
    settings: Arc<Settings>,
    roll: Arc<Roll>,
}

/// Opens the style.
pub(crate) async fn open(settings: Arc<Settings>) -> Result<Sessions<Source>> {
    let holds = Arc::new(Holds::default());
    let roll = Roll::join(&settings, "advisory", ROLL, &holds).await?;
    let (limits, at_most) = (settings.limits, settings.connections);
    Ok(Sessions::new(Arc::new(Source { settings, roll }), holds, limits, at_most))
}

impl Connections for Source {
    type Connection = Advisory;

    const SHARED: bool = true;

    fn abilities(&self) -> Abilities {
        ADVISORY
    }

    async fn open(&self) -> Result<Arc<Advisory>> {
        let session = Session::open_patient(Arc::clone(&self.settings), STATEMENTS).await?;
        session.row(RAISE, &[], "raise the tokens").await?;
        Ok(Arc::new(Advisory(session)))
    }

    async fn interrupt(&self, connection: &Advisory) {
        if self.roll.cancel(connection.0.backend).await.is_err() {
            connection.cut();
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.roll.list(prefix, at_most).await
    }

    async fn evict(&self, _: &LockName, id: ClaimId) -> Result<bool> {
        self.roll.evict(id).await
    }

    fn close(&self) {
        self.roll.close();
    }
}
