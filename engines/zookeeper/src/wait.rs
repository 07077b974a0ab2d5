//! Waiting in the fair queue: a watch on the blockers, and a look when one of them has gone.

use crate::book::Node;
use crate::failure::{Failure, code};
use crate::look::Look;
use crate::queue::ZooKeeperQueue;
use crate::session::Session;
use crate::wire::Bell;
use lockkeeper_core::{Claim, Result};
use std::time::Duration;

/// A watch is not lost by the protocol; this is the poll beneath it all the same (Law 10).
const SLOW_POLL: Duration = Duration::from_secs(60);

impl ZooKeeperQueue {
    /// A look that must also find the claim itself.
    pub(crate) async fn look(&self, session: &Session, claim: &Claim, node: &Node) -> Result<Look> {
        let (directory, sequence) = node.place().ok_or_else(|| claim.gone())?;
        let own = &node.path[directory.len() + 1..];
        let children = match session.children(directory, self.0.limit()).await {
            Err(Failure::Refused(code::NO_NODE) | Failure::Expired) => return Err(claim.gone()),
            children => children.map_err(|failure| failure.into_error("look at the queue"))?,
        };
        if session.is_over() || !children.iter().any(|child| child == own) {
            return Err(claim.gone());
        }
        let mut look = Look::from_place(&children, sequence, claim.demand);
        look.blockers = look.blocker_paths(directory);
        Ok(look)
    }

    /// Waits until one of these nodes goes or changes; at once if one is gone.
    pub(crate) async fn wait_for(&self, session: &Session, claim: &Claim, blockers: &[String]) -> Result<()> {
        let bell = Bell::default();
        let failed = |failure: Failure| match failure {
            Failure::Expired => claim.gone(),
            other => other.into_error("watch the claims ahead"),
        };
        loop {
            session.connected(self.0.limit()).await.map_err(failed)?;
            let mut batch = session.batch();
            let answers: Vec<_> = blockers.iter().map(|path| batch.watch(path, &bell)).collect();
            batch.send();
            for answer in answers {
                match answer.within(self.0.limit()).await {
                    Ok(_) => {}
                    Err(Failure::Refused(code::NO_NODE)) => return Ok(()),
                    Err(failure) => return Err(failed(failure)),
                }
            }
            tokio::select! {
                () = bell.notified() => return Ok(()),
                () = session.over() => return Err(claim.gone()),
                () = tokio::time::sleep(SLOW_POLL) => {}
            }
        }
    }
}
