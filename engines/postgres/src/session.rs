//! The session style: a lock is a row that an open transaction has selected for update.

use crate::SESSION;
use crate::held::{Held, Kind, PROBE, token};
use lockkeeper_core::engine::{Claim, Lifeline, LockName};
use lockkeeper_core::{Abilities, Result, Token};
use lockkeeper_sql_common::Connection;
use tokio_postgres::types::ToSql;

const TAKE: usize = 0;
const WAIT: usize = 1;
const INSERT: usize = 2;
const LOOK: usize = 3;

/// A connection whose transaction holds one lock.
pub(crate) struct Transaction(Held);

impl Transaction {
    async fn insert(&self, name: &LockName) -> Result<()> {
        self.0.connection.rows(INSERT, &[&name.as_str()], "create the row").await.map(drop)
    }

    async fn send(&self, statement: &str) -> Result<()> {
        self.0.connection.batch(statement).await
    }
}

impl Connection for Transaction {
    const NOTICES_LOSS: bool = true;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        let (name, connection) = (claim.name.as_str(), &self.0.connection);
        loop {
            // Both at once: they are sent and answered in this order.
            let params: [&(dyn ToSql + Sync); 1] = [&name];
            let (began, row) =
                tokio::join!(self.send("BEGIN"), connection.row(TAKE, &params, "take the lock"));
            began?;
            let row = row?;
            connection.check_backend(row.get("backend"))?;
            if let Some(number) = row.get::<_, Option<i64>>("o_token") {
                return Ok(Some(token(number)));
            }
            self.send("ROLLBACK").await?;
            if row.get("o_known") {
                return Ok(None);
            }
            self.insert(&claim.name).await?;
        }
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let name = claim.name.as_str();
        loop {
            self.send("BEGIN").await?;
            let row = self.0.wait(WAIT, &[&name], "wait for the lock").await?;
            if let Some(number) = row.get::<_, Option<i64>>("token") {
                return Ok(token(number));
            }
            self.send("ROLLBACK").await?;
            self.insert(&claim.name).await?;
        }
    }

    async fn free(&self, _: &LockName) -> Result<()> {
        self.send("COMMIT").await
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

impl Kind for Transaction {
    const ABILITIES: Abilities = SESSION;
    const REGISTRY: i64 = 2;
    const SHARED: usize = 0;
    const STATEMENTS: &'static [&'static str] = &[
        "SELECT o_known, o_token, pg_backend_pid() AS backend FROM lockkeeper_session_take($1)",
        "SELECT lockkeeper_session_wait($1) AS token",
        "INSERT INTO lockkeeper_sessions (name) VALUES ($1) ON CONFLICT (name) DO NOTHING",
        PROBE,
    ];
    const IDLE_TIMEOUT: &'static str = "idle_in_transaction_session_timeout";

    fn over(held: Held) -> Self {
        Self(held)
    }

    fn held(&self) -> &Held {
        &self.0
    }
}
