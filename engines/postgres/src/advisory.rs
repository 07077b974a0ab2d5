//! The advisory style: PostgreSQL's own advisory locks, many of them on one connection.

use crate::ADVISORY;
use crate::held::{Held, Kind, PROBE, token};
use lockkeeper_core::engine::{Claim, Lifeline, LockName};
use lockkeeper_core::{Abilities, Result, Token};
use lockkeeper_sql_common::Connection;

const TAKE: usize = 0;
const FREE: usize = 1;
const WAIT: usize = 2;
const LOOK: usize = 3;

/// The number in the place of a token when the request reached another process than ours.
const ANOTHER_PROCESS: i64 = -1;

/// A connection that holds advisory locks.
pub(crate) struct Advisory(Held);

impl Connection for Advisory {
    const NOTICES_LOSS: bool = true;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        let connection = &self.0.connection;
        let row = connection.row(TAKE, &[&claim.name.as_str()], "take the lock").await?;
        let number: Option<i64> = row.get(0);
        if number == Some(ANOTHER_PROCESS) {
            connection.check_backend(0)?;
        }
        Ok(number.map(token))
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let row = self.0.wait(WAIT, &[&claim.name.as_str()], "wait for the lock").await?;
        self.0.connection.check_backend(row.get("backend"))?;
        Ok(token(row.get("token")))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        self.0.connection.row(FREE, &[&name.as_str()], "free the lock").await.map(drop)
    }

    async fn probe(&self) -> Result<()> {
        self.0.probe(LOOK).await
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn lifeline(&self) -> &Lifeline {
        self.0.connection.lifeline()
    }

    fn cut(&self) {
        self.0.connection.cut();
    }
}

impl Kind for Advisory {
    const ABILITIES: Abilities = ADVISORY;
    const REGISTRY: i64 = 1;
    // Requests follow each other on it without waiting for replies, so one is enough.
    const SHARED: usize = 1;
    const STATEMENTS: &'static [&'static str] = &[
        include_str!("sql/advisory_take.sql"),
        "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
        include_str!("sql/advisory_wait.sql"),
        PROBE,
    ];
    const IDLE_TIMEOUT: &'static str = "idle_session_timeout";

    fn over(held: Held) -> Self {
        Self(held)
    }

    fn held(&self) -> &Held {
        &self.0
    }
}
