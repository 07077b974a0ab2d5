//! The queue on etcd: keys in the order of their create revisions, bound to the keeper's lease.

use crate::claims::{Claims, Entry};
use crate::config::Config;
use crate::error::RequestError;
use crate::generated::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::generated::request_op::Request;
use crate::generated::response_op::Response;
use crate::generated::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use crate::keys::{self, Key, Span};
use crate::lease::Lease;
use crate::leases::Leases;
use crate::look;
use crate::requests::{Client, Reply};
use crate::turns::Turns;
use crate::value::{self, Times, Value};
use crate::wake::{self, Watches};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use lockkeeper_core::engine::{
    Ahead, Attached, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Place, Queue, Renewal, background,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The most operations in one transaction: etcd's own default limit.
const OPERATIONS: usize = 128;

/// A waiter looks at the queue this often even if nothing wakes it, in case an event was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(60);

/// The number of neglected claims that leave at a time.
const LEAVING_AT_ONCE: usize = 64;

/// How long a tombstone stands at least: much longer than etcd itself lets a request wait.
const TOMBSTONE: Duration = Duration::from_secs(60);

/// How long one lease takes tombstones.
const TOMBSTONE_LEASE: Duration = Duration::from_secs(30);

/// One keeper's claims at etcd.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) parts: Arc<Parts>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What the background tasks share with the keeper.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) client: Arc<Client>,
    pub(crate) lease: Arc<Lease>,
    /// Those of claims with another TTL than the keeper's.
    pub(crate) leases: Leases,
    pub(crate) watches: Arc<Watches>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) turns: Turns,
    /// The lease of the tombstones. It is never kept alive, so they go by themselves.
    tombstone_lease: Mutex<Option<(i64, Instant)>>,
    /// The last search for evicted claims had no reply in time.
    search_is_slow: AtomicBool,
}

/// What a renewal sees besides the lease.
#[derive(Default)]
struct Seen {
    /// The claims that were evicted.
    gone: Vec<ClaimId>,
    /// The claims that somebody asks for.
    asked: Vec<ClaimId>,
}

