//! Leaving the fair queue: by the node if it is known, by the claim's id if it is not.

use crate::book::Record;
use crate::failure::{Failure, code};
use crate::keys::nodes_of;
use crate::queue::ZooKeeperQueue;
use crate::session::Session;
use crate::sweep::sweep_later;
use lockkeeper_core::{Claim, ClaimId, Left};
use std::time::Duration;

impl ZooKeeperQueue {
    pub(crate) async fn leave_once(&self, claim: &Claim) -> Result<Left, Failure> {
        let Some(record) = self.0.book.record(claim.id) else {
            return self.leave_by_id(claim, None).await;
        };
        let Some(session) = self.0.sessions.living(record.session) else { return Ok(Left::NotThere) };
        session.connected(self.0.limit()).await?;
        let Some(node) = record.node.as_ref().filter(|_| record.doubt.is_none() && !record.moving) else {
            return self.leave_by_id(claim, Some(&record)).await;
        };
        self.0.book.leaving(claim.id);
        let left = self.0.remove(&session, node).await?;
        if record.alone {
            self.0.recent.left_alone(node);
        }
        match left {
            // An earlier try of ours was done, and its answer lost.
            Left::NotThere if record.leaving => Ok(Left::Left),
            left => Ok(left),
        }
    }

    /// Deletes every node with the claim's id, and again a little later if a create may still be on its way.
    async fn leave_by_id(&self, claim: &Claim, record: Option<&Record>) -> Result<Left, Failure> {
        let session = self.0.sessions.usable().await?;
        let directory = self.0.directory(&claim.name);
        let left = delete_by_id(&session, &directory, claim, self.0.limit()).await?;
        let late = record.and_then(|record| record.doubt).is_some_and(|epoch| epoch != session.epoch());
        if late {
            sweep_later(&session, directory, claim.clone(), self.0.limit());
        }
        Ok(left)
    }

    /// Deletes the claim's nodes. `sent` remembers that one was seen, in case only the answer was lost.
    pub(crate) async fn evict_once(
        &self,
        directory: &str,
        id: ClaimId,
        sent: &mut bool,
    ) -> Result<bool, Failure> {
        let session = self.0.sessions.usable().await?;
        let children = match session.children(directory, self.0.limit()).await {
            Err(Failure::Refused(code::NO_NODE)) => return Ok(*sent),
            children => children?,
        };
        let nodes: Vec<_> = nodes_of(id, &children).collect();
        let mut evicted = *sent && nodes.is_empty();
        for child in nodes {
            *sent = true;
            match session.delete(&format!("{directory}/{child}"), self.0.limit()).await {
                Ok(()) => evicted = true,
                Err(Failure::Refused(code::NO_NODE)) => {}
                Err(failure) => return Err(failure),
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
) -> Result<Left, Failure> {
    let children = match session.children_now(directory, limit).await {
        Err(Failure::Refused(code::NO_NODE)) => return Ok(Left::NotThere),
        children => children?,
    };
    let mut left = Left::NotThere;
    for child in nodes_of(claim.id, &children) {
        match session.delete(&format!("{directory}/{child}"), limit).await {
            Ok(()) => left = Left::Left,
            Err(Failure::Refused(code::NO_NODE)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(left)
}
