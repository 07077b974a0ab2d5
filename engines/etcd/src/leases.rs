//! Which lease a claim stands on, a choice that only etcd has: the keeper's, that of another TTL, or one for itself.

use crate::claims::{Entry, Found, OwnLease};
use crate::config::Times;
use crate::error::RequestError;
use crate::generated::request_op::Request;
use crate::generated::{PutRequest, RangeRequest, RequestOp, TxnRequest};
use crate::keys::{self, Span};
use crate::lease::Lease;
use crate::queue::{Parts, created_at};
use crate::value::Value;
use lockkeeper_core::engine::{Attached, Clock, Renewal, background};
use lockkeeper_core::{Result, Token};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

const DOING: &str = "renew";

/// The leases of claims with another TTL than the keeper's, by that TTL. They stay until the keeper ends.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<Duration, (Arc<Lease>, AbortHandle)>>);

impl Leases {
    fn map(&self) -> MutexGuard<'_, HashMap<Duration, (Arc<Lease>, AbortHandle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps them alive no further.
    pub(crate) fn stop(&self) {
        self.map().values().for_each(|(_, task)| task.abort());
    }

    /// All of them, which are no longer used.
    pub(crate) fn take(&self) -> Vec<Arc<Lease>> {
        std::mem::take(&mut *self.map()).into_values().map(|(lease, _)| lease).collect()
    }
}

/// Whether the claim must outlive this process for its whole TTL.
fn needs_own(renewal: &Renewal) -> bool {
    !renewal.outlives.is_zero() && renewal.outlives >= renewal.ttl
}

impl Parts {
    /// The lease for claims of this TTL; granted when it is first needed.
    pub(crate) async fn lease_of(&self, ttl: Duration) -> Result<Arc<Lease>> {
        if ttl == self.lease.ttl() {
            return Ok(Arc::clone(&self.lease));
        }
        if let Some((lease, _)) = self.leases.map().get(&ttl) {
            return Ok(Arc::clone(lease));
        }
        let granted = Arc::new(Lease::grant(Arc::clone(&self.client), Times::new(ttl)?).await?);
        let mut map = self.leases.map();
        let (lease, _) = map.entry(ttl).or_insert_with(|| {
            let task = background::handle().spawn(Arc::clone(&granted).run());
            (granted, task.abort_handle())
        });
        Ok(Arc::clone(lease))
    }

    /// Puts the claim on the lease that the renewal needs; `false` if the claim is gone.
    ///
    /// A claim that must outlive this process for its whole TTL needs a lease for itself: the keeper's ends with the keeper,
    /// and each keep-alive of a longer one would make the claim live longer than it should.
    pub(crate) async fn choose_lease(&self, entry: &Entry, renewal: &Renewal) -> Result<bool> {
        let until = Clock::Boot.now().plus(renewal.outlives);
        let fits = match entry.own_lease {
            // It waits, or its join had no reply.
            _ if entry.place.is_none() => true,
            None => !needs_own(renewal),
            // The moment is computed anew from a duration each time.
            Some(own) => {
                let difference = own.until.since(until).max(until.since(own.until));
                needs_own(renewal) && difference < Duration::from_secs(1)
            }
        };
        if fits { Ok(true) } else { self.change_lease(entry, renewal).await }
    }

    /// Puts the claim on a lease for itself, or on the keeper's; `false` if it is gone.
    async fn change_lease(&self, entry: &Entry, renewal: &Renewal) -> Result<bool> {
        let mut own = None;
        if needs_own(renewal) {
            let until = Clock::Boot.now().plus(renewal.outlives);
            let seconds = renewal.outlives.as_secs() + u64::from(renewal.outlives.subsec_nanos() > 0);
            let granted = self.client.lease_grant(seconds.try_into().unwrap_or(i64::MAX)).await;
            own = Some(OwnLease { id: granted.map_err(|error| error.into_error(DOING))?.id, until });
        }
        // The place is the create revision, and stays.
        let put = PutRequest {
            key: entry.key.clone(),
            lease: own.map_or(entry.lease, |own| own.id),
            ignore_value: true,
            ..PutRequest::default()
        };
        let request = TxnRequest {
            compare: vec![created_at(Span::key(&entry.key), entry.place.unwrap_or_default())],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![],
        };
        let reply = self.client.txn(&request).await.map_err(|error| error.into_error(DOING))?;
        if reply.value.succeeded {
            self.claims.change(entry.claim.id, |entry| entry.own_lease = own);
            self.drop_lease(entry.own_lease);
        } else {
            self.drop_lease(own);
        }
        Ok(reply.value.succeeded)
    }

    /// Ends a lease that no claim stands on any more.
    pub(crate) fn drop_lease(&self, own: Option<OwnLease>) {
        let Some(own) = own else { return };
        let client = Arc::clone(&self.client);
        background::handle().spawn(async move {
            if let Err(error) = client.lease_revoke(own.id).await {
                tracing::debug!(%error, "etcd: could not revoke an empty lease; it will expire");
            }
        });
    }

    /// Takes over a detached claim: finds its key, which has the name of the keeper that made it, and puts it on a lease of
    /// this keeper.
    pub(crate) async fn attach(&self, renewal: &Renewal, token: Token) -> Result<Option<Attached>> {
        let failed = |error: RequestError| error.into_error("attach a hold");
        let claim = &renewal.claim;
        let ours = keys::ours(&claim.name);
        let request = RangeRequest { key: ours.start, range_end: ours.end, ..RangeRequest::default() };
        let id = claim.id.to_string();
        let found = self.client.range(&request).await.map_err(failed)?.kvs.into_iter().find_map(|found| {
            let value = Value::decode(&found.value).filter(|value| value.claim == id)?;
            let is_meant = found.create_revision.unsigned_abs() == token.0;
            is_meant.then_some(Found { key: found.key, place: found.create_revision, times: value.times() })
        });
        let Some(found) = found else { return Ok(None) };
        let keepers = self.lease_of(claim.ttl).await?;
        let lease = keepers.fresh().await?;
        self.claims.attached(claim, &lease, found);
        // Whatever lease it stands on now, it must be one of this keeper's.
        let moved = match self.claims.get(claim.id) {
            Some(entry) => self.change_lease(&entry, renewal).await,
            None => Ok(false),
        };
        if !matches!(moved, Ok(true)) {
            self.claims.detached(claim.id);
        }
        Ok(moved?.then(|| Attached::on(lease.lifeline)))
    }
}