impl Etcd {
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let client = Arc::new(Client::new(config));
        let lease = Arc::new(Lease::grant(Arc::clone(&client), client.times()).await?);
        let watches = Arc::new(Watches::default());
        let parts = Arc::new(Parts {
            client: Arc::clone(&client),
            lease: Arc::clone(&lease),
            leases: Leases::default(),
            watches: Arc::clone(&watches),
            claims: Arc::default(),
            turns: Turns::default(),
            tombstone_lease: Mutex::default(),
            search_is_slow: AtomicBool::new(false),
        });
        let runtime = background::handle();
        let tasks = vec![
            runtime.spawn(lease.run()),
            runtime.spawn(wake::run(client, watches)),
            runtime.spawn(drop_the_neglected(Arc::clone(&parts))),
        ];
        Ok(Self { parts, tasks: Mutex::new(tasks) })
    }

    /// Ends the background tasks; says whether this call was the first.
    fn stop(&self) -> bool {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
        self.parts.leases.stop();
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

/// The lease keeps every claim alive, also one that is not renewed any more. So whatever was not renewed for
/// longer than its TTL is taken out here, as an engine with a deadline per claim would do.
async fn drop_the_neglected(parts: Arc<Parts>) {
    loop {
        Clock::Boot.sleep(parts.lease.slack() / 4).await;
        // Together: after an outage there are as many as there were waiters, and the first of them holds up all others.
        let neglected = stream::iter(parts.claims.neglected());
        let leaving = neglected.for_each_concurrent(LEAVING_AT_ONCE, async |claim| {
            tracing::warn!(lock = %claim.name, claim = %claim.id, "etcd: the claim was not renewed in time; it leaves");
            if let Err(error) = parts.leave(&claim).await {
                tracing::debug!(%error, "etcd: could not remove a neglected claim; trying again");
            }
        });
        leaving.await;
    }
}

impl Parts {
    /// Ends the lease and with it whatever is still bound to it.
    async fn revoke(&self) {
        let leases = self.leases.take();
        for lease in leases.iter().chain([&self.lease]) {
            if let Err(error) = self.client.lease_revoke(lease.id()).await {
                tracing::debug!(%error, "etcd: could not revoke the lease; it will expire");
            }
        }
        self.client.close();
    }

    /// Keeps claims of one TTL alive.
    async fn keep(&self, keepers: &Lease, renewals: &[&Renewal]) -> Result<Kept> {
        let lease = keepers.fresh().await?;
        let slack = keepers.slack();
        let (mut dead, mut keys, mut grants) = (Vec::new(), Vec::new(), Vec::new());
        for renewal in renewals {
            let claim = &renewal.claim;
            match self.claims.get(claim.id) {
                Some(entry) if entry.lease == lease.id => {
                    let neglected_at = lease.as_of.plus(renewal.ttl + slack);
                    self.claims.change(claim.id, |entry| entry.neglected_at = neglected_at);
                    grants.extend(self.note_of_grant(&entry, renewal.held_for));
                    if self.choose_lease(&entry, renewal).await? {
                        keys.push((&**claim, entry.key));
                    } else {
                        dead.push(claim.id);
                    }
                }
                _ => dead.push(claim.id),
            }
        }
        let seen = self.search(keepers, &keys).await;
        dead.extend(seen.gone);
        self.note_grants(grants, keepers.ttl() / 5);
        Ok(Kept::new(dead).as_of(lease.as_of).asked(seen.asked))
    }

    /// Asks for a claim to be released. The request stands on the claim's own lease: there its keeper's renewal finds it, and
    /// with the lease it ends.
    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let failed = |error: RequestError| error.into_error("ask a holder to release");
        let Some(claim) = self.find(name, id).await.map_err(failed)? else { return Ok(false) };
        let put = PutRequest { key: keys::ask(name, id), lease: claim.lease, ..PutRequest::default() };
        let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
        let compare = vec![created_at(Span::key(&claim.key), claim.create_revision)];
        let request = TxnRequest { compare, success, failure: vec![] };
        Ok(self.client.txn(&request).await.map_err(failed)?.value.succeeded)
    }

    /// Deletes requests to release that nobody needs any more. What fails is tried at the next renewal, or ends with the lease.
    fn forget_asks(&self, asks: Vec<Key>) {
        let client = self.client.clone();
        background::handle().spawn(async move { join_all(asks.iter().map(|key| client.delete(key))).await });
    }

    /// The request that notes since when a claim holds, if it had to wait and the server has not confirmed that yet.
    fn note_of_grant(&self, entry: &Entry, held_for: Option<Duration>) -> Option<(ClaimId, TxnRequest)> {
        let (held_for, place) = (held_for?, entry.place?);
        if entry.grant_noted {
            return None;
        }
        let held_ms = u64::try_from(held_for.as_millis()).unwrap_or(u64::MAX);
        let granted_ms = entry.times.granted_ms.unwrap_or_else(|| value::now_ms().saturating_sub(held_ms));
        let times = Times { granted_ms: Some(granted_ms), ..entry.times };
        self.claims.change(entry.claim.id, |entry| entry.times = times);
        let value = Value::encode(&entry.claim, entry.claim.demand, times);
        let put = PutRequest { key: entry.key.clone(), value, ignore_lease: true, ..PutRequest::default() };
        // Only as it was put first: a downgrade since then must not be undone.
        let compare = Compare {
            target: CompareTarget::Mod.into(),
            target_union: Some(TargetUnion::ModRevision(place)),
            ..created_at(Span::key(&entry.key), place)
        };
        let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
        Some((entry.claim.id, TxnRequest { compare: vec![compare], success, failure: vec![] }))
    }

    /// Sends these beside the renewal, which does not wait for what is only shown. The next renewal sends again what had no
    /// reply.
    fn note_grants(&self, requests: Vec<(ClaimId, TxnRequest)>, limit: Duration) {
        if requests.is_empty() {
            return;
        }
        let (client, claims) = (self.client.clone(), Arc::clone(&self.claims));
        background::handle().spawn(async move {
            let all = requests.iter().map(async |(id, request)| {
                if client.txn(request).await.is_ok() {
                    claims.change(*id, |entry| entry.grant_noted = true);
                }
            });
            let _ = Clock::Boot.timeout(limit, join_all(all)).await;
        });
    }

    /// What has happened to these claims, as far as the server says so in time. A server that is too busy for
    /// such a search is not asked for another one at the next renewal.
    async fn search(&self, lease: &Lease, keys: &[(&Claim, Key)]) -> Seen {
        if self.search_is_slow.swap(true, SeqCst) {
            self.search_is_slow.store(false, SeqCst);
            return Seen::default();
        }
        match Clock::Boot.timeout(lease.ttl() / 5, self.search_once(lease, keys)).await {
            Ok(Ok(seen)) => {
                self.search_is_slow.store(false, SeqCst);
                seen
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "etcd: could not look at the claims");
                Seen::default()
            }
            Err(_) => Seen::default(),
        }
    }

    /// Which claims of these are gone as of now, and which somebody asks for. Usually that is one request: the lease knows
    /// its keys. The leader may not have come as far yet as the member that replied to a join, so a key that it does not know
    /// is read itself before it counts as gone; so is one on a lease of its own.
    async fn search_once(&self, lease: &Lease, keys: &[(&Claim, Key)]) -> Result<Seen> {
        let failed = |error: RequestError| error.into_error("renew");
        let found = self.client.lease_time_to_live(lease.id(), true).await.map_err(failed)?;
        if found.ttl < 0 {
            lease.check();
        }
        let known: HashSet<Key> = found.keys.into_iter().collect();
        let mut asks: Vec<Key> = known.iter().filter(|key| keys::asked(key).is_some()).cloned().collect();
        let unknown: Vec<_> = keys.iter().filter(|(_, key)| !known.contains(key)).collect();
        let mut gone = Vec::new();
        for part in unknown.chunks(OPERATIONS / 2) {
            let claims = part.iter().map(|(_, key)| get(key, true));
            let their_asks = part.iter().map(|(claim, _)| get(&keys::ask(&claim.name, claim.id), true));
            let success = claims.chain(their_asks).map(look::range_op).collect();
            let request = TxnRequest { success, ..TxnRequest::default() };
            let found = ranges(self.client.txn(&request).await.map_err(failed)?.value);
            let (claims, their_asks) = found.split_at(part.len().min(found.len()));
            let missing = part.iter().zip(claims).filter(|(_, found)| found.kvs.is_empty());
            gone.extend(missing.map(|((claim, _), _)| claim.id));
            asks.extend(their_asks.iter().flat_map(|found| &found.kvs).map(|found| found.key.clone()));
        }
        let (asked, old): (Vec<Key>, Vec<Key>) = asks
            .into_iter()
            .partition(|key| keys::asked(key).is_some_and(|id| self.claims.get(id).is_some()));
        if !old.is_empty() {
            self.forget_asks(old);
        }
        let asked: Vec<ClaimId> = asked.iter().filter_map(|key| keys::asked(key)).collect();
        asked.iter().for_each(|id| self.claims.change(*id, |entry| entry.asked = true));
        Ok(Seen { gone, asked })
    }

    /// Removes the claim's key. If a join may still be on its way, a tombstone makes it fail when it arrives: the
    /// keeper's lease would keep such an orphan alive for ever.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<Left> {
        // Nothing was ever sent, or it has left already.
        let Some(entry) = self.claims.get(claim.id) else { return Ok(Left::NotThere) };
        let left = match self.leave_once(claim, &entry).await {
            // The claim stands in others' way for the second half of its TTL, too, and an election may take that long.
            Err(error) if error.is_temporary() => {
                let again = Box::pin(self.leave_once(claim, &entry)).await;
                again.map(|reply| Reply { retried: true, ..reply })
            }
            left => left,
        };
        let Reply { value: was_there, retried } =
            left.map_err(|error| error.into_error("leave the queue"))?;
        self.claims.remove(claim.id);
        self.drop_lease(entry.own_lease);
        if entry.asked {
            self.forget_asks(vec![keys::ask(&claim.name, claim.id)]);
        }
        // After a lost reply the key was deleted by us, as far as can be known.
        let by_us = retried && entry.place.is_some();
        Ok(if was_there || by_us { Left::Left } else { Left::NotThere })
    }

    /// Tries for half a TTL; says whether the key was there.
    async fn leave_once(&self, claim: &Claim, entry: &Entry) -> Result<Reply<bool>, RequestError> {
        match entry.place {
            _ if entry.may_arrive => self.undo(claim, entry).await,
            // The key may be another claim's by the time this arrives (Q7).
            Some(place) => {
                let delete = delete_created_at(&entry.key, place);
                deleted(self.client.txn_of(&claim.name, Some(&entry.key), &delete).await)
            }
            None => self.client.delete(&entry.key).await,
        }
    }

    async fn undo(&self, claim: &Claim, entry: &Entry) -> Result<Reply<bool>, RequestError> {
        let lease = self.tombstone_lease().await?;
        let key = keys::tombstone(&claim.name, claim.id);
        let put = PutRequest { key, lease, ..PutRequest::default() };
        let delete = DeleteRangeRequest { key: entry.key.clone() };
        let both = [Request::RequestDeleteRange(delete), Request::RequestPut(put)];
        let success = both.map(|request| RequestOp { request: Some(request) }).into();
        let request = TxnRequest { success, ..TxnRequest::default() };
        deleted(self.client.txn_of(&claim.name, Some(&entry.key), &request).await)
    }

    async fn tombstone_lease(&self) -> Result<i64, RequestError> {
        let known = *self.tombstone_lease.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((id, until)) = known
            && Instant::now() < until
        {
            return Ok(id);
        }
        // Two tasks may do so at once; it must not be locked meanwhile, for the runtime of one may stop.
        let granted = self.client.lease_grant((TOMBSTONE_LEASE + TOMBSTONE).as_secs() as i64).await?;
        let until = Instant::now() + TOMBSTONE_LEASE;
        *self.tombstone_lease.lock().unwrap_or_else(PoisonError::into_inner) = Some((granted.id, until));
        Ok(granted.id)
    }
}

