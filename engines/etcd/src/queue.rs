//! The queue on etcd: keys in the order of their create revisions, bound to the keeper's lease.

use crate::claims::Claims;
use crate::client::Client;
use crate::config::Config;
use crate::generated::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::generated::request_op::Request;
use crate::generated::response_op::Response;
use crate::generated::{
    Compare, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use crate::keys::{Key, Span};
use crate::lease::Lease;
use crate::leave::Graves;
use crate::look;
use crate::stream;
use crate::together::Together;
use crate::value::Value;
use crate::watches::Watches;
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, Clock, Crowded, Demand, Joined, Kept, Left, LockName, LockView, Place,
    Queue, Renewal, Result, background,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// At most so many operations go into one transaction: etcd's own default limit.
const OPERATIONS: usize = 128;

/// A waiter looks at the queue this often even if nothing wakes it, in case an event was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(60);

/// One keeper's connection to etcd.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) parts: Arc<Parts>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What the background tasks share with the keeper.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) client: Arc<Client>,
    pub(crate) together: Together,
    pub(crate) lease: Arc<Lease>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) claims: Claims,
    pub(crate) crowded: Crowded,
    pub(crate) graves: Graves,
    /// The last search for evicted claims was not answered in time.
    search_is_slow: AtomicBool,
}

impl Etcd {
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let client = Arc::new(Client::new(config));
        let lease = Arc::new(Lease::grant(Arc::clone(&client)).await?);
        let watches = Arc::new(Watches::default());
        let parts = Arc::new(Parts {
            together: Together::new(&client),
            client: Arc::clone(&client),
            lease: Arc::clone(&lease),
            watches: Arc::clone(&watches),
            claims: Claims::default(),
            crowded: Crowded::default(),
            graves: Graves::default(),
            search_is_slow: AtomicBool::new(false),
        });
        let house = background::handle();
        let tasks = vec![
            house.spawn(lease.run()),
            house.spawn(stream::run(client, watches)),
            house.spawn(drop_the_neglected(Arc::clone(&parts))),
        ];
        Ok(Self { parts, tasks: Mutex::new(tasks) })
    }

    /// Ends the background tasks; says whether this call was the first.
    fn stop(&self) -> bool {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
        !tasks.is_empty()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.stop() {
            let parts = Arc::clone(&self.parts);
            background::handle().spawn(async move { parts.revoke().await });
        }
    }
}

/// The lease keeps every claim alive, also one that nobody renews any more. So whatever was not renewed for
/// longer than its TTL is taken out here, as an engine with a deadline per claim would do.
async fn drop_the_neglected(parts: Arc<Parts>) {
    loop {
        tokio::time::sleep(parts.lease.slack() / 4).await;
        for claim in parts.claims.neglected() {
            tracing::warn!(lock = %claim.name, claim = %claim.id, "etcd: the claim was not renewed in time; it leaves");
            if let Err(error) = parts.leave(&claim).await {
                tracing::debug!(%error, "etcd: could not remove a neglected claim; trying again");
            }
        }
    }
}

impl Parts {
    /// Ends the lease and with it whatever is still bound to it.
    async fn revoke(&self) {
        if let Err(error) = self.client.lease_revoke(self.lease.id()).await {
            tracing::debug!(%error, "etcd: could not revoke the lease; it will expire");
        }
    }

