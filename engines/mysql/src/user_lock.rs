//! The advisory style on MariaDB: user locks (GET_LOCK), with tokens from a sequence, so that a lock writes nothing.

use crate::advisory;
use crate::answer::{Cell, Row};
use crate::config::Settings;
use crate::fault::ENGINE;
use crate::holders::Holders;
use crate::scribe::Scribe;
use crate::session::{Session, Use};
use crate::styles::ADVISORY;
use lockkeeper_core::{Abilities, Claim, ClaimId, Error, Lifeline, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// How many connections hold the locks: each does one request after the other.
const SHARED: usize = 4;

/// The statements, in this order.
const TAKE: usize = 0;
const FREE: usize = 1;
const WAIT: usize = 2;
const TOKEN: usize = 3;
const STATEMENTS: [&str; 4] = [
    include_str!("sql/user_lock_take.sql"),
    include_str!("sql/user_lock_free.sql"),
    include_str!("sql/user_lock_wait.sql"),
    include_str!("sql/user_lock_token.sql"),
];

/// The user lock of a lock. User locks are the server's, hence the database in the name; and one whose name is too long, or could
/// be taken for another's, has a hash for it. All of this is the same in `schema_advisory.sql`.
pub(crate) fn key(database: &str, name: &LockName) -> String {
    const LONGEST: usize = 61;
    const HASH: usize = 60;
    let full = [database, "/", name.as_str()].concat();
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-');
    if full.len() <= LONGEST && full.bytes().all(plain) {
        return format!("lk:{full}");
    }
    let hash = format!("{:x}", Sha256::digest(full));
    format!("lk:{}", &hash[..HASH])
}

/// A connection that holds many.
pub(crate) struct UserLocks {
    session: Arc<Session>,
    scribe: Arc<Scribe>,
}

impl UserLocks {
    fn key(&self, name: &LockName) -> String {
        key(&self.session.database, name)
    }

    fn granted(&self, claim: &Claim, token: Token) -> Token {
        self.scribe.granted(claim, token, &self.session);
        token
    }
}

/// The number that such a statement answers with.
fn number(row: &Row, doing: &'static str) -> Result<u64> {
    let number = row.first().and_then(Cell::number);
    number.ok_or_else(|| Error::temporary(ENGINE, doing, "no answer"))
}

impl Connection for UserLocks {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        const DOING: &str = "take the lock";
        const BUSY: u64 = 0;
        const UNKNOWN: u64 = 1;
        const ELSEWHERE: u64 = 2;
        let key = self.key(&claim.name);
        let row = self.session.ask(DOING, TAKE, &[key.as_str().into()]).await?;
        match row.first().and_then(Cell::number) {
            // A session that does not track is another one, too.
            None | Some(ELSEWHERE) => Err(self.session.is_another()),
            Some(UNKNOWN) => {
                Err(Error::temporary(ENGINE, DOING, "the server could not say whether it is free"))
            }
            Some(BUSY) => Ok(None),
            Some(token) => Ok(Some(self.granted(claim, Token(token)))),
        }
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        const DOING: &str = "wait for the lock";
        let key = self.key(&claim.name);
        loop {
            let row = self.session.ask_at_last(DOING, WAIT, &[key.as_str().into()]).await?;
            self.session.check(row.get(1))?;
            if number(&row, DOING)? == 1 {
                break;
            }
        }
        let row = self.session.ask(DOING, TOKEN, &[]).await?;
        Ok(self.granted(claim, Token(number(&row, DOING)?)))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        // First what shows it: an eviction must not find it when this connection has the lock for another claim.
        self.scribe.freed(name).await?;
        self.session.ask("free the lock", FREE, &[self.key(name).as_str().into()]).await.map(drop)
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

/// Where such connections come from.
pub(crate) struct Source {
    settings: Arc<Settings>,
    holders: Arc<Holders>,
    scribe: Arc<Scribe>,
}

/// Opens the style.
pub(crate) fn open(settings: Arc<Settings>) -> Sessions<Source> {
    let holders = Holders::open(&settings, advisory::STYLE.texts);
    let scribe = Scribe::open(&settings);
    let (limits, at_most) = (settings.limits, settings.connections);
    let source = Arc::new(Source { settings, holders, scribe });
    Sessions::new(source, Arc::new(Holds::default()), limits, at_most)
}

impl Connections for Source {
    type Connection = UserLocks;

    const SHARED: usize = SHARED;

    fn abilities(&self) -> Abilities {
        ADVISORY
    }

    async fn open(&self) -> Result<Arc<UserLocks>> {
        let session = Session::open(&self.settings, Use::Holds, &STATEMENTS).await?;
        Ok(Arc::new(UserLocks { session, scribe: Arc::clone(&self.scribe) }))
    }

    async fn interrupt(&self, connection: &UserLocks) {
        if self.holders.interrupt(connection.session.number).await.is_err() {
            connection.cut();
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.scribe.write(Duration::ZERO).await?;
        self.holders.list(prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        // Its keeper shows a hold a moment after the grant.
        const TRIES: usize = 20;
        for _ in 0..TRIES {
            if self.holders.evict(name, id).await? {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(false)
    }

    fn close(&self) {
        self.scribe.close();
        self.holders.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_server_could_take_for_another_is_hashed() {
        let key = |name: &str| key("shop", &LockName::from_engine(name));
        assert_eq!(key("orders/1"), "lk:shop/orders/1");
        assert_eq!(key("Orders"), "lk:cfcccd382620db951641dc30bed0105ba49c9d297c16a79a136d7742c99d");
        assert_eq!(key(&"x".repeat(56)).len(), 64, "as it is");
        for odd in ["orders ", "ümlaut", &"x".repeat(57)] {
            let key = key(odd);
            assert!(key.len() == 63 && key[3..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        }
    }
}
