//! The advisory style on MariaDB: user locks (GET_LOCK), with tokens from a sequence, so that a lock writes nothing.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::holders::Holders;
use crate::scribe::Scribe;
use crate::styles::ADVISORY;
use crate::wire::{Wire, Work, statement};
use crate::{advisory, held};
use lockkeeper_core::{Abilities, Claim, ClaimId, Error, Lifeline, LockName, LockView, Result, Token, house};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use mysql_async::prelude::Queryable;
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
        let full = format!("{database}/{}", name.as_str());
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._/-".contains(&byte);
        if full.len() <= LONGEST && full.bytes().all(plain) {
            return Self { value: format!("lk:{full}"), texts: &PLAIN };
        }
        Self { value: full, texts: &HASHED }
    }

    /// The row that shows a hold, with a question mark for each value.
    pub(crate) fn row(&self) -> &'static str {
        &self.texts.row
    }
}

/// A connection that holds many.
pub(crate) struct UserLocks {
    wire: Arc<Wire>,
    scribe: Arc<Scribe>,
}

impl UserLocks {
    fn key(&self, name: &LockName) -> Key {
        Key::of(&self.wire.database, name)
    }

    fn granted(&self, claim: &Claim, token: Token) -> Token {
        self.scribe.granted(claim, token, &self.wire);
        token
    }
}

impl Connection for UserLocks {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        let Key { value, texts } = self.key(&claim.name);
        let work: Work<Option<(Option<u64>, u32)>> = Box::new(move |conn| {
            let value = value.clone();
            Box::pin(async move { conn.exec_first(texts.take.as_str(), (value,)).await })
        });
        let (token, number) = answer("take the lock", self.wire.run("take the lock", work).await?)?;
        held::check(&self.wire, number)?;
        let token = answer("take the lock", token)?;
        Ok((token > 0).then(|| self.granted(claim, Token(token))))
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        const DOING: &str = "wait for the lock";
        let Key { value, texts } = self.key(&claim.name);
        loop {
            let value = value.clone();
            let work: Work<Option<(Option<u8>, u32)>> = Box::new(move |conn| {
                let value = value.clone();
                Box::pin(async move { conn.exec_first(texts.wait.as_str(), (value,)).await })
            });
            let (got, number) = answer(DOING, self.wire.run_within(DOING, held::WAIT_LIMIT, work).await?)?;
            held::check(&self.wire, number)?;
            if answer(DOING, got)? == 1 {
                break;
            }
        }
        let work: Work<Option<u64>> = Box::new(|conn| Box::pin(conn.exec_first(TOKEN, ())));
        let token = answer(DOING, self.wire.run(DOING, work).await?)?;
        Ok(self.granted(claim, Token(token)))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        // First what shows it: an eviction must not find it when this connection has the lock for another claim.
        self.scribe.freed(name).await?;
        let Key { value, texts } = self.key(name);
        self.wire.run("free the lock", statement(&texts.free, (value,))).await
    }

    async fn probe(&self) -> Result<()> {
        held::probe(&self.wire).await
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

fn answer<T>(doing: &'static str, answer: Option<T>) -> Result<T> {
    answer.ok_or_else(|| Error::temporary(ENGINE, doing, "no answer"))
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
        let wire = Wire::open(&self.settings, house::handle()).await?;
        held::set_up(&wire).await?;
        Ok(Arc::new(UserLocks { wire, scribe: Arc::clone(&self.scribe) }))
    }

    async fn interrupt(&self, connection: &UserLocks) {
        if self.holders.interrupt(connection.wire.number).await.is_err() {
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
