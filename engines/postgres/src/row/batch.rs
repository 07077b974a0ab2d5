//! Takes and frees of many tasks over one connection: what comes while requests are under way shares a commit.

use super::{FREE, FREE_MANY, TAKE, TAKE_MANY};
use crate::connection::Connection;
use crate::error::was_refused;
use crate::queue::batch::{BATCH_AT_MOST, unknown};
use futures_util::future::join_all;
use lockkeeper_core::Result;
use lockkeeper_core::engine::{Batch, Claim, ClaimId, LockName};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio_postgres::types::ToSql;

/// What became of an attempt.
pub(super) enum Outcome {
    /// The claim has the lock, with this token.
    Taken(i64),
    /// Another claim has it that had not expired.
    Held,
    /// Another claim has it, had it a moment ago, or takes it just now.
    LeftOut,
}

/// One claim that is tried.
pub(super) struct Taking {
    pub(super) claim: Claim,
    /// The thread of the caller.
    pub(super) thread: String,
}

/// Takes rows.
pub(super) struct Takes(pub(super) Arc<Connection>);

impl Takes {
    /// Takes the row or one that has expired, after those that are taking it now.
    pub(super) async fn one(connection: &Connection, Taking { claim, thread }: &Taking) -> Result<Outcome> {
        let (name, id, holder) = (claim.name.as_str(), claim.id.to_string(), &claim.holder);
        let (process, ttl_ms) = (i64::from(holder.pid), claim.ttl.as_millis() as f64);
        let params: [&(dyn ToSql + Sync); 7] =
            [&name, &id, &holder.text, &holder.host, &process, thread, &ttl_ms];
        let taken = connection.rows(TAKE, &params, "take the lock").await?;
        Ok(taken.first().map_or(Outcome::Held, |row| Outcome::Taken(row.get(0))))
    }

    /// Takes those rows that are not there; says which.
    async fn many(&self, takings: &[Taking]) -> Result<HashMap<ClaimId, i64>> {
        let claims = || takings.iter().map(|taking| &taking.claim);
        let names: Vec<&str> = claims().map(|claim| claim.name.as_str()).collect();
        let ids: Vec<String> = claims().map(|claim| claim.id.to_string()).collect();
        let texts: Vec<&str> = claims().map(|claim| claim.holder.text.as_str()).collect();
        let hosts: Vec<&str> = claims().map(|claim| claim.holder.host.as_str()).collect();
        let processes: Vec<i64> = claims().map(|claim| claim.holder.pid.into()).collect();
        let threads: Vec<&str> = takings.iter().map(|taking| taking.thread.as_str()).collect();
        let ttls_ms: Vec<f64> = claims().map(|claim| claim.ttl.as_millis() as f64).collect();
        let params: [&(dyn ToSql + Sync); 7] = [&names, &ids, &texts, &hosts, &processes, &threads, &ttls_ms];
        let rows = self.0.rows(TAKE_MANY, &params, "take locks").await?;
        Ok(rows.iter().filter_map(|row| Some((row.get::<_, &str>(0).parse().ok()?, row.get(1)))).collect())
    }
}

impl Batch for Takes {
    type Request = Taking;
    type Reply = Result<Outcome>;

    fn at_most(&self) -> usize {
        BATCH_AT_MOST
    }

    async fn send(&self, takings: &[Taking]) -> Vec<Result<Outcome>> {
        if let [taking] = takings {
            return vec![Self::one(&self.0, taking).await];
        }
        match self.many(takings).await {
            Ok(tokens) => {
                let tokens = takings.iter().map(|taking| tokens.get(&taking.claim.id));
                tokens
                    .map(|token| Ok(token.map_or(Outcome::LeftOut, |token| Outcome::Taken(*token))))
                    .collect()
            }
            // One must not fail for the others. What was taken all the same is found by the claim's id (Law 4).
            Err(_) => join_all(takings.iter().map(|taking| Self::one(&self.0, taking))).await,
        }
    }

    fn abandoned(&self, taking: Taking, outcome: Result<Outcome>) {
        // Its leave may have been sent before the batch was.
        if matches!(outcome, Ok(Outcome::Taken(_))) {
            let leaving = Leaving { name: taking.claim.name.clone(), id: taking.claim.id };
            let connection = Arc::clone(&self.0);
            tokio::spawn(async move { Frees::one(&connection, &leaving).await });
        }
    }
}

/// One claim that leaves.
pub(super) struct Leaving {
    pub(super) name: LockName,
    pub(super) id: ClaimId,
}

/// Frees rows.
pub(super) struct Frees(pub(super) Arc<Connection>);

impl Frees {
    /// Whether the claim had the row, and has left.
    pub(super) async fn one(connection: &Connection, Leaving { name, id }: &Leaving) -> Result<bool> {
        let rows = connection.rows(FREE, &[&name.as_str(), &id.to_string()], "free the lock").await?;
        Ok(!rows.is_empty())
    }

    /// Those that had a row, and have left.
    async fn many(&self, leavings: &[Leaving]) -> Result<HashSet<ClaimId>> {
        let names: Vec<&str> = leavings.iter().map(|leaving| leaving.name.as_str()).collect();
        let ids: Vec<String> = leavings.iter().map(|leaving| leaving.id.to_string()).collect();
        let rows = self.0.rows(FREE_MANY, &[&names, &ids], "free locks").await?;
        Ok(rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect())
    }
}

impl Batch for Frees {
    type Request = Leaving;
    type Reply = Result<bool>;

    fn at_most(&self) -> usize {
        BATCH_AT_MOST
    }

    async fn send(&self, leavings: &[Leaving]) -> Vec<Result<bool>> {
        if let [leaving] = leavings {
            return vec![Self::one(&self.0, leaving).await];
        }
        match self.many(leavings).await {
            Ok(left) => leavings.iter().map(|leaving| Ok(left.contains(&leaving.id))).collect(),
            // One must not fail for the others.
            Err(error) if was_refused(&error) => {
                join_all(leavings.iter().map(|leaving| Self::one(&self.0, leaving))).await
            }
            Err(error) => leavings.iter().map(|_| Err(unknown("free the lock", &error))).collect(),
        }
    }
}
