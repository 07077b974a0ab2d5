//! The row style: whoever inserts the row holds the lock; a person can read it with psql.

mod free;
mod take;

use self::free::{Frees, Leaving};
use self::take::{Outcome, Takes, Taking};
use crate::config::Settings;
use crate::pool::Links;
use crate::session::Session;
use crate::styles::ROW;
use futures_util::future::try_join_all;
use lockkeeper_core::{
    Abilities, Answer, Batcher, Claim, ClaimId, Clock, Crowded, Grant, Holder, Kept, Left, LockName,
    LockView, Race, Renewal, Result, Token, background,
};
use lockkeeper_sql_common::{ClaimRow, Lookout, Waiter, Waiters, lock_views};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_postgres::Row;

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
    include_str!("sql/row_take_many.sql"),
    include_str!("sql/row_free_many.sql"),
];
const TAKE: usize = 0;
const FREE: usize = 1;
const KEEP: usize = 2;
const LIST: usize = 3;
const CLEAN: usize = 4;
const LOOK: usize = 5;
const HELD: usize = 6;
const TAKE_MANY: usize = 7;
const FREE_MANY: usize = 8;

const RAISE: &str = include_str!("sql/raise_tokens.sql");

/// How often rows that expired long ago are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// How many requests of each kind are under way before the next ones gather, and how many travel together. Each lock that
/// is being taken needs room in the server's table of locks, of which it has some thousands for everybody.
const AT_ONCE: usize = 4;
const AT_MOST: usize = 32;

/// How many are renewed by one statement: the server compares each with half of the others.
const KEEP_AT_MOST: usize = 500;

/// Locks that are rows.
pub(crate) struct Rows {
    links: Arc<Links>,
    takes: Batcher<Takes>,
    frees: Batcher<Frees>,
    /// Which link carries which claim; those that hold have their token as their place.
    book: Waiters,
    /// Locks that others want, too, as far as we know: they would only be left out when many are taken together.
    crowded: Crowded,
    lookout: Arc<Lookout>,
}

impl Rows {
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let links = Arc::new(Links::new(&settings, STATEMENTS, RAISE, "", None));
        links.house().session().await?;
        background::handle().spawn(clean(Arc::downgrade(&links)));
        let lookout = Arc::new(Lookout::default());
        background::handle().spawn(look_out(Arc::clone(&links), Arc::clone(&lookout)));
        Ok(Self {
            takes: Takes::together(&links),
            frees: Frees::together(&links),
            links,
            book: Waiters::new(settings.limits.look),
            crowded: Crowded::default(),
            lookout,
        })
    }

    async fn free(&self, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        let freed = match self.book.find(id) {
            Some(entry) if entry.place.load(SeqCst) > 0 => self.free_held(name, &entry).await?,
            Some(entry) => {
                let _after_the_attempt = entry.under_way.lock().await;
                // One who took alone has gone perhaps, and his request has not; on one link a leave cannot overtake it.
                Frees::one(self.links.at(entry.link.load(SeqCst)), name, id, doing).await?
            }
            None => Frees::one(self.links.house(), name, id, doing).await?,
        };
        self.book.forget(id);
        Ok(freed)
    }

    async fn free_held(&self, name: &LockName, entry: &Waiter) -> Result<bool> {
        let link = entry.link.load(SeqCst);
        match self.frees.ask(Leaving { name: name.clone(), id: entry.id, link }).await {
            Some(answer) => answer,
            // The runtime of the batches has ended.
            None => Frees::one(self.links.at(link), name, entry.id, "free the lock").await,
        }
    }

    /// Takes the row: together with others, unless somebody else is known to want it, too.
    async fn take(&self, claim: &Claim, entry: &Arc<Waiter>) -> Result<Outcome> {
        let under_way = Arc::clone(&entry.under_way).lock_owned().await;
        if self.crowded.contains(&claim.name) {
            return self.take_alone(claim, entry).await;
        }
        let (claim, entry) = (claim.clone(), Arc::clone(entry));
        let taking = Arc::new(Taking { claim, entry, thread: thread(), _under_way: under_way });
        match self.takes.ask(Arc::clone(&taking)).await {
            Some(outcome) => outcome,
            // The runtime of the batches has ended.
            None => self.take_alone(&taking.claim, &taking.entry).await,
        }
    }

    async fn take_alone(&self, claim: &Claim, entry: &Waiter) -> Result<Outcome> {
        let outcome = Takes::one(&self.links, claim, entry, &thread()).await?;
        self.crowded.note(&claim.name, !matches!(outcome, Outcome::Taken(_)));
        Ok(outcome)
    }

    async fn look(&self, claim: &Claim, entry: &Waiter) -> Result<Seen> {
        let session = self.links.at(entry.link.load(SeqCst)).session().await?;
        let (name, id) = (claim.name.as_str(), claim.id.to_string());
        let seen = session.rows(LOOK, &[&name, &id], "look at the lock").await?;
        // No row: it was freed just now.
        let Some(row) = seen.first() else { return Ok(Seen { own: None, free_in: Duration::ZERO }) };
        let free_in = Duration::from_millis(row.get::<_, i64>("free_in_ms").max(0).unsigned_abs());
        Ok(Seen { own: row.get("token"), free_in })
    }
}

