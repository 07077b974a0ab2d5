//! The advisory style: PostgreSQL's own advisory locks, many of them on one connection.

use crate::held::{Kind, probe, token};
use crate::session::Session;
use crate::styles::ADVISORY;
use lockkeeper_core::{Abilities, Claim, Lifeline, LockName, Result, Token};
use lockkeeper_sql_common::Connection;
use std::sync::Arc;

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

/// A connection that holds advisory locks.
pub(crate) struct Advisory(Arc<Session>);

impl Connection for Advisory {
    const NOTICES_LOSS: bool = true;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        self.0.come_here();
        let row = self.0.row(TAKE, &[&claim.name.as_str()], "take the lock").await?;
        match row.get::<_, Option<i64>>(0) {
            Some(number) if number < 0 => Err(self.0.is_pooled()),
            number => Ok(number.map(token)),
        }
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
        probe(&self.0, PROBE).await
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn lifeline(&self) -> &Lifeline {
        &self.0.lifeline
    }

    fn cut(&self) {
        self.0.abort();
    }
}

impl Kind for Advisory {
    const ABILITIES: Abilities = ADVISORY;
    const ROLL: i64 = 1;
    // Requests follow each other on it without waiting for answers, so one is enough.
    const SHARED: usize = 1;
    const STATEMENTS: &'static [&'static str] = STATEMENTS;
    const RAISE: usize = RAISE;

    fn on(session: Arc<Session>) -> Self {
        Self(session)
    }

    fn session(&self) -> &Session {
        &self.0
    }
}
