//! Locks held by connections, in either of the two styles: they differ in their statements only.

use crate::answer::{Cell, Row};
use crate::config::Settings;
use crate::holders::{Holders, Texts};
use crate::request::Value;
use crate::session::{Session, Use, insist};
use lockkeeper_core::{Abilities, Claim, ClaimId, Lifeline, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::sync::Arc;

/// The statements of a style, in their order.
const TAKE: usize = 0;
const FREE: usize = 1;

/// What makes a style.
pub(crate) struct Style {
    pub(crate) abilities: Abilities,
    /// The one that takes a lock, and the one that frees it.
    pub(crate) statements: [&'static str; 2],
    /// What the statement that takes is told when it may wait.
    pub(crate) wait_seconds: u64,
    pub(crate) texts: Texts,
}

/// A connection that holds one lock or many.
pub(crate) struct Held {
    session: Arc<Session>,
    style: &'static Style,
}

/// What the statement that takes is told.
fn asking<'a>(claim: &'a Claim, id: &'a str, holder: &'a str, wait_seconds: u64) -> [Value<'a>; 4] {
    [claim.name.as_str().into(), id.into(), holder.into(), Value::Number(wait_seconds)]
}

impl Held {
    /// The token, if it was taken.
    fn taken(&self, row: &Row) -> Result<Option<Token>> {
        self.session.check(row.get(1))?;
        Ok(row.first().and_then(Cell::number).map(Token))
    }
}

impl Connection for Held {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        let (id, holder) = (claim.id.to_string(), claim.holder.encode());
        let values = asking(claim, &id, &holder, 0);
        self.taken(&insist(|| self.session.ask("take the lock", TAKE, &values)).await?)
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        const DOING: &str = "wait for the lock";
        let (id, holder) = (claim.id.to_string(), claim.holder.encode());
        let values = asking(claim, &id, &holder, self.style.wait_seconds);
        loop {
            let row = insist(|| self.session.ask_at_last(DOING, TAKE, &values)).await?;
            if let Some(token) = self.taken(&row)? {
                return Ok(token);
            }
        }
    }

    async fn free(&self, lock: &LockName) -> Result<()> {
        let values = [lock.as_str().into()];
        insist(|| self.session.ask("free the lock", FREE, &values)).await.map(drop)
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
        let session = Session::open(&self.settings, Use::Holds, &self.style.statements).await?;
        Ok(Arc::new(Held { session, style: self.style }))
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
