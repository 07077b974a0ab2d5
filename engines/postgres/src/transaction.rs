//! The session style: a lock is a row that an open transaction has selected for update.

use crate::advisory::{probe, token};
use crate::config::Settings;
use crate::roll::Roll;
use crate::session::Session;
use crate::styles::SESSION;
use lockkeeper_core::{Abilities, Claim, ClaimId, Lifeline, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::sync::Arc;
use tokio_postgres::types::ToSql;

pub(crate) const SCHEMA: &str =
    concat!(include_str!("sql/schema_tokens.sql"), "\n", include_str!("sql/schema_session.sql"));

const STATEMENTS: &[&str] = &[
    include_str!("sql/session_take.sql"),
    include_str!("sql/session_wait.sql"),
    include_str!("sql/session_insert.sql"),
    include_str!("sql/session_probe.sql"),
    include_str!("sql/raise_tokens.sql"),
];
const TAKE: usize = 0;
const WAIT: usize = 1;
const INSERT: usize = 2;
const PROBE: usize = 3;
const RAISE: usize = 4;

/// The number under which keepers of this style announce themselves.
const ROLL: i64 = 2;

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
        let name = claim.name.as_str();
        loop {
            // Both at once: the answers come in order.
            let params: [&(dyn ToSql + Sync); 1] = [&name];
            let (began, row) =
                tokio::join!(self.0.batch("BEGIN"), self.0.row(TAKE, &params, "take the lock"));
            began?;
            let row = row?;
            self.0.check_backend(row.get("backend"))?;
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
        probe(&self.0, self.0.row(PROBE, &[], "probe the session").await?)
    }

    fn lifeline(&self) -> &Lifeline {
        &self.0.lifeline
    }

    fn cut(&self) {
        self.0.abort();
    }
}

/// Where such connections come from.
pub(crate) struct Source {
    settings: Arc<Settings>,
    roll: Arc<Roll>,
}

/// Opens the style.
pub(crate) async fn open(settings: Arc<Settings>) -> Result<Sessions<Source>> {
    let holds = Arc::new(Holds::default());
    let roll = Roll::join(&settings, "session", ROLL, &holds).await?;
    let (limits, at_most) = (settings.limits, settings.connections);
    Ok(Sessions::new(Arc::new(Source { settings, roll }), holds, limits, at_most))
}

impl Connections for Source {
    type Connection = Transaction;

    const SHARED: bool = false;

    fn abilities(&self) -> Abilities {
        SESSION
    }

    async fn open(&self) -> Result<Arc<Transaction>> {
        let session = Session::open_patient(Arc::clone(&self.settings), STATEMENTS).await?;
        session.row(RAISE, &[], "raise the tokens").await?;
        Ok(Arc::new(Transaction(session)))
    }

    async fn interrupt(&self, connection: &Transaction) {
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
