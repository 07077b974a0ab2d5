//! The row style: whoever inserts the row holds the lock; a person can read it with psql.

use crate::config::Settings;
use crate::pool::Links;
use crate::styles::ROW;
use lockkeeper_core::{
    Abilities, Answer, Claim, ClaimId, Clock, Grant, Holder, Kept, Left, LockName, LockView, Race, Renewal,
    Result, Token, house,
};
use lockkeeper_sql_common::{ClaimRow, Lookout, Waiters, lock_views};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(crate) const SCHEMA: &str =
    concat!(include_str!("sql/schema_tokens.sql"), "\n", include_str!("sql/schema_row.sql"));

const STATEMENTS: &[&str] = &[
    include_str!("sql/row_take.sql"),
    include_str!("sql/row_free.sql"),
    include_str!("sql/row_keep.sql"),
    include_str!("sql/row_list.sql"),
    include_str!("sql/row_clean.sql"),
    include_str!("sql/row_look.sql"),
    include_str!("sql/row_held.sql"),
];
const TAKE: usize = 0;
const FREE: usize = 1;
const KEEP: usize = 2;
const LIST: usize = 3;
const CLEAN: usize = 4;
const LOOK: usize = 5;
const HELD: usize = 6;

const RAISE: &str = include_str!("sql/raise_tokens.sql");

/// How often rows that expired long ago are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// Locks that are rows.
pub(crate) struct Rows {
    links: Arc<Links>,
    /// Which link carries which claim.
    book: Waiters,
    lookout: Arc<Lookout>,
}

impl Rows {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let links = Arc::new(Links::new(&settings, STATEMENTS, RAISE, "", None));
        links.house().session().await?;
        house::handle().spawn(clean(Arc::downgrade(&links)));
        let lookout = Arc::new(Lookout::default());
        house::handle().spawn(look_out(Arc::clone(&links), Arc::clone(&lookout)));
        Ok(Self { links, book: Waiters::new(settings.limits.look), lookout })
    }

    async fn free(&self, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        let session = match self.book.find(id) {
            // On one connection a leave cannot overtake its attempt.
            Some(entry) => self.links.at(entry.link.load(SeqCst)).session().await?,
            None => self.links.house().session().await?,
        };
        let rows = session.rows(FREE, &[&name.as_str(), &id.to_string()], doing).await?;
        self.book.forget(id);
        Ok(!rows.is_empty())
    }
}

/// Looks for all who wait in this keeper which locks are free.
async fn look_out(links: Arc<Links>, lookout: Arc<Lookout>) {
    while let Some(names) = lookout.due().await {
        match held(&links, &names).await {
            Ok(held) => lookout.looked(&names, &held),
            Err(error) => tracing::debug!(%error, "could not look which locks are free; trying again"),
        }
    }
}

async fn held(links: &Links, names: &[LockName]) -> Result<HashSet<LockName>> {
    let names: Vec<&str> = names.iter().map(LockName::as_str).collect();
    let session = links.house().session().await?;
    let rows = session.rows(HELD, &[&names], "look which locks are free").await?;
    Ok(rows.iter().map(|row| LockName::from_engine(row.get::<_, &str>(0))).collect())
}

async fn clean(links: std::sync::Weak<Links>) {
    loop {
        tokio::time::sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        let Some(links) = links.upgrade() else { return };
        if let Some(session) = links.house().current() {
            let _ = session.rows(CLEAN, &[], "remove old rows").await;
        }
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn thread() -> String {
    let thread = std::thread::current();
    thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned)
}

fn granted(token: i64) -> Answer {
    Answer::Granted(Grant { token: Token(token.max(0).unsigned_abs()) })
}

impl Race for Rows {
    fn abilities(&self) -> Abilities {
        ROW
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn attempt(&self, claim: &Claim) -> Result<Answer> {
        let entry = self.book.enter(claim, || self.links.choose());
        let link = self.links.at(entry.link.load(SeqCst));
        let session = link.session().await?;
        let _under_way = link.under_way();
        let (name, id, holder) = (claim.name.as_str(), claim.id.to_string(), &claim.holder);
        let process = i64::from(holder.pid);
        let ttl_ms = claim.ttl.as_millis() as f64;
        let params: [&(dyn ToSql + Sync); 7] =
            [&name, &id, &holder.text, &holder.host, &process, &thread(), &ttl_ms];
        let taken = session.rows(TAKE, &params, "take the lock").await?;
        if let Some(row) = taken.first() {
            return Ok(granted(row.get("token")));
        }
        let seen = session.rows(LOOK, &[&name, &id], "look at the lock").await?;
        if let Some(own) = seen.first().and_then(|row| row.get("token")) {
            return Ok(granted(own));
        }
        // Nothing of it is left, so nobody will leave for it.
        self.book.forget(claim.id);
        // No row: it was freed just now.
        let free_in: i64 = seen.first().map_or(0, |row| row.get("free_in_ms"));
        Ok(Answer::Busy { free_in: Some(Duration::from_millis(free_in.max(0).unsigned_abs())) })
    }

    async fn changed(&self, claim: &Claim, free_in: Option<Duration>) -> Result<()> {
        // Whoever finds it freed just now need not wait for a look.
        if free_in != Some(Duration::ZERO) {
            self.lookout.turn(&claim.name).await;
        }
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let names: Vec<&str> = renewals.iter().map(|renewal| renewal.claim.name.as_str()).collect();
        let ids: Vec<String> = renewals.iter().map(|renewal| renewal.claim.id.to_string()).collect();
        let ttls: Vec<i64> = renewals.iter().map(|renewal| milliseconds(renewal.ttl)).collect();
        let session = self.links.house().session().await?;
        let rows = session.rows(KEEP, &[&names, &ids, &ttls], "renew").await?;
        let kept: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let dead = renewals.iter().zip(&ids).filter(|(_, id)| !kept.contains(id.as_str()));
        Ok(Kept { dead: dead.map(|(renewal, _)| renewal.claim.id).collect(), as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.free(&claim.name, claim.id, "free the lock").await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let session = self.links.house().session().await?;
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let rows = session.rows(LIST, &[&prefix, &at_most], "list locks").await?;
        Ok(lock_views(rows.iter().map(claim_row)))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.free(name, id, "evict a claim").await
    }

    async fn close(&self) {
        self.lookout.close();
        self.links.close();
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.lookout.close();
        self.links.close();
    }
}

fn claim_row(row: &Row) -> ClaimRow {
    let pid = u32::try_from(row.get::<_, i64>("process")).unwrap_or(0);
    let holder = Holder { text: row.get("who"), host: row.get("host"), pid };
    ClaimRow {
        name: row.get("name"),
        id: row.get("id"),
        demand: "exclusive".into(),
        holder: holder.encode(),
        token: row.get("token"),
        age_ms: row.get("age_ms"),
        left_ms: row.get("left_ms"),
    }
}
