//! Leaving the fair queue: by the node if it is known, by the claim's id if it is not. Apart from `queue`, since a create may
//! come late.

use crate::claims::Record;
use crate::error::{RequestError, code};
use crate::keys::nodes_of;
use crate::queue::ZooKeeperQueue;
use crate::session::Session;
use lockkeeper_core::engine::{Claim, ClaimId, Clock, Left, background};
use std::sync::Arc;
use std::time::Duration;

impl ZooKeeperQueue {
    pub(crate) async fn leave_once(&self, claim: &Claim) -> Result<Left, RequestError> {
        let Some(record) = self.0.claims.record(claim.id) else {
            return self.leave_by_id(claim, None).await;
        };
        let Some(session) = self.0.sessions.living(record.session) else { return Ok(Left::NotThere) };
        session.connected(self.0.limit()).await?;
        let Some(node) = record.node.as_ref().filter(|_| record.doubt.is_none() && !record.moving) else {
            return self.leave_by_id(claim, Some(&record)).await;
        };
        self.0.claims.leaving(claim.id);
        match self.0.remove(&session, node).await? {
            // An earlier try was done, and its reply lost.
            Left::NotThere if record.leaving => Ok(Left::Left),
            left => Ok(left),
        }
    }

    /// Deletes every node with the claim's id, and again a little later if a create may still be on its way.
    async fn leave_by_id(&self, claim: &Claim, record: Option<&Record>) -> Result<Left, RequestError> {
        let session = self.0.sessions.usable().await?;
        let directory = self.0.directory(&claim.name);
        let left = delete_by_id(&session, &directory, claim, self.0.limit()).await?;
        let late = record.and_then(|record| record.doubt).is_some_and(|epoch| epoch != session.epoch());
        if late {
            remove_later(&session, directory, claim.clone(), self.0.limit());
        }
        Ok(left)
    }

    /// Deletes the claim's nodes. `sent` remembers that one was seen, in case only the reply was lost.
    pub(crate) async fn evict_once(
        &self,
        directory: &str,
        id: ClaimId,
        sent: &mut bool,
    ) -> Result<bool, RequestError> {
        let session = self.0.sessions.usable().await?;
        let children = match session.children(directory, self.0.limit()).await {
            Err(RequestError::Refused(code::NO_NODE)) => return Ok(*sent),
            children => children?,
        };
        let nodes: Vec<_> = nodes_of(id, &children).collect();
        let mut evicted = *sent && nodes.is_empty();
        for child in nodes {
            *sent = true;
            match session.delete(&format!("{directory}/{child}"), self.0.limit()).await {
                Ok(()) => evicted = true,
                Err(RequestError::Refused(code::NO_NODE)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(evicted)
    }
}

/// Deletes every node that carries the claim's id.
pub(crate) async fn delete_by_id(
    session: &Session,
    directory: &str,
    claim: &Claim,
    limit: Duration,
) -> Result<Left, RequestError> {
    let children = match session.children_now(directory, limit).await {
        Err(RequestError::Refused(code::NO_NODE)) => return Ok(Left::NotThere),
        children => children?,
    };
    let mut left = Left::NotThere;
    for child in nodes_of(claim.id, &children) {
        match session.delete(&format!("{directory}/{child}"), limit).await {
            Ok(()) => left = Left::Left,
            Err(RequestError::Refused(code::NO_NODE)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

/// Deletes the nodes of a claim that has left, whose create may still be on its way.
///
/// A packet of a broken connection can come late, as long as the session lives; one that comes even later than the last of
/// these looks goes with the session.
pub(crate) fn remove_later(session: &Arc<Session>, directory: String, claim: Claim, limit: Duration) {
    // Must not keep the session alive.
    let session = Arc::downgrade(session);
    background::handle().spawn(async move {
        let mut pause = claim.ttl / 8;
        while pause <= claim.ttl * 2 {
            Clock::Boot.sleep(pause).await;
            pause *= 2;
            let Some(session) = session.upgrade() else { return };
            if let Ok(Left::Left) = delete_by_id(&session, &directory, &claim, limit).await {
                tracing::debug!(claim = %claim.id, lock = %claim.name, "removed a node that came late");
            }
        }
    });
}
