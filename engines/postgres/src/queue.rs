//! The queue style: a row per claim, and one function call for each of the seam's verbs.

pub(crate) mod batch;

use self::batch::{Batched, Unanswered, runtime_ended};
use self::batch::{Joining, Joins, Leaves, Leaving};
use crate::config::Settings;
use crate::connection::{Connection, Messages, Purpose};
use crate::error::ENGINE;
use crate::wake;
use crate::{POOLED_QUEUE, QUEUE};
use lockkeeper_core::engine::{
    Ahead, Attached, Claim, ClaimId, Clock, Connections, Joined, Kept, Left, Lifeline, LockName, Place,
    Queue, Renewal, background, grant,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use lockkeeper_sql_common::{ClaimRow, Waiters, lock_views};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(crate) const STATEMENTS: &[&str] = &[
    "SELECT o_place, o_ahead, o_free_in_ms, o_ruling FROM lockkeeper_join(\
     $1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text, $8::text, $9::bigint)",
    "SELECT id, o_place, o_ahead, o_free_in_ms, o_ruling FROM lockkeeper_join_many(\
     $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text, $9::bigint[])",
    "SELECT lockkeeper_leave($1::text, $2::bigint, $3::text)",
    "SELECT lockkeeper_leave_many($1::text[], $2::bigint[], $3::text[])",
    include_str!("sql/queue_keep.sql"),
    include_str!("sql/queue_look.sql"),
    "SELECT lockkeeper_sweep(name) FROM unnest($1::text[]) AS name",
    "SELECT lockkeeper_shrink($1::text, $2::bigint, $3::text, $4::text, $5::bigint)",
    include_str!("sql/queue_list.sql"),
    "SELECT lockkeeper_clean(interval '1 day')",
    "UPDATE lockkeeper_claims SET asked = true \
     WHERE name = $1::text AND id = $2::text AND expires_at > clock_timestamp() RETURNING pg_notify(channel, '?' || id)",
];
const JOIN: usize = 0;
const JOIN_MANY: usize = 1;
const LEAVE: usize = 2;
const LEAVE_MANY: usize = 3;
const KEEP: usize = 4;
pub(crate) const LOOK: usize = 5;
pub(crate) const SWEEP: usize = 6;
const SHRINK: usize = 7;
const LIST: usize = 8;
pub(crate) const CLEAN: usize = 9;
const ASK: usize = 10;

pub(crate) const RAISE_TOKENS: &str = "SELECT lockkeeper_raise_tokens();";

/// The connection of a runtime.
pub(crate) type QueueConnection = Batched<Joins, Leaves>;

/// A fair queue in a table.
pub(crate) struct TableQueue {
    connections: Arc<Connections<QueueConnection>>,
    waiters: Arc<Waiters>,
    /// What all claims are tied to, so that a message ends a hold.
    claims: Lifeline,
    unanswered: Unanswered<QueueConnection>,
    abilities: Abilities,
}

impl TableQueue {
    /// Connects, and starts what wakes waiters.
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self> {
        let (sender, messages) = tokio::sync::mpsc::unbounded_channel();
        let channel: Arc<str> = format!("lockkeeper_{}", ClaimId::random()).into();
        let (is_pooled, look) = (settings.pooled, settings.limits.look);
        let waiters = Arc::new(if is_pooled { Waiters::polling() } else { Waiters::new(look) });
        let connections = Arc::new(Connections::new(move || {
            // Behind a pooler nobody can listen.
            let messages = (!settings.pooled).then(|| sender.clone());
            open(Arc::clone(&settings), Arc::clone(&channel), messages)
        }));
        connections.background().await?;
        let claims = Lifeline::new();
        let listen = wake::listen(messages, Arc::clone(&connections), Arc::clone(&waiters), claims.clone());
        background::handle().spawn(listen);
        background::handle().spawn(wake::look_after(Arc::clone(&connections), Arc::clone(&waiters)));
        background::handle().spawn(wake::clean(Arc::clone(&connections), Arc::clone(&waiters)));
        let abilities = if is_pooled { POOLED_QUEUE } else { QUEUE };
        Ok(Self { connections, waiters, claims, unanswered: Unanswered::default(), abilities })
    }

    /// The claim's place, or 0 if it is not known: another process's claim, or one whose join was not answered.
    fn place_of(&self, id: ClaimId) -> i64 {
        self.waiters.find(id).map_or(0, |waiter| number(waiter.place.load(SeqCst)))
    }

    async fn remove(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.claims.untie(id);
        let leaving = || Leaving { name: name.clone(), place: self.place_of(id), id };
        let mut left = None;
        if let Some(connection) = self.unanswered.remove(id) {
            left = Leaves::one(&connection.connection, &leaving()).await.ok();
        }
        let left = match left {
            Some(left) => left,
            // Also if that connection does not reply: then its join is over, or follows the leave that it was just sent.
            None => {
                let connection = self.connections.foreground().await?;
                connection
                    .leaves
                    .request(leaving())
                    .await
                    .unwrap_or_else(|| Err(runtime_ended("leave the queue")))?
            }
        };
        self.waiters.forget(id);
        self.waiters.left(name);
        Ok(left)
    }

    fn close(&self) {
        self.waiters.close();
        self.connections.close();
    }
}

/// Opens the connection of the runtime that polls this. The background's also listens.
async fn open(settings: Arc<Settings>, channel: Arc<str>, messages: Messages) -> Result<QueueConnection> {
    let connection = open_table(&settings, STATEMENTS, Some((&channel, messages))).await?;
    let joins = Joins { connection: Arc::clone(&connection), channel };
    let leaves = Leaves(Arc::clone(&connection));
    Ok(Batched::new(connection, joins, leaves))
}

/// A connection for claims in a table. That of the background listens on the channel, if there is one.
pub(crate) async fn open_table(
    settings: &Arc<Settings>,
    statements: &'static [&'static str],
    listens: Option<(&str, Messages)>,
) -> Result<Arc<Connection>> {
    let is_background = background::caller().is_none();
    let limit = if is_background { settings.limits.renewal } else { settings.limits.request };
    let limit_ms = limit.as_millis().max(1);
    let mut purpose = Purpose {
        statements,
        settings: format!("SET statement_timeout = {limit_ms}; SET lock_timeout = {limit_ms};"),
        start: RAISE_TOKENS.into(),
        ..Purpose::default()
    };
    if let Some((channel, Some(messages))) = listens
        && is_background
    {
        purpose.start += &format!("LISTEN {channel};");
        purpose.messages = Some(messages);
    }
    Connection::open(settings, &purpose, limit).await.map(Arc::new)
}