/// What one sees who did not get the lock: his own hold, after all, or how long the present one can last.
struct Seen {
    own: Option<i64>,
    free_in: Duration,
}

/// Marks the claim as one that holds: no request that takes it is under way any more.
fn granted(entry: &Waiter, token: i64) -> Answer {
    let token = token.max(1).unsigned_abs();
    entry.place.store(token, SeqCst);
    Answer::Granted(Grant { token: Token(token) })
}

/// Where batches are sent from: the runtime of this call, if it has threads of its own. Another one may stand still as soon
/// as nobody waits for it, and with it those who wait for the batch elsewhere.
fn home() -> Handle {
    let here = Handle::current();
    match here.runtime_flavor() {
        RuntimeFlavor::MultiThread => here,
        _ => background::handle().clone(),
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

/// Renews some, and says which of them are dead.
async fn keep(session: &Session, renewals: &[Renewal]) -> Result<Vec<ClaimId>> {
    let names: Vec<&str> = renewals.iter().map(|renewal| renewal.claim.name.as_str()).collect();
    let ids: Vec<String> = renewals.iter().map(|renewal| renewal.claim.id.to_string()).collect();
    let ttls: Vec<i64> = renewals.iter().map(|renewal| milliseconds(renewal.ttl)).collect();
    let rows = session.rows(KEEP, &[&names, &ids, &ttls], "renew").await?;
    let kept: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
    let dead = renewals.iter().zip(&ids).filter(|(_, id)| !kept.contains(id.as_str()));
    Ok(dead.map(|(renewal, _)| renewal.claim.id).collect())
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn thread() -> String {
    let thread = std::thread::current();
    thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned)
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
        // Commits wait for the disk, and those of several links wait together.
        let entry = self.book.enter(claim, || self.links.idlest());
        let mut outcome = self.take(claim, &entry).await?;
        let seen = loop {
            if let Outcome::Taken(token) = outcome {
                return Ok(granted(&entry, token));
            }
            let seen = self.look(claim, &entry).await?;
            if matches!(outcome, Outcome::Held) || !seen.free_in.is_zero() {
                break seen;
            }
            // It has expired, or is being taken: only one who comes alone takes that over, or waits for that.
            outcome = self.take_alone(claim, &entry).await?;
        };
        if let Some(own) = seen.own {
            return Ok(granted(&entry, own));
        }
        // Nothing of it is left, so nobody will leave for it.
        self.book.forget(claim.id);
        self.crowded.note(&claim.name, true);
        Ok(Answer::Busy { free_in: Some(seen.free_in) })
    }

    async fn changed(&self, claim: &Claim, free_in: Option<Duration>) -> Result<()> {
        // Whoever finds it freed just now need not wait for a look.
        if free_in != Some(Duration::ZERO) {
            self.lookout.turn(&claim.name).await;
        }
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let session = self.links.house().session().await?;
        let all = renewals.chunks(KEEP_AT_MOST).map(|some| keep(&session, some));
        Ok(Kept { dead: try_join_all(all).await?.concat(), as_of: None })
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
