//! The advisory style: PostgreSQL's own advisory locks, many of them on one connection.

use crate::backing::Backing;
use crate::config::Settings;
use crate::held::{Kind, PROBE, RAISE_TOKENS, token};
use crate::messages::Numbers;
use crate::session::{Session, numbers};
use crate::styles::ADVISORY;
use crate::wired::Wired;
use lockkeeper_core::{Abilities, Claim, Lifeline, LockName, Result, Token};
use lockkeeper_sql_common::Connection;
use std::sync::Arc;
use tokio_postgres::types::ToSql;

pub(crate) const SCHEMA: &str =
    concat!(include_str!("sql/schema_tokens.sql"), "\n", include_str!("sql/schema_advisory.sql"));

const TAKE: usize = 0;
const FREE: usize = 1;
const WAIT: usize = 2;
const LOOK: usize = 3;
const RAISE: usize = 4;
/// In the order of these numbers.
const STATEMENTS: [&str; 5] = [
    include_str!("sql/advisory_take.sql"),
    include_str!("sql/advisory_free.sql"),
    include_str!("sql/advisory_wait.sql"),
    PROBE,
    RAISE_TOKENS,
];

/// A connection that holds advisory locks.
pub(crate) enum Advisory {
    /// With TLS.
    Driver(Arc<Session>),
    Wire(Wired),
}

impl Advisory {
    async fn ask(&self, statement: usize, text: Option<&str>, doing: &'static str) -> Result<Numbers> {
        match self {
            Self::Driver(session) => {
                let text: Option<&(dyn ToSql + Sync)> = text.as_ref().map(|text| text as _);
                Box::pin(async move { Ok(numbers(&session.row(statement, text.as_slice(), doing).await?)) })
                    .await
            }
            Self::Wire(wired) => wired.numbers(statement, text, doing).await,
        }
    }

    async fn ask_at_last(&self, statement: usize, text: &str, doing: &'static str) -> Result<Numbers> {
        match self {
            Self::Driver(session) => Ok(numbers(&session.row_at_last(statement, &[&text], doing).await?)),
            Self::Wire(wired) => wired.numbers_at_last(statement, Some(text), doing).await,
        }
    }

    /// Sees that the process which answered is the one that holds the locks.
    fn check(&self, backend: Option<i64>) -> Result<()> {
        let backend = backend.and_then(|backend| i32::try_from(backend).ok());
        self.backing().check_backend(backend.unwrap_or_default())
    }
}

impl Connection for Advisory {
    const NOTICES_LOSS: bool = true;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        self.backing().come_here();
        match self.ask(TAKE, Some(claim.name.as_str()), "take the lock").await? {
            [Some(number), _] if number < 0 => Err(self.backing().is_pooled()),
            [number, _] => Ok(number.map(token)),
        }
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let [number, backend] = self.ask_at_last(WAIT, claim.name.as_str(), "wait for the lock").await?;
        self.check(backend)?;
        Ok(token(number.unwrap_or_default()))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        self.ask(FREE, Some(name.as_str()), "free the lock").await.map(drop)
    }

    async fn probe(&self) -> Result<()> {
        let [backend, _] = self.ask(LOOK, None, "probe the session").await?;
        self.check(backend)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn lifeline(&self) -> &Lifeline {
        &self.backing().lifeline
    }

    fn cut(&self) {
        self.backing().abort();
    }
}

impl Kind for Advisory {
    const ABILITIES: Abilities = ADVISORY;
    const ROLL: i64 = 1;
    // Requests follow each other on it without waiting for answers, so one is enough.
    const SHARED: usize = 1;

    async fn open(settings: &Arc<Settings>) -> Result<Self> {
        if settings.is_encrypted() {
            let session = Session::open_patient(Arc::clone(settings), &STATEMENTS).await?;
            session.row(RAISE, &[], "raise the tokens").await?;
            return Ok(Self::Driver(session));
        }
        let (statements, first) = const { STATEMENTS.split_at(RAISE) };
        Wired::open(settings, statements, first).await.map(Self::Wire)
    }

    fn backing(&self) -> &Backing {
        match self {
            Self::Driver(session) => &session.backing,
            Self::Wire(wired) => &wired.backing,
        }
    }
}
