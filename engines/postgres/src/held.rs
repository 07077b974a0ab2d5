//! Where the connections of the styles with sessions come from: the same way for both.

use crate::config::Settings;
use crate::roll::Roll;
use crate::session::Session;
use lockkeeper_core::{Abilities, ClaimId, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::marker::PhantomData;
use std::sync::Arc;

/// What makes a style: how its connections take locks, and these.
pub(crate) trait Kind: Connection {
    const ABILITIES: Abilities;
    /// The number under which keepers of this style announce themselves.
    const ROLL: i64;
    /// Whether one connection can hold many locks.
    const SHARED: bool;
    const STATEMENTS: &'static [&'static str];
    /// Which statement raises the tokens.
    const RAISE: usize;
    fn on(session: Arc<Session>) -> Self;
    fn session(&self) -> &Session;
}

pub(crate) fn token(number: i64) -> Token {
    Token(number.max(0).unsigned_abs())
}

/// Sees that the process behind the connection is the one that took the locks; `probe` is the statement that asks.
pub(crate) async fn probe(session: &Session, probe: usize) -> Result<()> {
    session.check_backend(session.row(probe, &[], "probe the session").await?.get("backend"))
}

/// Where such connections come from.
pub(crate) struct Source<K> {
    settings: Arc<Settings>,
    roll: Arc<Roll>,
    kind: PhantomData<fn() -> K>,
}

/// Opens the style.
pub(crate) async fn open<K: Kind>(settings: Arc<Settings>) -> Result<Sessions<Source<K>>> {
    let holds = Arc::new(Holds::default());
    let roll = Roll::join(&settings, K::ABILITIES.style, K::ROLL, &holds).await?;
    let (limits, at_most) = (settings.limits, settings.connections);
    Ok(Sessions::new(Arc::new(Source { settings, roll, kind: PhantomData }), holds, limits, at_most))
}

impl<K: Kind> Connections for Source<K> {
    type Connection = K;

    const SHARED: bool = K::SHARED;

    fn abilities(&self) -> Abilities {
        K::ABILITIES
    }

    async fn open(&self) -> Result<Arc<K>> {
        let session = Session::open_patient(Arc::clone(&self.settings), K::STATEMENTS).await?;
        session.row(K::RAISE, &[], "raise the tokens").await?;
        Ok(Arc::new(K::on(session)))
    }

    async fn interrupt(&self, connection: &K) {
        if self.roll.cancel(connection.session().backend).await.is_err() {
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