impl Queue for Etcd {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        if asked == self.parts.client.times().ttl { self.parts.lease.ttl() } else { asked }
    }

    async fn turn(&self, claim: &Claim) -> Result<impl Send> {
        self.parts.turns.next(claim).await
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let joined = self.parts.join(claim).await;
        if joined.as_ref().is_err_and(Error::is_temporary) {
            self.parts.turns.failed(claim);
        }
        joined
    }

    async fn changed(&self, claim: &Claim, place: Place, _seen: Ahead) -> Result<Ahead> {
        let entry = self.parts.claims.get(claim.id).ok_or_else(|| claim.gone())?;
        if let Some(look) = &entry.look {
            // Its own key, too, so that an evicted waiter learns of it at once.
            let keys = look.blockers.iter().chain([&entry.key]);
            let watching = self.parts.watches.watch(keys, look.revision);
            let _ = Clock::Boot.timeout(LOOK_ANYWAY, watching.news()).await;
        }
        let look = self.parts.look(claim, &entry.key, place.0 as i64).await?;
        // A claim that joined without a look learns only now that the lock has another shape (Law 6).
        if let Some(ruling) = look.ruling.filter(|_| claim.demand == Demand::Exclusive) {
            claim.check_shape(ruling)?;
        }
        let ahead = Ahead(look.ahead);
        self.parts.claims.change(claim.id, |entry| entry.look = Some(look));
        Ok(ahead)
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let mut by_ttl: BTreeMap<Duration, Vec<&Renewal>> = BTreeMap::new();
        for renewal in renewals {
            by_ttl.entry(renewal.claim.ttl).or_default().push(renewal);
        }
        let mut all = Kept::default();
        for (ttl, renewals) in by_ttl {
            let kept = self.parts.keep(&*self.parts.lease_of(ttl).await?, &renewals).await?;
            all.dead.extend(kept.dead);
            all.asked.extend(kept.asked);
            all.as_of = all.as_of.into_iter().chain(kept.as_of).min();
        }
        Ok(all)
    }

    async fn attach(&self, renewal: &Renewal, token: Token) -> Result<Option<Attached>> {
        self.parts.attach(renewal, token).await
    }

    fn detached(&self, claim: &Claim) {
        // The lease of the keeper would keep it for ever: then it leaves when it is neglected.
        if self.parts.claims.get(claim.id).is_some_and(|entry| entry.own_lease.is_some()) {
            self.parts.claims.detached(claim.id);
        }
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.parts.leave(claim).await
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let entry = self.parts.claims.get(claim.id).ok_or_else(|| claim.gone())?;
        let place = entry.place.ok_or_else(|| claim.gone())?;
        let value = Value::encode(claim, to, entry.times);
        // The lease stays, and so does the place: it is the create revision.
        let put = PutRequest { key: entry.key.clone(), value, ignore_lease: true, ..PutRequest::default() };
        let request = TxnRequest {
            compare: vec![created_at(Span::key(&entry.key), place)],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![],
        };
        let reply = self.parts.client.txn(&request).await.map_err(|error| error.into_error("downgrade"))?;
        if reply.value.succeeded { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        self.parts.list(prefix, at_most).await
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.parts.ask(name, id).await
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

/// The responses to the reads of a transaction, in order.
pub(crate) fn ranges(response: TxnResponse) -> Vec<RangeResponse> {
    let found = response.responses.into_iter().filter_map(|part| match part.response {
        Some(Response::ResponseRange(range)) => Some(range),
        _ => None,
    });
    found.collect()
}

/// Deletes the key if it was created at this revision.
pub(crate) fn delete_created_at(key: &Key, revision: i64) -> TxnRequest {
    let delete = Request::RequestDeleteRange(DeleteRangeRequest { key: key.clone() });
    let compare = vec![created_at(Span::key(key), revision)];
    TxnRequest { compare, success: vec![RequestOp { request: Some(delete) }], failure: vec![] }
}

/// Whether the transaction deleted something.
pub(crate) fn deleted(reply: Result<Reply<TxnResponse>, RequestError>) -> Result<Reply<bool>, RequestError> {
    let Reply { value, retried } = reply?;
    let deleted = |part: &Response| matches!(part, Response::ResponseDeleteRange(range) if range.deleted > 0);
    let value = value.responses.iter().filter_map(|part| part.response.as_ref()).any(deleted);
    Ok(Reply { value, retried })
}
