//! The session style: a lock is a row that an open transaction has selected for update.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::holders::{Holders, Texts};
use crate::styles::SESSION;
use crate::wire::Wire;
use lockkeeper_core::{Abilities, Claim, ClaimId, Error, Lifeline, LockName, LockView, Result, Token, house};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use mysql_async::prelude::Queryable;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_session.sql");
const TAKE: &str = include_str!("sql/session_take.sql");
const FREE: &str = include_str!("sql/session_free.sql");
const PROBE: &str = include_str!("sql/probe.sql");
const SETUP: &str = include_str!("sql/held_setup.sql");

/// Not a time here: the procedure only asks whether to wait.
const WAIT_SECONDS: u32 = 1;

/// A connection whose transaction holds one lock.
pub(crate) struct Transaction(Arc<Wire>);

impl Transaction {
    async fn call(
        &self,
        claim: &Claim,
        wait: u32,
        doing: &'static str,
        limit: Option<Duration>,
    ) -> Result<Option<Token>> {
        let claim = claim.clone();
        let work: crate::wire::Work<Option<(Option<i64>, u32)>> = Box::new(move |conn| {
            let params =
                (claim.name.as_str().as_bytes().to_vec(), claim.id.to_string(), claim.holder.encode(), wait);
            Box::pin(async move { conn.exec_first(TAKE, params).await })
        });
        let row = match limit {
            Some(limit) => self.0.run_within(doing, limit, work).await?,
            None => self.0.run(doing, work).await?,
        };
        let (token, number) = row.ok_or_else(|| Error::temporary(ENGINE, doing, "no answer"))?;
        self.check(number)?;
        Ok(token.map(|token| Token(token.max(0).unsigned_abs())))
    }

    /// A proxy may have put another session behind this connection: then nothing is held for certain.
    fn check(&self, number: u32) -> Result<()> {
        if number == self.0.number {
            return Ok(());
        }
        self.0.cut();
        Err(Error::permanent(
            ENGINE,
            "keep one session",
            "the session behind this connection changes: there is a pooling proxy in between; connect to the server itself",
        ))
    }
}

impl Connection for Transaction {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        self.call(claim, 0, "take the lock", None).await
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let limit = Duration::from_secs(3600);
        loop {
            if let Some(token) = self.call(claim, WAIT_SECONDS, "wait for the lock", Some(limit)).await? {
                return Ok(token);
            }
        }
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        let name = name.as_str().as_bytes().to_vec();
        self.0
            .run(
                "free the lock",
                Box::new(move |conn| {
                    let name = name.clone();
                    Box::pin(async move { conn.exec_drop(FREE, (name,)).await })
                }),
            )
            .await
    }

    async fn probe(&self) -> Result<()> {
        let number = self
            .0
            .run(
                "probe the session",
                Box::new(|conn| Box::pin(async { conn.query_first::<u32, _>(PROBE).await })),
            )
            .await?;
        self.check(number.unwrap_or(0))
    }

    fn lifeline(&self) -> &Lifeline {
        &self.0.lifeline
    }

    fn cut(&self) {
        self.0.cut();
    }
}

/// Where such connections come from.
pub(crate) struct Source {
    settings: Arc<Settings>,
    holders: Arc<Holders>,
}

/// Opens the style.
pub(crate) async fn open(settings: Arc<Settings>) -> Result<Sessions<Source>> {
    let texts = Texts {
        list: include_str!("sql/session_list.sql"),
        find: include_str!("sql/session_find.sql"),
        clean: include_str!("sql/session_clean.sql"),
    };
    let holders = Holders::open(&settings, texts);
    let (limits, at_most) = (settings.limits, settings.connections);
    Ok(Sessions::new(Arc::new(Source { settings, holders }), Arc::new(Holds::default()), limits, at_most))
}

impl Connections for Source {
    type Connection = Transaction;

    const SHARED: bool = false;

    fn abilities(&self) -> Abilities {
        SESSION
    }

    async fn open(&self) -> Result<Arc<Transaction>> {
        let wire = Wire::open(&self.settings, house::handle()).await?;
        // The server must notice a dead host, too: we ask several times a second.
        wire.run("set up the session", Box::new(|conn| Box::pin(async { conn.query_drop(SETUP).await })))
            .await?;
        Ok(Arc::new(Transaction(wire)))
    }

    async fn interrupt(&self, connection: &Transaction) {
        if self.holders.interrupt(connection.0.number).await.is_err() {
            connection.cut();
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.holders.list(prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.holders.evict(name, id).await
    }

    fn close(&self) {
        self.holders.close();
    }
}
