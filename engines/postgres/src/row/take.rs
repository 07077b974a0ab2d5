//! How rows are taken: what many tasks want while requests are under way is taken together, with one commit for all.

use super::{AT_MOST, AT_ONCE, TAKE, TAKE_MANY, home};
use crate::pool::Links;
use futures_util::future::join_all;
use lockkeeper_core::{Batch, Batcher, Claim, ClaimId, Result};
use lockkeeper_sql_common::Waiter;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tokio::sync::OwnedMutexGuard;
use tokio_postgres::types::ToSql;

/// What became of one who wanted a lock.
pub(super) enum Outcome {
    /// It has it, with this token.
    Taken(i64),
    /// Somebody has it whose hold had not expired.
    Held,
    /// Somebody has it, had it a moment ago, or takes it just now.
    LeftOut,
}

/// One claim on its way.
pub(super) struct Taking {
    pub(super) claim: Claim,
    /// Says which link carries it.
    pub(super) entry: Arc<Waiter>,
    /// The thread that asks.
    pub(super) thread: String,
    /// Let go when the request is over, not when somebody stops waiting for it.
    pub(super) _under_way: OwnedMutexGuard<()>,
}

/// Takes rows.
pub(super) struct Takes(Arc<Links>);

impl Takes {
    /// Together with what others take meanwhile.
    pub(super) fn together(links: &Arc<Links>) -> Batcher<Self> {
        Batcher::new(Self(Arc::clone(links)), home(), AT_ONCE)
    }

    /// Takes the row or one that has expired, after everybody who is taking it now.
    pub(super) async fn one(links: &Links, claim: &Claim, entry: &Waiter, thread: &str) -> Result<Outcome> {
        let link = links.at(entry.link.load(SeqCst));
        let session = link.session().await?;
        let _under_way = link.under_way();
        let (name, id, holder) = (claim.name.as_str(), claim.id.to_string(), &claim.holder);
        let (process, ttl_ms) = (i64::from(holder.pid), claim.ttl.as_millis() as f64);
        let params: [&(dyn ToSql + Sync); 7] =
            [&name, &id, &holder.text, &holder.host, &process, &thread, &ttl_ms];
        let taken = session.rows(TAKE, &params, "take the lock").await?;
        Ok(taken.first().map_or(Outcome::Held, |row| Outcome::Taken(row.get(0))))
    }

    /// Takes those rows that are not there; says which.
    async fn many(&self, takings: &[Arc<Taking>]) -> Result<HashMap<ClaimId, i64>> {
        let index = self.0.idlest();
        // Before anything is sent: a leave that follows goes the same way.
        takings.iter().for_each(|taking| taking.entry.link.store(index, SeqCst));
        let link = self.0.at(index);
        let session = link.session().await?;
        let _under_way = link.under_way();
        let claims = || takings.iter().map(|taking| &taking.claim);
        let names: Vec<&str> = claims().map(|claim| claim.name.as_str()).collect();
        let ids: Vec<String> = claims().map(|claim| claim.id.to_string()).collect();
        let texts: Vec<&str> = claims().map(|claim| claim.holder.text.as_str()).collect();
        let hosts: Vec<&str> = claims().map(|claim| claim.holder.host.as_str()).collect();
        let processes: Vec<i64> = claims().map(|claim| claim.holder.pid.into()).collect();
        let threads: Vec<&str> = takings.iter().map(|taking| taking.thread.as_str()).collect();
        let ttls_ms: Vec<f64> = claims().map(|claim| claim.ttl.as_millis() as f64).collect();
        let params: [&(dyn ToSql + Sync); 7] = [&names, &ids, &texts, &hosts, &processes, &threads, &ttls_ms];
        let rows = session.rows(TAKE_MANY, &params, "take locks").await?;
        Ok(rows.iter().filter_map(|row| Some((row.get::<_, &str>(0).parse().ok()?, row.get(1)))).collect())
    }

    async fn alone(&self, Taking { claim, entry, thread, .. }: &Taking) -> Result<Outcome> {
        Self::one(&self.0, claim, entry, thread).await
    }
}

impl Batch for Takes {
    type Ask = Arc<Taking>;
    type Answer = Result<Outcome>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, takings: &[Arc<Taking>]) -> Vec<Result<Outcome>> {
        if let [taking] = takings {
            return vec![self.alone(taking).await];
        }
        match self.many(takings).await {
            Ok(tokens) => {
                let tokens = takings.iter().map(|taking| tokens.get(&taking.claim.id));
                tokens
                    .map(|token| Ok(token.map_or(Outcome::LeftOut, |token| Outcome::Taken(*token))))
                    .collect()
            }
            // One must not fail for the others. What was taken all the same is found by the claim's id (Law 4).
            Err(_) => join_all(takings.iter().map(|taking| self.alone(taking))).await,
        }
    }

    async fn send_alone(&self, taking: Arc<Taking>) -> Option<Result<Outcome>> {
        Some(self.alone(&taking).await)
    }
}
