//! Where the connections of the styles with sessions come from: the same way for both.

use crate::backing::Backing;
use crate::config::Settings;
use crate::roll::Roll;
use lockkeeper_core::{Abilities, ClaimId, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::marker::PhantomData;
use std::sync::Arc;

/// What makes a style: how its connections take locks, and these.
pub(crate) trait Kind: Connection + Sized {
    const ABILITIES: Abilities;
    /// The number under which keepers of this style announce themselves.
    const ROLL: i64;
    /// Over how many connections the locks are spread; 0 if one connection can hold only one.
    const SHARED: usize;
    /// Opens such a connection, which raises the tokens first.
    fn open(settings: &Arc<Settings>) -> impl Future<Output = Result<Self>> + Send;
    fn backing(&self) -> &Backing;
}

pub(crate) const RAISE_TOKENS: &str = include_str!("sql/raise_tokens.sql");
pub(crate) const PROBE: &str = include_str!("sql/session_probe.sql");

pub(crate) fn token(number: i64) -> Token {
    Token(number.max(0).unsigned_abs())
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

    const SHARED: usize = K::SHARED;

    fn abilities(&self) -> Abilities {
        K::ABILITIES
    }

    async fn open(&self) -> Result<Arc<K>> {
        K::open(&self.settings).await.map(Arc::new)
    }

    async fn interrupt(&self, connection: &K) {
        if self.roll.cancel(connection.backing().backend).await.is_err() {
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
