//! What operators see: every lock with its claims in order, those of other clients included; and eviction.

use crate::error::RequestError;
use crate::generated::range_request::{SortOrder, SortTarget};
use crate::generated::{KeyValue, RangeRequest};
use crate::keys::{self, Span};
use crate::queue::{Parts, delete_created_at, deleted};
use crate::value::Value;
use futures_util::future::join_all;
use lockkeeper_core::engine::{ClaimId, LockName};
use lockkeeper_core::{ClaimView, Demand, Holder, LockView, Result, Standing, Token};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// The number of keys that are read at once.
const PAGE: i64 = 1000;

/// The most leases whose remaining time is read.
const LEASES: usize = 100;

const DOING: &str = "list locks";

impl Parts {
    pub(crate) async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let mut locks: BTreeMap<String, Vec<KeyValue>> = BTreeMap::new();
        let Span { mut start, end } = Span::prefix(prefix.as_bytes());
        loop {
            let request = RangeRequest {
                key: start,
                range_end: end.clone(),
                limit: PAGE,
                sort_order: SortOrder::Ascend.into(),
                sort_target: SortTarget::Key.into(),
                ..RangeRequest::default()
            };
            let page = self.client.range(&request).await.map_err(|error| error.into_error(DOING))?;
            let more = page.more;
            // Pages come in the order of keys; a lock's claims may go on after a lock below it, so the cut by
            // number is made at the end.
            start = page.kvs.last().map(|last| [&last.key[..], &[0]].concat()).unwrap_or_default();
            for found in page.kvs {
                if let Some(name) = lock_of(&found) {
                    locks.entry(name).or_default().push(found);
                }
            }
            if !more {
                break;
            }
        }
        let locks: Vec<_> = locks.into_iter().take(at_most).collect();
        let left = self.time_left(locks.iter().flat_map(|(_, claims)| claims)).await;
        Ok(locks.into_iter().map(|(name, claims)| view(name, claims, &left)).collect())
    }

    /// How long each lease lives without another keep-alive.
    async fn time_left(&self, claims: impl Iterator<Item = &KeyValue>) -> HashMap<i64, Duration> {
        let leases: HashSet<i64> = claims.map(|found| found.lease).filter(|lease| *lease != 0).collect();
        let reads = leases.into_iter().take(LEASES).map(async |lease| {
            let seconds = self.client.lease_time_to_live(lease, false).await.ok()?.ttl;
            Some((lease, Duration::from_secs(seconds.try_into().ok()?)))
        });
        join_all(reads).await.into_iter().flatten().collect()
    }

    /// The claim with this id, ours or another client's whose name for it is this number.
    pub(crate) async fn find(&self, name: &LockName, id: ClaimId) -> Result<Option<KeyValue>, RequestError> {
        let queue = keys::queue(name);
        let request = RangeRequest { key: queue.start, range_end: queue.end, ..RangeRequest::default() };
        let is_meant = |found: &KeyValue| {
            keys::parse(&found.key).is_some_and(|parsed| {
                let its_id = id_of(&parsed, Value::decode(&found.value).as_ref());
                parsed.name == name.as_str() && its_id.parse::<ClaimId>().is_ok_and(|found| found == id)
            })
        };
        Ok(self.client.range(&request).await?.kvs.into_iter().find(is_meant))
    }

    /// Removes the claim with this id.
    pub(crate) async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let failed = |error: RequestError| error.into_error("evict a claim");
        let Some(meant) = self.find(name, id).await.map_err(failed)? else { return Ok(false) };
        let request = delete_created_at(&meant.key, meant.create_revision);
        let reply = deleted(self.client.txn_of(name, None, &request).await).map_err(failed)?;
        Ok(reply.retried || reply.value)
    }
}

/// The lock in whose queue the key stands; `None` if it is no claim. Another client's claim is known by its
/// lease: a key without one is data of some application.
fn lock_of(found: &KeyValue) -> Option<String> {
    let parsed = keys::parse(&found.key)?;
    (parsed.ours || found.lease != 0).then(|| parsed.name.to_owned())
}

/// Our claims have their id in the value, others in the key.
fn id_of(parsed: &keys::Parsed<'_>, value: Option<&Value>) -> String {
    value.filter(|_| parsed.ours).map_or_else(|| parsed.id.to_owned(), |value| value.claim.clone())
}

pub(crate) fn view(name: String, mut claims: Vec<KeyValue>, left: &HashMap<i64, Duration>) -> LockView {
    claims.sort_unstable_by_key(|found| found.create_revision);
    let views = claims.iter().filter_map(|found| {
        let parsed = keys::parse(&found.key)?;
        let value = Value::decode(&found.value).filter(|_| parsed.ours);
        let age = value.as_ref().map(Value::age);
        let held_for = value.as_ref().and_then(Value::held_for);
        let id = id_of(&parsed, value.as_ref());
        let (demand, holder) = match value {
            Some(value) => (value.demand, value.holder),
            None => (Demand::Exclusive, foreign_holder(found)),
        };
        Some(
            ClaimView::new(id, Standing::Waits, demand, holder)
                .token(Some(Token(found.create_revision.unsigned_abs())))
                .age(age)
                .held_for(held_for)
                .ttl_left(left.get(&found.lease).copied())
                .foreign(!parsed.ours),
        )
    });
    LockView::from_queue(name, views.collect())
}

fn foreign_holder(found: &KeyValue) -> Holder {
    let text = String::from_utf8_lossy(&found.value);
    let text =
        if text.is_empty() { format!("etcd client with lease {:x}", found.lease) } else { text.into_owned() };
    Holder { text, host: String::new(), pid: 0 }
}
