//! Joins and leaves of many tasks over one connection: what comes while requests are under way shares a commit.
//!
//! Claims travel in the order of their names and places, in which renewals lock rows as well, so that no two statements
//! wait for each other.

use super::{JOIN, JOIN_MANY, LEAVE, LEAVE_MANY, milliseconds, number};
use crate::connection::Connection;
use crate::error::{ENGINE, was_refused};
use futures_util::future::join_all;
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{Batch, Batcher, Claim, ClaimId, LockName};
use lockkeeper_core::{Demand, Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// One claim that joins.
pub(crate) struct Joining(pub(crate) Claim);

/// What its join found.
pub(crate) struct Found {
    pub(crate) place: u64,
    pub(crate) ahead: u64,
    pub(crate) free_in: Option<Duration>,
    /// The demand of the oldest claim, if it is of another shape: then nothing was appended.
    pub(crate) ruling: Option<String>,
}

impl Found {
    fn read(row: &Row) -> Self {
        let positive = |number: i64| number.max(0).unsigned_abs();
        Self {
            place: positive(row.get::<_, Option<i64>>("o_place").unwrap_or(0)),
            ahead: positive(row.get("o_ahead")),
            free_in: row
                .get::<_, Option<i64>>("o_free_in_ms")
                .map(|time| Duration::from_millis(positive(time))),
            ruling: row.get("o_ruling"),
        }
    }
}

/// Appends claims.
pub(crate) struct Joins {
    pub(crate) connection: Arc<Connection>,
    /// Where this keeper listens.
    pub(crate) channel: Arc<str>,
}

/// The number of permits, or 0 for a mutex or read-write lock: what everybody must agree on.
fn permits(demand: Demand) -> i64 {
    match demand.shape() {
        Shape::Permits { of } => of.into(),
        Shape::ReadWrite => 0,
    }
}

impl Joins {
    async fn one(&self, Joining(claim): &Joining) -> Result<Found> {
        let demand = claim.demand;
        let connection = &self.connection;
        let row = connection
            .row(
                JOIN,
                &[
                    &claim.name.as_str(),
                    &claim.id.to_string(),
                    &demand.to_string(),
                    &number(demand.weight()),
                    &number(demand.limit()),
                    &permits(demand),
                    &claim.holder.encode(),
                    &&*self.channel,
                    &milliseconds(claim.ttl),
                ],
                "join the queue",
            )
            .await?;
        Ok(Found::read(&row))
    }

    async fn many(&self, joinings: &[Joining]) -> Result<HashMap<ClaimId, Found>> {
        let mut claims: Vec<&Claim> = joinings.iter().map(|Joining(claim)| claim).collect();
        claims.sort_by_key(|claim| claim.name.as_str());
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        let ids: Vec<String> = claims.iter().map(|claim| claim.id.to_string()).collect();
        let demands: Vec<String> = claims.iter().map(|claim| claim.demand.to_string()).collect();
        let weights: Vec<i64> = claims.iter().map(|claim| number(claim.demand.weight())).collect();
        let rooms: Vec<i64> = claims.iter().map(|claim| number(claim.demand.limit())).collect();
        let permits: Vec<i64> = claims.iter().map(|claim| permits(claim.demand)).collect();
        let holders: Vec<String> = claims.iter().map(|claim| claim.holder.encode()).collect();
        let ttls: Vec<i64> = claims.iter().map(|claim| milliseconds(claim.ttl)).collect();
        let params: [&(dyn ToSql + Sync); 9] =
            [&names, &ids, &demands, &weights, &rooms, &permits, &holders, &&*self.channel, &ttls];
        let rows = self.connection.rows(JOIN_MANY, &params, "join queues").await?;
        Ok(rows
            .iter()
            .filter_map(|row| Some((row.get::<_, &str>("id").parse().ok()?, Found::read(row))))
            .collect())
    }
}

impl Batch for Joins {
    type Request = Joining;
    type Reply = Result<Found>;

    fn at_most(&self) -> usize {
        BATCH_AT_MOST
    }

    async fn send(&self, joinings: &[Joining]) -> Vec<Result<Found>> {
        if let [joining] = joinings {
            return vec![self.one(joining).await];
        }
        match self.many(joinings).await {
            Ok(mut found) => {
                let found = joinings.iter().map(|Joining(claim)| found.remove(&claim.id));
                found.map(|found| found.ok_or_else(|| missing("join the queue"))).collect()
            }
            // One must not fail for the others. What was appended all the same is found by the claim's id (Law 4).
            Err(_) => join_all(joinings.iter().map(|joining| self.one(joining))).await,
        }
    }

    fn abandoned(&self, Joining(claim): Joining, found: Result<Found>) {
        // Its leave may have been sent before the batch was.
        if let Ok(Found { ruling: None, place, .. }) = found {
            let leaving = Leaving { name: claim.name.clone(), place: number(place), id: claim.id };
            let connection = Arc::clone(&self.connection);
            tokio::spawn(async move { Leaves::one(&connection, &leaving).await });
        }
    }
}

fn missing(doing: &'static str) -> Error {
    Error::permanent(ENGINE, doing, "the server did not return the claim")
}

/// One claim that leaves.
pub(crate) struct Leaving {
    pub(crate) name: LockName,
    /// Its place, or 0 if it is not known.
    pub(crate) place: i64,
    pub(crate) id: ClaimId,
}

/// Removes claims.
pub(crate) struct Leaves(pub(crate) Arc<Connection>);

impl Leaves {
    /// Whether the claim was there.
    pub(crate) async fn one(connection: &Connection, leaving: &Leaving) -> Result<bool> {
        let Leaving { name, place, id } = leaving;
        let row = connection.row(LEAVE, &[&name.as_str(), place, &id.to_string()], "leave the queue").await?;
        Ok(row.get(0))
    }

    /// Those that were there.
    async fn many(&self, leavings: &[Leaving]) -> Result<HashSet<ClaimId>> {
        let mut sorted: Vec<&Leaving> = leavings.iter().collect();
        sorted.sort_by_key(|leaving| (leaving.name.as_str(), leaving.place));
        let names: Vec<&str> = sorted.iter().map(|leaving| leaving.name.as_str()).collect();
        let places: Vec<i64> = sorted.iter().map(|leaving| leaving.place).collect();
        let ids: Vec<String> = sorted.iter().map(|leaving| leaving.id.to_string()).collect();
        let rows = self.0.rows(LEAVE_MANY, &[&names, &places, &ids], "leave queues").await?;
        Ok(rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect())
    }
}

impl Batch for Leaves {
    type Request = Leaving;
    type Reply = Result<bool>;

    fn at_most(&self) -> usize {
        BATCH_AT_MOST
    }

    async fn send(&self, leavings: &[Leaving]) -> Vec<Result<bool>> {
        let one_by_one = || join_all(leavings.iter().map(|leaving| Self::one(&self.0, leaving)));
        // Together they are found by their places, in whose order renewals lock rows as well.
        if leavings.len() == 1 || leavings.iter().any(|leaving| leaving.place == 0) {
            return one_by_one().await;
        }
        match self.many(leavings).await {
            Ok(left) => leavings.iter().map(|leaving| Ok(left.contains(&leaving.id))).collect(),
            // One must not fail for the others.
            Err(error) if was_refused(&error) => one_by_one().await,
            Err(error) => leavings.iter().map(|_| Err(unknown("leave the queue", &error))).collect(),
        }
    }
}

/// They may have left: sent again, each would get the reply that its hold was lost.
pub(crate) fn unknown(doing: &'static str, error: &Error) -> Error {
    Error::temporary(ENGINE, doing, error.to_string())
}

/// A connection with what is sent over it together: joins share a commit, and so do leaves.
pub(crate) struct Batched<J: Batch, L: Batch> {
    pub(crate) connection: Arc<Connection>,
    pub(crate) joins: Batcher<J>,
    pub(crate) leaves: Batcher<L>,
}

impl<J: Batch, L: Batch> Batched<J, L> {
    /// To be called on the runtime of the connection. One request is under way and the next one follows it at once; what
    /// comes meanwhile goes together.
    pub(crate) fn new(connection: Arc<Connection>, joins: J, leaves: L) -> Self {
        const AT_ONCE: usize = 2;
        let runtime = Handle::current();
        let joins = Batcher::new(joins, runtime.clone(), AT_ONCE);
        Self { connection, joins, leaves: Batcher::new(leaves, runtime, AT_ONCE) }
    }
}

impl<J: Batch, L: Batch> lockkeeper_core::engine::Connection for Batched<J, L> {
    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }
}

/// How many joins or leaves travel together at most. Each lock needs room in the server's table of locks until the commit,
/// of which it has some thousands for everybody.
pub(crate) const BATCH_AT_MOST: usize = 32;

/// The error of a batch whose runtime has ended.
pub(crate) fn runtime_ended(doing: &'static str) -> Error {
    Error::temporary(ENGINE, doing, "the runtime of the connection has ended")
}

/// The claims whose join was sent and not answered, each with its connection: a leave must not overtake the join, and does
/// not if it follows it over the same connection.
pub(crate) struct Unanswered<C>(Mutex<HashMap<ClaimId, Arc<C>>>);

impl<C> Default for Unanswered<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Unanswered<C> {
    fn map(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the join is sent.
    pub(crate) fn insert(&self, id: ClaimId, connection: &Arc<C>) {
        self.map().insert(id, Arc::clone(connection));
    }

    /// The join was answered, or a leave follows it over this connection.
    pub(crate) fn remove(&self, id: ClaimId) -> Option<Arc<C>> {
        self.map().remove(&id)
    }
}
