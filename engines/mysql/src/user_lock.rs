//! The advisory style on MariaDB: user locks (GET_LOCK), with tokens from a sequence, so that a lock writes nothing.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::holders::Holders;
use crate::line::{Cell, Row};
use crate::scribe::Scribe;
use crate::session::{Ask, Session};
use crate::styles::ADVISORY;
use crate::{advisory, held};
use lockkeeper_core::{Abilities, Claim, ClaimId, Error, Lifeline, LockName, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// How many connections hold the locks: each does one request after the other.
const SHARED: usize = 4;

const TOKEN: &str = include_str!("sql/user_lock_token.sql");

static PLAIN: LazyLock<Texts> = LazyLock::new(|| Texts::with("?"));
static HASHED: LazyLock<Texts> = LazyLock::new(|| Texts::with(HASH));

/// How the name of a lock becomes that of a user lock if it cannot be it as it is.
const HASH: &str = "CONCAT('lk:', LEFT(SHA2(?, 256), 60))";

struct Texts {
    take: String,
    wait: String,
    free: String,
    row: String,
}

impl Texts {
    fn with(key: &str) -> Self {
        let fill = |text: &str| text.replace("{key}", key);
        Self {
            take: fill(include_str!("sql/user_lock_take.sql")),
            wait: fill(include_str!("sql/user_lock_wait.sql")),
            free: fill(include_str!("sql/user_lock_free.sql")),
            row: fill(include_str!("sql/user_lock_row.sql")),
        }
    }
}

/// The user lock of a lock. User locks are the server's, hence the database in the name; it is the same as in the procedures
/// of `schema_advisory.sql`.
pub(crate) struct Key {
    /// The value for the statements below.
    pub(crate) value: String,
    texts: &'static Texts,
}

impl Key {
    pub(crate) fn of(database: &str, name: &LockName) -> Self {
        const LONGEST: usize = 61;
        let parts = [database, "/", name.as_str()];
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-');
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length <= LONGEST && parts.iter().all(|part| part.bytes().all(plain)) {
            return Self { value: ["lk:", database, "/", name.as_str()].concat(), texts: &PLAIN };
        }
        Self { value: parts.concat(), texts: &HASHED }
    }

    /// The row that shows a hold, with a question mark for each value.
    pub(crate) fn row(&self) -> &'static str {
        &self.texts.row
    }
}

/// A connection that holds many.
pub(crate) struct UserLocks {
    session: Arc<Session>,
    scribe: Arc<Scribe>,
}

impl UserLocks {
    /// The statement about this lock.
    fn about(&self, name: &LockName, choose: fn(&'static Texts) -> &'static str) -> Ask {
        let Key { value, texts } = Key::of(&self.session.database, name);
        (choose(texts), vec![Cell::Bytes(value.into())])
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
        let Key { value, texts } = Key::of(&self.session.database, &claim.name);
        let values = vec![Cell::Number(self.session.number), Cell::Bytes(value.into())];
        let row = self.session.ask(DOING, (&texts.take, values)).await?;
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
        loop {
            let ask = self.about(&claim.name, |texts| &texts.wait);
            let row = self.session.ask_within(DOING, held::WAIT_LIMIT, ask).await?;
            self.session.check(row.get(1))?;
            if number(&row, DOING)? == 1 {
                break;
            }
        }
        let row = self.session.ask(DOING, (TOKEN, Vec::new())).await?;
        Ok(self.granted(claim, Token(number(&row, DOING)?)))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        // First what shows it: an eviction must not find it when this connection has the lock for another claim.
        self.scribe.freed(name).await?;
        self.session.ask("free the lock", self.about(name, |texts| &texts.free)).await.map(drop)
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
        let session = Session::open(&self.settings).await?;
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
        let key = |name: &str| Key::of("shop", &LockName::from_engine(name));
        assert_eq!(key("orders/1").value, "lk:shop/orders/1");
        assert_eq!(key("orders/1").row().matches('?').count(), 7);
        for odd in ["Orders", "orders ", "ümlaut", &"x".repeat(57)] {
            assert_eq!(key(odd).value, format!("shop/{odd}"), "to be hashed");
        }
    }
}
