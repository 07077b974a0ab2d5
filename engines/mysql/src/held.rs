//! Locks held by connections, in either of the two styles: they differ in their statements only.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::holders::{Holders, Texts};
use crate::wire::{Wire, Work, statement};
use lockkeeper_core::{Abilities, Claim, ClaimId, Error, Lifeline, LockName, LockView, Result, Token, house};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use mysql_async::prelude::Queryable;
use std::sync::Arc;
use std::time::Duration;

const PROBE: &str = include_str!("sql/probe.sql");
const SETUP: &str = include_str!("sql/held_setup.sql");

/// Longer than any single wait in the server.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(3600);

/// What makes a style.
pub(crate) struct Style {
    pub(crate) abilities: Abilities,
    pub(crate) take: &'static str,
    pub(crate) free: &'static str,
    /// What the statement that takes is told when it may wait.
    pub(crate) wait_seconds: u32,
    pub(crate) texts: Texts,
}

/// A connection that holds one lock or many.
pub(crate) struct Held {
    wire: Arc<Wire>,
    style: &'static Style,
}

impl Held {
    async fn call(
        &self,
        claim: &Claim,
        wait_seconds: u32,
        doing: &'static str,
        limit: Option<Duration>,
    ) -> Result<Option<Token>> {
        let (claim, take) = (claim.clone(), self.style.take);
        let work: Work<Option<(Option<i64>, u32)>> = Box::new(move |conn| {
            let name = claim.name.as_str().as_bytes().to_vec();
            let params = (name, claim.id.to_string(), claim.holder.encode(), wait_seconds);
            Box::pin(async move { conn.exec_first(take, params).await })
        });
        let row = match limit {
            Some(limit) => self.wire.run_within(doing, limit, work).await?,
            None => self.wire.run(doing, work).await?,
        };
        let (token, number) = row.ok_or_else(|| Error::temporary(ENGINE, doing, "no answer"))?;
        check(&self.wire, number)?;
        Ok(token.map(|token| Token(token.max(0).unsigned_abs())))
    }
}

/// A proxy may have put another session behind this connection: then nothing is held for certain.
pub(crate) fn check(wire: &Wire, number: u32) -> Result<()> {
    if number == wire.number {
        return Ok(());
    }
    wire.cut();
    Err(Error::permanent(
        ENGINE,
        "keep one session",
        "the session behind this connection changes: there is a pooling proxy in between; connect to the server itself",
    ))
}

/// Sees that it is still the same session.
pub(crate) async fn probe(wire: &Wire) -> Result<()> {
    let work: Work<Option<u32>> = Box::new(|conn| Box::pin(conn.query_first(PROBE)));
    let number = wire.run("probe the session", work).await?;
    check(wire, number.unwrap_or(0))
}

/// The server must notice a dead host, too: we ask several times a second.
pub(crate) async fn set_up(wire: &Wire) -> Result<()> {
    wire.run("set up the session", Box::new(|conn| Box::pin(conn.query_drop(SETUP)))).await
}

impl Connection for Held {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        self.call(claim, 0, "take the lock", None).await
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        let seconds = self.style.wait_seconds;
        loop {
            if let Some(token) = self.call(claim, seconds, "wait for the lock", Some(WAIT_LIMIT)).await? {
                return Ok(token);
            }
        }
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        let free = statement(self.style.free, (name.as_str().as_bytes().to_vec(),));
        self.wire.run("free the lock", free).await
    }

    async fn probe(&self) -> Result<()> {
        probe(&self.wire).await
    }

    fn is_busy(&self) -> bool {
        self.wire.is_busy()
    }

    fn lifeline(&self) -> &Lifeline {
        &self.wire.lifeline
    }

    fn cut(&self) {
        self.wire.cut();
    }
}

/// Where such connections come from. The locks are spread over `SHARED` of them; 0 if each can hold only one.
pub(crate) struct Source<const SHARED: usize> {
    settings: Arc<Settings>,
    holders: Arc<Holders>,
    style: &'static Style,
}

/// Opens the style.
pub(crate) fn open<const SHARED: usize>(
    settings: Arc<Settings>,
    style: &'static Style,
) -> Sessions<Source<SHARED>> {
    let holders = Holders::open(&settings, style.texts);
    let (limits, at_most) = (settings.limits, settings.connections);
    let source = Arc::new(Source { settings, holders, style });
    Sessions::new(source, Arc::new(Holds::default()), limits, at_most)
}

impl<const SHARED: usize> Connections for Source<SHARED> {
    type Connection = Held;

    const SHARED: usize = SHARED;

    fn abilities(&self) -> Abilities {
        self.style.abilities
    }

    async fn open(&self) -> Result<Arc<Held>> {
        let wire = Wire::open(&self.settings, house::handle()).await?;
        set_up(&wire).await?;
        Ok(Arc::new(Held { wire, style: self.style }))
    }

    async fn interrupt(&self, connection: &Held) {
        if self.holders.interrupt(connection.wire.number).await.is_err() {
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
