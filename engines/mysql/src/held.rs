//! Locks held by connections, in either of the two styles: they differ in their statements only.

use crate::config::Settings;
use crate::holders::{Holders, Texts};
use crate::line::{Cell, Row};
use crate::session::{Ask, Session};
use lockkeeper_core::{Abilities, Claim, ClaimId, Lifeline, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any single wait in the server.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(3600);

/// What makes a style.
pub(crate) struct Style {
    pub(crate) abilities: Abilities,
    pub(crate) take: &'static str,
    pub(crate) free: &'static str,
    /// What the statement that takes is told when it may wait.
    pub(crate) wait_seconds: u64,
    pub(crate) texts: Texts,
}

/// A connection that holds one lock or many.
pub(crate) struct Held {
    session: Arc<Session>,
    style: &'static Style,
}

fn name(name: &LockName) -> Cell {
    Cell::Bytes(name.as_str().into())
}

impl Held {
    fn asking(&self, claim: &Claim, wait_seconds: u64) -> Ask {
        let id = Cell::Bytes(claim.id.to_string().into());
        let holder = Cell::Bytes(claim.holder.encode().into());
        (self.style.take, vec![name(&claim.name), id, holder, Cell::Number(wait_seconds)])
    }

    /// The token, if it was taken.
    fn taken(&self, row: &Row) -> Result<Option<Token>> {
        self.session.check(row.get(1))?;
        Ok(row.first().and_then(Cell::number).map(Token))
    }
}

impl Connection for Held {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        self.taken(&self.session.insist("take the lock", None, self.asking(claim, 0)).await?)
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        const DOING: &str = "wait for the lock";
        loop {
            let ask = self.asking(claim, self.style.wait_seconds);
            let row = self.session.insist(DOING, Some(WAIT_LIMIT), ask).await?;
            if let Some(token) = self.taken(&row)? {
                return Ok(token);
            }
        }
    }

    async fn free(&self, lock: &LockName) -> Result<()> {
        self.session.insist("free the lock", None, (self.style.free, vec![name(lock)])).await.map(drop)
    }

    async fn probe(&self) -> Result<()> {
        self.session.probe().await
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy()
    }

    fn lifeline(&self) -> &Lifeline {
        &self.session.lifeline
    }

    fn cut(&self) {
        self.session.cut();
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
        Ok(Arc::new(Held { session: Session::open(&self.settings).await?, style: self.style }))
    }

    async fn interrupt(&self, connection: &Held) {
        if self.holders.interrupt(connection.session.number).await.is_err() {
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
