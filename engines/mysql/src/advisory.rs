//! The advisory style: the server's own user locks (GET_LOCK), many of them on one connection.
//!
//! MySQL has no sequences, so there a procedure writes the token at each grant. MariaDB has, and a lock writes nothing.

use crate::config::Settings;
use crate::error::ENGINE;
use crate::session::{Session, Style};
use crate::view::{HolderLog, Holders, ViewTexts};
use crate::{ADVISORY, keys};
use lockkeeper_core::engine::{Claim, ClaimId, Clock, Lifeline, LockName};
use lockkeeper_core::{Abilities, Error, LockView, Result, Token};
use lockkeeper_sql_common::{Connection, Connections, Holds, Sessions};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_advisory.sql");
const TAKE: &str = include_str!("sql/user_lock_take.sql");
const FREE: &str = "DO RELEASE_LOCK(?)";
const WAIT: &str = "SELECT GET_LOCK(?, ?), CONNECTION_ID()";
const TOKEN: &str = "SELECT NEXTVAL(lockkeeper_tokens)";

/// How many connections hold the locks of a keeper: each does one request after the other.
pub(crate) const SHARED: usize = 4;

/// The style on MySQL.
pub(crate) static STYLE: Style = Style {
    abilities: ADVISORY,
    take: "CALL lockkeeper_advisory_take(?, ?, ?, ?)",
    free: "CALL lockkeeper_advisory_free(?)",
    view: ViewTexts {
        list: include_str!("sql/advisory_list.sql"),
        find: "SELECT connection FROM lockkeeper_holds \
               WHERE name = ? AND id = ? AND IS_USED_LOCK(user_lock) = connection",
        clean: "CALL lockkeeper_advisory_clean(86400)",
        has_foreign: true,
    },
};

/// A connection with many locks, on MariaDB.
pub(crate) struct UserLocks {
    session: Arc<Session>,
    log: Arc<HolderLog>,
}

impl UserLocks {
    fn key(&self, name: &LockName) -> String {
        keys::user_lock(&self.session.database, name)
    }

    fn granted(&self, claim: &Claim, token: u64) -> Token {
        self.log.granted(claim, Token(token), &self.session);
        Token(token)
    }
}

fn unknown(doing: &'static str) -> Error {
    Error::temporary(ENGINE, doing, "the server could not say whether it is free")
}

impl Connection for UserLocks {
    const NOTICES_LOSS: bool = false;

    async fn take(&self, claim: &Claim) -> Result<Option<Token>> {
        const DOING: &str = "take the lock";
        const BUSY: u64 = 0;
        const UNKNOWN: u64 = 1;
        const ELSEWHERE: u64 = 2;
        let values = vec![self.session.number.into(), self.key(&claim.name).into()];
        match self.session.request::<u64>(DOING, TAKE, values).await? {
            None | Some(ELSEWHERE) => Err(self.session.is_another()),
            Some(UNKNOWN) => Err(unknown(DOING)),
            Some(BUSY) => Ok(None),
            Some(token) => Ok(Some(self.granted(claim, token))),
        }
    }

    async fn wait(&self, claim: &Claim) -> Result<Token> {
        const DOING: &str = "wait for the lock";
        loop {
            let values = vec![self.key(&claim.name).into(), self.session.times.wait.into()];
            let waited = self.session.wait::<(Option<u8>, u64)>(WAIT, values).await?;
            let (got, number) = waited.unwrap_or_default();
            self.session.check(Some(number))?;
            if got.ok_or_else(|| unknown(DOING))? == 1 {
                break;
            }
        }
        let token = self.session.request::<u64>(DOING, TOKEN, Vec::new()).await?;
        Ok(self.granted(claim, token.ok_or_else(|| unknown(DOING))?))
    }

    async fn free(&self, name: &LockName) -> Result<()> {
        // First the row that shows it: an eviction must not find it when this connection has the lock for another claim.
        self.log.freed(name).await?;
        self.session.request::<u8>("free the lock", FREE, vec![self.key(name).into()]).await.map(drop)
    }

    async fn probe(&self) -> Result<()> {
        self.session.probe().await
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy()
    }

    fn lifeline(&self) -> &Lifeline {
        self.session.lifeline()
    }

    fn cut(&self) {
        self.session.close();
    }
}

/// Where such connections come from.
pub(crate) struct Source {
    settings: Arc<Settings>,
    holders: Arc<Holders>,
    log: Arc<HolderLog>,
}

/// Opens the style on MariaDB.
pub(crate) fn open_mariadb(settings: Arc<Settings>) -> Sessions<Source> {
    let holders = Holders::open(&settings, STYLE.view);
    let log = HolderLog::open(&holders);
    let (limits, at_most) = (settings.limits, settings.connections);
    let source = Arc::new(Source { settings, holders, log });
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
        Ok(Arc::new(UserLocks { session, log: Arc::clone(&self.log) }))
    }

    async fn interrupt(&self, connection: &UserLocks) {
        if self.holders.interrupt(connection.session.number).await.is_err() {
            connection.cut();
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.log.write_now().await?;
        self.holders.list(prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        // Its keeper shows a hold a moment after the grant.
        const TRIES: usize = 20;
        for _ in 0..TRIES {
            if self.holders.evict(name, id).await? {
                return Ok(true);
            }
            Clock::Boot.sleep(Duration::from_millis(50)).await;
        }
        Ok(false)
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.holders.ask(name, id).await
    }

    async fn asked(&self, ids: &[ClaimId]) -> Result<Vec<ClaimId>> {
        self.holders.asked(ids).await
    }

    fn close(&self) {
        self.log.close();
        self.holders.close();
    }
}
