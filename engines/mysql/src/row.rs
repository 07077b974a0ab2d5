//! The row style: whoever inserts the row holds the lock; a person can read it with the `mysql` program.

use crate::config::Settings;
use crate::lane::{Joining, Lane, Texts};
use crate::pool::{Home, Pool};
use crate::queue::microseconds;
use crate::request::Value;
use crate::styles::ROW;
use crate::wire::Work;
use crate::{keep, text};
use lockkeeper_core::{
    Abilities, Answer, Claim, ClaimId, Clock, Grant, Holder, Kept, Left, LockName, LockView, Race, Renewal,
    Result, Token, background,
};
use lockkeeper_sql_common::{ClaimRow, Lookout, Waiters, lock_views};
use mysql_async::prelude::Queryable;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_row.sql");
const LOOK: &str = include_str!("sql/row_look.sql");
const HELD: &str = include_str!("sql/row_held.sql");
const KEEP: &str = include_str!("sql/row_keep.sql");
const ALIVE: &str = include_str!("sql/row_alive.sql");
const LIST: &str = include_str!("sql/row_list.sql");
const CLEAN: &str = include_str!("sql/row_clean.sql");

const CLEAN_EVERY: Duration = Duration::from_secs(3600);

static TEXTS: Texts = Texts {
    join: include_str!("sql/row_take.sql"),
    row: include_str!("sql/row_values.sql"),
    joined: include_str!("sql/row_taken.sql"),
    leave: include_str!("sql/row_free.sql"),
    leave_many: include_str!("sql/row_free_many.sql"),
    values,
    alone: LazyLock::new(|| TEXTS.of_one()),
};

/// What a row says: the note is the thread.
fn values(Joining { claim, note, .. }: &Joining) -> Vec<Value<'static>> {
    vec![
        claim.name.as_str().to_owned().into(),
        claim.id.to_string().into(),
        claim.holder.text.clone().into(),
        claim.holder.host.clone().into(),
        Value::Number(claim.holder.pid.into()),
        note.clone().into(),
        Value::Number(microseconds(claim.ttl)),
    ]
}

/// Locks that are rows.
pub(crate) struct Rows {
    quick: Arc<Pool>,
    lane: Lane,
    house: Arc<Pool>,
    /// Attempts under way: a leave must not overtake its attempt on another connection.
    under_way: Waiters,
    lookout: Arc<Lookout>,
}

impl Rows {
    pub(crate) fn open(settings: Arc<Settings>) -> Self {
        let house_pool = Arc::new(Pool::new(&settings, Home::House, 2));
        background::handle().spawn(clean(Arc::downgrade(&house_pool)));
        let lookout = Arc::new(Lookout::default());
        background::handle().spawn(look_out(Arc::clone(&house_pool), Arc::clone(&lookout)));
        let quick = Arc::new(Pool::new(&settings, Home::Caller, settings.connections));
        Self {
            lane: Lane::new(&settings, &quick, &TEXTS),
            quick,
            house: house_pool,
            under_way: Waiters::new(settings.limits.look),
            lookout,
        }
    }

    async fn free(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let waiter = self.under_way.find(id);
        let _after_the_attempt = match &waiter {
            Some(waiter) => Some(waiter.under_way.lock().await),
            None => None,
        };
        let removed = self.lane.leave(name, id).await?;
        self.under_way.forget(id);
        Ok(removed)
    }
}

/// Looks for all who wait in this keeper which locks are free.
async fn look_out(pool: Arc<Pool>, lookout: Arc<Lookout>) {
    while let Some(names) = lookout.due().await {
        let statement = HELD.replace("{names}", &text::names(names.iter().map(LockName::as_str)));
        let work: Work<Vec<Vec<u8>>> = Box::new(move |conn| {
            let statement = statement.clone();
            Box::pin(async move { conn.query(statement).await })
        });
        match pool.run("look which locks are free", work).await {
            Ok(held) => {
                let held = held.iter().map(|name| LockName::from_engine(&String::from_utf8_lossy(name)));
                lookout.looked(&names, &held.collect());
            }
            Err(error) => tracing::debug!(%error, "could not look which locks are free; trying again"),
        }
    }
}

async fn clean(pool: std::sync::Weak<Pool>) {
    loop {
        tokio::time::sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.01..1.0))).await;
        let Some(pool) = pool.upgrade() else { return };
        let cleaned = pool
            .run("remove old rows", Box::new(|conn| Box::pin(async { conn.query_drop(CLEAN).await })))
            .await;
        if let Err(error) = cleaned {
            tracing::debug!(%error, "could not remove old rows");
        }
    }
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
        let waiter = self.under_way.enter(claim, || 0);
        let under_way = Arc::clone(&waiter.under_way).lock_owned().await;
        let joining = Joining { claim: claim.clone(), note: thread(), _under_way: under_way };
        if let Some(token) = self.lane.join(Arc::new(joining)).await? {
            return Ok(Answer::Granted(Grant { token: Token(token) }));
        }
        let own = (claim.id.to_string(), claim.name.as_str().as_bytes().to_vec());
        let look: Work<Option<(Option<u64>, Option<i64>)>> = Box::new(move |conn| {
            let own = own.clone();
            Box::pin(async move { conn.exec_first(LOOK, own).await })
        });
        // No row: it was removed just now.
        let (token, free_in_us) = self.quick.run("look who holds", look).await?.unwrap_or((None, Some(0)));
        if let Some(token) = token {
            return Ok(Answer::Granted(Grant { token: Token(token) }));
        }
        // Nothing of it is left, so nobody will leave for it.
        self.under_way.forget(claim.id);
        let free_in = free_in_us.map(|time| Duration::from_micros(time.max(0).unsigned_abs()));
        Ok(Answer::Busy { free_in })
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        self.lookout.turn(&claim.name).await;
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        keep::keep(&self.house, KEEP, ALIVE, renewals).await
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.free(&claim.name, claim.id).await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let prefix = prefix.as_bytes().to_vec();
        type Row = (Vec<u8>, String, String, String, u32, i64, i64, i64);
        let rows: Vec<Row> = self
            .quick
            .run(
                "list locks",
                Box::new(move |conn| {
                    let params = (prefix.clone(), prefix.len(), prefix.clone(), at_most);
                    Box::pin(async move { conn.exec(LIST, params).await })
                }),
            )
            .await?;
        Ok(lock_views(rows.into_iter().map(|(name, id, text, host, pid, token, age_us, left_us)| ClaimRow {
            name: String::from_utf8_lossy(&name).into_owned(),
            id,
            demand: "exclusive".into(),
            holder: Holder { text, host, pid }.encode(),
            token,
            age_ms: age_us / 1000,
            left_ms: Some(left_us / 1000),
        })))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.free(name, id).await
    }

    async fn close(&self) {
        self.end();
    }
}

impl Rows {
    fn end(&self) {
        self.lookout.close();
        self.lane.close();
        self.quick.close();
        self.house.close();
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.end();
    }
}