    /// The claims of these that were evicted, as far as the server says so in time. A server that is too busy for
    /// that does not cost the locks: the lease keeps them, and the next renewal searches again.
    async fn evicted(&self, lease: i64, keys: &[(ClaimId, Key)]) -> Vec<ClaimId> {
        if self.search_is_slow.swap(true, SeqCst) {
            self.search_is_slow.store(false, SeqCst);
            return Vec::new();
        }
        let answer = tokio::time::timeout(self.lease.ttl() / 5, self.gone(lease, keys)).await;
        match answer {
            Ok(Ok(gone)) => {
                self.search_is_slow.store(false, SeqCst);
                gone
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "etcd: could not search for evicted claims");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// The claims of these that are not there any more, as of now. Usually that is one request: the lease knows its
    /// keys. The leader may not have come as far yet as the server that answered a join, so a key that it does not know
    /// is read itself before it counts as gone.
    async fn gone(&self, lease: i64, keys: &[(ClaimId, Key)]) -> Result<Vec<ClaimId>> {
        let known = self.client.lease_keys(lease).await.map_err(|failure| failure.into_error("renew"))?;
        let known: HashSet<Key> = known.into_iter().collect();
        let unknown: Vec<_> = keys.iter().filter(|(_, key)| !known.contains(key)).collect();
        let mut gone = Vec::new();
        for part in unknown.chunks(OPERATIONS) {
            let gets = part.iter().map(|(_, key)| look::range_op(get(key, true)));
            let request = TxnRequest { success: gets.collect(), ..TxnRequest::default() };
            let answer = self.client.txn(&request).await.map_err(|failure| failure.into_error("renew"))?;
            let found = ranges(answer.value);
            let missing = part.iter().zip(found).filter(|(_, answer)| answer.kvs.is_empty());
            gone.extend(missing.map(|((id, _), _)| *id));
        }
        Ok(gone)
    }
}

impl Queue for Etcd {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, _asked: Duration) -> Duration {
        self.parts.lease.ttl()
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        self.parts.join(claim).await
    }

    async fn changed(&self, claim: &Claim, place: Place, _seen: Ahead) -> Result<Ahead> {
        let entry = self.parts.claims.get(claim.id).ok_or_else(|| claim.gone())?;
        if let Some(look) = &entry.look {
            // Its own key, too, so that an evicted waiter learns of it at once.
            let keys = look.blockers.iter().chain([&entry.key]);
            let watching = self.parts.watches.watch(keys, look.revision);
            let _ = tokio::time::timeout(LOOK_ANYWAY, watching.news()).await;
        }
        let look = self.parts.look(claim, &entry.key, place.0 as i64).await?;
        let ahead = Ahead(look.ahead);
        self.parts.claims.change(claim.id, |entry| entry.look = Some(look));
        Ok(ahead)
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let lease = self.parts.lease.fresh().await?;
        let slack = self.parts.lease.slack();
        let (mut dead, mut keys) = (Vec::new(), Vec::new());
        for Renewal { claim, ttl } in renewals {
            match self.parts.claims.get(claim.id) {
                Some(entry) if entry.lease == lease.id => {
                    let neglected_at = lease.as_of.plus(*ttl + slack);
                    self.parts.claims.change(claim.id, |entry| entry.neglected_at = neglected_at);
                    keys.push((claim.id, entry.key));
                }
                _ => dead.push(claim.id),
            }
        }
        dead.extend(self.parts.evicted(lease.id, &keys).await);
        Ok(Kept { dead, as_of: Some(lease.as_of) })
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.parts.leave(claim).await
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let entry = self.parts.claims.get(claim.id).ok_or_else(|| claim.gone())?;
        let place = entry.place.ok_or_else(|| claim.gone())?;
        let value = Value::encode(claim, to, entry.since_ms);
        // The lease stays, and so does the place: it is the create revision.
        let put = PutRequest { key: entry.key.clone(), value, ignore_lease: true, ..PutRequest::default() };
        let request = TxnRequest {
            compare: vec![created_at(Span::key(&entry.key), place)],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![],
        };
        let answer =
            self.parts.client.txn(&request).await.map_err(|failure| failure.into_error("downgrade"))?;
        if answer.value.succeeded { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.parts.list(prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.parts.evict(name, id).await
    }

    async fn close(&self) {
        if self.stop() {
            self.parts.revoke().await;
        }
    }
}

/// That the key was created at this revision; zero for 'is not there', which also goes for a whole span.
pub(crate) fn created_at(span: Span, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: span.start,
        range_end: span.end,
        target_union: Some(TargetUnion::CreateRevision(revision)),
    }
}

/// A read of one key.
pub(crate) fn get(key: &Key, keys_only: bool) -> RangeRequest {
    RangeRequest { key: key.clone(), keys_only, ..RangeRequest::default() }
}

/// The answers to the reads of a transaction, in order.
pub(crate) fn ranges(response: TxnResponse) -> Vec<RangeResponse> {
    let answers = response.responses.into_iter().filter_map(|part| match part.response {
        Some(Response::ResponseRange(range)) => Some(range),
        _ => None,
    });
    answers.collect()
}