fn number(weight: u64) -> i64 {
    i64::try_from(weight).unwrap_or(i64::MAX)
}

pub(crate) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Queue for TableQueue {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let waiter = self.waiters.enter(claim);
        let connection = self.connections.foreground().await?;
        self.unanswered.insert(claim.id, &connection);
        let reply = connection.joins.request(Joining(claim.clone())).await;
        let found = reply.unwrap_or_else(|| Err(runtime_ended("join the queue")))?;
        self.unanswered.remove(claim.id);
        if let Some(ruling) = found.ruling {
            self.waiters.forget(claim.id);
            let ruling: Result<Demand, String> = ruling.parse();
            let ruling = ruling.map_err(|error| Error::permanent(ENGINE, "read the oldest claim", error))?;
            claim.check_shape(ruling.shape())?;
        }
        waiter.place.store(found.place, SeqCst);
        if !grant::fits(found.ahead, claim.demand.weight(), claim.demand.limit()) {
            self.waiters.waits(&waiter, found.free_in);
        }
        let (place, token, ahead) = (Place(found.place), Token(found.place), Ahead(found.ahead));
        Ok(Joined { place, token, ahead, lifeline: Some(self.claims.clone()) })
    }

    async fn changed(&self, claim: &Claim, _: Place, seen: Ahead) -> Result<Ahead> {
        self.waiters.changed(claim, seen).await
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let names: Vec<&str> = renewals.iter().map(|renewal| renewal.claim.name.as_str()).collect();
        let places: Vec<i64> = renewals.iter().map(|renewal| self.place_of(renewal.claim.id)).collect();
        let ids: Vec<String> = renewals.iter().map(|renewal| renewal.claim.id.to_string()).collect();
        let ttls: Vec<i64> = renewals.iter().map(|renewal| milliseconds(renewal.ttl)).collect();
        let held: Vec<Option<i64>> =
            renewals.iter().map(|renewal| renewal.held_for.map(milliseconds)).collect();
        let connection = self.connections.background().await?;
        let rows = connection.connection.rows(KEEP, &[&names, &places, &ids, &ttls, &held], "renew").await?;
        Ok(kept(renewals, &rows))
    }

    async fn attach(&self, renewal: &Renewal, token: Token) -> Result<Option<Attached>> {
        // The place is the token, and renewals go by it.
        self.waiters.enter(&renewal.claim).place.store(token.0, SeqCst);
        let kept = self.keep(std::slice::from_ref(renewal)).await;
        let attached = kept.map(|kept| Attached::by_renewal(&kept));
        if !matches!(attached, Ok(Some(_))) {
            self.waiters.forget(renewal.claim.id);
        }
        attached
    }

    fn detached(&self, claim: &Claim) {
        self.claims.untie(claim.id);
        self.waiters.forget(claim.id);
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = self.remove(&claim.name, claim.id).await?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let connection = self.connections.foreground().await?;
        let (id, weight) = (claim.id.to_string(), number(to.weight()));
        let params: [&(dyn ToSql + Sync); 5] =
            [&claim.name.as_str(), &self.place_of(claim.id), &id, &to.to_string(), &weight];
        let row = connection.connection.row(SHRINK, &params, "downgrade").await?;
        if row.get(0) { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let connection = self.connections.foreground().await?;
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let rows = connection.connection.rows(LIST, &[&prefix, &at_most], "list locks").await?;
        Ok(lock_views(rows.iter().map(claim_row)))
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.remove(name, id).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let connection = self.connections.foreground().await?;
        let (name, id) = (name.as_str(), id.to_string());
        let rows = connection.connection.rows(ASK, &[&name, &id], "ask a holder to release").await?;
        Ok(!rows.is_empty())
    }

    async fn close(&self) {
        self.close();
    }
}

impl Drop for TableQueue {
    fn drop(&mut self) {
        self.close();
    }
}

/// What became of a renewal that returned these rows: the claims that are there, and whether somebody asks for each.
pub(crate) fn kept(renewals: &[Renewal], rows: &[Row]) -> Kept {
    let found: HashMap<&str, bool> = rows.iter().map(|row| (row.get(0), row.get("asked"))).collect();
    let mut kept = Kept::default();
    for id in renewals.iter().map(|renewal| renewal.claim.id) {
        match found.get(id.hex().as_str()) {
            Some(asked) => kept.asked.extend(asked.then_some(id)),
            None => kept.dead.push(id),
        }
    }
    kept
}

fn claim_row(row: &Row) -> ClaimRow {
    ClaimRow {
        name: row.get("name"),
        id: row.get("id"),
        demand: row.get("demand"),
        holder: row.get("holder"),
        token: row.get("place"),
        age_ms: row.get("age_ms"),
        held_ms: row.get("held_ms"),
        left_ms: row.get("left_ms"),
    }
}
