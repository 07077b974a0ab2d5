//! The row style: whoever inserts the row holds the lock; a person can read it with the `mysql` program.

use crate::config::Settings;
use crate::pool::{Home, Pool};
use crate::queue::microseconds;
use crate::styles::ROW;
use crate::text;
use lockkeeper_core::{
    Abilities, Answer, Claim, ClaimId, Clock, Grant, Holder, Kept, Left, LockName, LockView, Race, Renewal,
    Result, Token, house,
};
use lockkeeper_sql_common::{ClaimRow, Pacer, Waiters, lock_views};
use mysql_async::prelude::Queryable;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_row.sql");
const TAKE: &str = include_str!("sql/row_take.sql");
const LOOK: &str = include_str!("sql/row_look.sql");
const FREE: &str = include_str!("sql/row_free.sql");
const KEEP: &str = include_str!("sql/row_keep.sql");
const ALIVE: &str = include_str!("sql/row_alive.sql");
const LIST: &str = include_str!("sql/row_list.sql");
const CLEAN: &str = include_str!("sql/row_clean.sql");

const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// Locks that are rows.
pub(crate) struct Rows {
    quick: Pool,
    house: Arc<Pool>,
    /// Attempts under way: a leave must not overtake its attempt on another connection.
    under_way: Waiters,
    pacer: Pacer,
}

impl Rows {
    pub(crate) fn open(settings: Arc<Settings>) -> Self {
        let house_pool = Arc::new(Pool::new(&settings, Home::House, 2));
        house::handle().spawn(clean(Arc::downgrade(&house_pool)));
        Self {
            quick: Pool::new(&settings, Home::Caller, settings.connections),
            house: house_pool,
            under_way: Waiters::new(settings.limits.look),
            pacer: Pacer::default(),
        }
    }

    async fn free(&self, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        let waiter = self.under_way.find(id);
        let _after_the_attempt = match &waiter {
            Some(waiter) => Some(waiter.under_way.lock().await),
            None => None,
        };
        let name = name.as_str().as_bytes().to_vec();
        let removed: u64 = self
            .quick
            .run(
                doing,
                Box::new(move |conn| {
                    let params = (name.clone(), id.to_string());
                    Box::pin(async move {
                        conn.exec_drop(FREE, params).await?;
                        Ok(conn.affected_rows())
                    })
                }),
            )
            .await?;
        self.under_way.forget(id);
        Ok(removed > 0)
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
        let under_way = std::sync::Mutex::new(Some(under_way));
        let (claimed, thread) = (claim.clone(), thread());
        let (token, free_in_us) = self
            .quick
            .run(
                "take the lock",
                Box::new(move |conn| {
                    // Let go when the attempt is over, not when somebody stops waiting for it.
                    let _held = &under_way;
                    let holder = &claimed.holder;
                    let params = (
                        claimed.name.as_str().as_bytes().to_vec(),
                        claimed.id.to_string(),
                        holder.text.clone(),
                        holder.host.clone(),
                        holder.pid,
                        thread.clone(),
                        microseconds(claimed.ttl),
                    );
                    let own = (claimed.id.to_string(), params.0.clone());
                    Box::pin(async move {
                        conn.exec_drop(TAKE, params).await?;
                        match conn.last_insert_id().filter(|token| *token > 0) {
                            Some(token) => Ok((Some(token), None)),
                            // No row: it was removed just now.
                            None => Ok(conn.exec_first(LOOK, own).await?.unwrap_or((None, Some(0)))),
                        }
                    })
                }),
            )
            .await?;
        if let Some(token) = token {
            return Ok(Answer::Granted(Grant { token: Token(token) }));
        }
        // Nothing of it is left, so nobody will leave for it.
        self.under_way.forget(claim.id);
        let free_in = free_in_us.map(|time: i64| Duration::from_micros(time.max(0).unsigned_abs()));
        Ok(Answer::Busy { free_in })
    }

    async fn changed(&self, _: &Claim, free_in: Option<Duration>) -> Result<()> {
        self.pacer.turn(free_in).await;
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let mut by_ttl: BTreeMap<u64, Vec<&Claim>> = BTreeMap::new();
        for renewal in renewals {
            by_ttl.entry(microseconds(renewal.ttl)).or_default().push(&renewal.claim);
        }
        let mut dead = Vec::new();
        for (ttl_us, claims) in by_ttl {
            let asked: Vec<ClaimId> = claims.iter().map(|claim| claim.id).collect();
            let names = text::names(claims.iter().map(|claim| claim.name.as_str()));
            let ids = text::ids(asked.iter().copied());
            let fill = |text: &str| text.replace("{names}", &names).replace("{ids}", &ids);
            let update = fill(KEEP).replace("{ttl_us}", &ttl_us.to_string());
            let (alive, wanted) = (fill(ALIVE), asked.len() as u64);
            let kept: Option<Vec<String>> = self
                .house
                .run(
                    "renew",
                    Box::new(move |conn| {
                        let (update, alive) = (update.clone(), alive.clone());
                        Box::pin(async move {
                            conn.query_drop(update).await?;
                            if conn.affected_rows() == wanted {
                                return Ok(None);
                            }
                            conn.query(alive).await.map(Some)
                        })
                    }),
                )
                .await?;
            if let Some(kept) = kept {
                let kept: HashSet<ClaimId> = kept.iter().filter_map(|id| id.parse().ok()).collect();
                dead.extend(asked.into_iter().filter(|id| !kept.contains(id)));
            }
        }
        Ok(Kept { dead, as_of: None })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.free(&claim.name, claim.id, "free the lock").await?;
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
        self.free(name, id, "evict a claim").await
    }

    async fn close(&self) {
        self.end();
    }
}

impl Rows {
    fn end(&self) {
        self.quick.close();
        self.house.close();
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.end();
    }
}
