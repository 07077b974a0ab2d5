//! The advisory style: PostgreSQL's own advisory locks, many of them on one connection.

use crate::backing::Backing;
use crate::config::Settings;
use crate::fault::ENGINE;
use crate::held::{Kind, PROBE, RAISE_TOKENS, token};
use crate::key::key;
use crate::messages::Numbers;
use crate::session::{Session, numbers};
use crate::styles::ADVISORY;
use crate::wired::Wired;
use lockkeeper_core::{Abilities, Claim, Error, Lifeline, LockName, Result, Token};
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
const HASH: usize = 5;
/// In the order of these numbers.
const STATEMENTS: [&str; 6] = [
    include_str!("sql/advisory_take.sql"),
    include_str!("sql/advisory_free.sql"),
    include_str!("sql/advisory_wait.sql"),
    PROBE,
    RAISE_TOKENS,
    include_str!("sql/advisory_hash.sql"),
];

/// What the server is asked to hash, to see that it does as we do: in another encoding than UTF-8 the last letter tells.
const SAMPLE: &str = "lockkeeper/ü";

/// A connection that holds advisory locks.
pub(crate) enum Advisory {
    /// With TLS.
    Driver(Arc<Session>),
    /// The number of the server's function that frees a lock, if the server hashes names as we do.
    Wire(Wired, Option<u32>),
}

impl Advisory {
    async fn ask(&self, statement: usize, text: Option<&str>, doing: &'static str) -> Result<Numbers> {
        match self {
            Self::Driver(session) => {
                let text: Option<&(dyn ToSql + Sync)> = text.as_ref().map(|text| text as _);
                Box::pin(async move { Ok(numbers(&session.row(statement, text.as_slice(), doing).await?)) })
                    .await
            }
            Self::Wire(wired, _) => wired.numbers(statement, text, doing).await,
        }
    }

    async fn ask_at_last(&self, statement: usize, text: &str, doing: &'static str) -> Result<Numbers> {
        match self {
            Self::Driver(session) => Ok(numbers(&session.row_at_last(statement, &[&text], doing).await?)),
            Self::Wire(wired, _) => wired.numbers_at_last(statement, Some(text), doing).await,
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
        const DOING: &str = "wait for the lock";
        let [number, backend] = self.ask_at_last(WAIT, claim.name.as_str(), DOING).await?;
        self.check(backend)?;
        number.map(token).ok_or_else(|| Error::permanent(ENGINE, DOING, "the server gave no token"))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        const DOING: &str = "free the lock";
        match self {
            Self::Wire(wired, Some(unlock)) => wired.call(*unlock, key(name.as_str()), DOING).await.map(drop),
            _ => self.ask(FREE, Some(name.as_str()), DOING).await.map(drop),
        }
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
        let mut connection = match settings.is_encrypted() {
            true => Self::Driver(Session::open_patient(Arc::clone(settings), &STATEMENTS).await?),
            false => Self::Wire(Wired::open(settings, &STATEMENTS).await?, None),
        };
        connection.ask(RAISE, None, "raise the tokens").await?;
        if let Self::Wire(wired, unlock) = &mut connection {
            let [hash, function] = wired.numbers(HASH, Some(SAMPLE), "set up the session").await?;
            *unlock = function.filter(|_| hash == Some(key(SAMPLE))).and_then(|it| u32::try_from(it).ok());
        }
        Ok(connection)
    }

    fn backing(&self) -> &Backing {
        match self {
            Self::Driver(session) => &session.backing,
            Self::Wire(wired, _) => &wired.backing,
        }
    }
}
