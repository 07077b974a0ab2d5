//! The session style: a lock is a row that an open transaction has selected for update.

use crate::backing::Backing;
use crate::config::Settings;
use crate::held::{Kind, PROBE, RAISE_TOKENS, token};
use crate::session::Session;
use crate::styles::SESSION;
use lockkeeper_core::{Abilities, Claim, Lifeline, LockName, Result, Token};
use lockkeeper_sql_common::Connection;
use std::sync::Arc;
use tokio_postgres::types::ToSql;

pub(crate) const SCHEMA: &str =
    concat!(include_str!("sql/schema_tokens.sql"), "\n", include_str!("sql/schema_session.sql"));

const STATEMENTS: &[&str] = &[
    include_str!("sql/session_take.sql"),
    include_str!("sql/session_wait.sql"),
    include_str!("sql/session_insert.sql"),
    PROBE,
    RAISE_TOKENS,
];
const TAKE: usize = 0;
const WAIT: usize = 1;
const INSERT: usize = 2;
const LOOK: usize = 3;
const RAISE: usize = 4;

/// A connection whose transaction holds one lock.
pub(crate) struct Transaction(Arc<Session>);

impl Transaction {
    async fn insert(&self, name: &LockName) -> Result<()> {
        self.0.rows(INSERT, &[&name.as_str()], "create the row").await.map(drop)
    }
}

impl Connection for Transaction {
    const NOTICES_LOSS: bool = true;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        self.0.backing.come_here();
        let name = claim.name.as_str();
        loop {
            // Both at once: the answers come in order.
            let params: [&(dyn ToSql + Sync); 1] = [&name];
            let (began, row) =
                tokio::join!(self.0.batch("BEGIN"), self.0.row(TAKE, &params, "take the lock"));
            began?;
            let row = row?;
            self.0.backing.check_backend(row.get("backend"))?;
            if let Some(number) = row.get::<_, Option<i64>>("o_token") {
                return Ok(Some(token(number)));
            }
            self.0.batch("ROLLBACK").await?;
            if row.get("o_known") {
                return Ok(None);
            }
            self.insert(&claim.name).await?;
        }
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let name = claim.name.as_str();
        loop {
            self.0.batch("BEGIN").await?;
            let row = self.0.row_at_last(WAIT, &[&name], "wait for the lock").await?;
            if let Some(number) = row.get::<_, Option<i64>>("token") {
                return Ok(token(number));
            }
            self.0.batch("ROLLBACK").await?;
            self.insert(&claim.name).await?;
        }
    }

    async fn free(&self, _: &LockName) -> Result<()> {
        self.0.batch("COMMIT").await
    }

    async fn probe(&self) -> Result<()> {
        let row = self.0.row(LOOK, &[], "probe the session").await?;
        self.0.backing.check_backend(row.get("backend"))
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn lifeline(&self) -> &Lifeline {
        &self.0.backing.lifeline
    }

    fn cut(&self) {
        self.0.backing.abort();
    }
}

impl Kind for Transaction {
    const ABILITIES: Abilities = SESSION;
    const ROLL: i64 = 2;
    const SHARED: usize = 0;

    async fn open(settings: &Arc<Settings>) -> Result<Self> {
        let session = Session::open_patient(Arc::clone(settings), STATEMENTS).await?;
        session.row(RAISE, &[], "raise the tokens").await?;
        Ok(Self(session))
    }

    fn backing(&self) -> &Backing {
        &self.0.backing
    }
}
