//! The plain style: everybody tries to create one ephemeral node, and the losers watch it.

use crate::batch::unexpected;
use crate::claims::Node;
use crate::client::{Client, DIRECTORY_TRIES, token_of};
use crate::error::{ENGINE, RequestError, Retries, code};
use crate::keys::{HOLDER_NODE, PLAIN_NODE};
use crate::protocol::{Mode, Outcome, Step};
use crate::session::{Session, Sessions};
use crate::view::{self, Content};
use crate::wake::wait_for;
use lockkeeper_core::engine::{Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, LockName, Race, Renewal};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result};
use std::sync::Arc;
use std::time::Duration;

/// The plain style on one ensemble.
///
/// The hold is one node, in a directory of its own below the lock's path. Taking it also raises that directory's version, and a
/// release checks that version in the same transaction as it deletes: a late release never frees a successor's hold. The
/// lock's path itself may be somebody else's node, whose data and version are left as they are.
#[derive(Debug)]
pub(crate) struct ZooKeeperPlain(Arc<Client>);

impl ZooKeeperPlain {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self(Client::start(sessions))
    }

    /// The directory of the lock's holder.
    fn directory(&self, name: &LockName) -> String {
        format!("{}/{PLAIN_NODE}", self.0.directory(name))
    }

    async fn take(&self, session: &Session, claim: &Claim, directory: &str) -> Result<Attempted> {
        let failed = |error: RequestError| error.into_error("take the lock");
        let client = &self.0;
        let path = format!("{directory}/{HOLDER_NODE}");
        let data = Content::of(claim, claim.demand, None, None);
        let acl = &client.sessions.settings().acl;
        let steps = [
            Step::Create { path: &path, data: &data, acl, mode: Mode::Ephemeral },
            Step::Touch { path: directory },
        ];
        for _ in 0..DIRECTORY_TRIES {
            let epoch = session.epoch();
            client.claims.sending(claim.id, session.id(), epoch);
            match session.multi(&steps, client.limit()).await {
                Ok(outcomes) => {
                    let node = node(session, path, &outcomes).ok_or_else(|| failed(unexpected()))?;
                    let token = token_of(node.token);
                    client.claims.made(claim.id, node, epoch);
                    client.claims.renewed(claim.id, claim.ttl);
                    return Ok(Attempted::GrantedOn(Grant { token }, session.lifeline().clone()));
                }
                Err(RequestError::Refused(code::NODE_EXISTS)) => {
                    client.claims.forget(claim.id);
                    return Ok(Attempted::Busy { free_in: None });
                }
                Err(RequestError::Refused(code::NO_NODE)) => {
                    client.make_parents(session, directory).await.map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::temporary(ENGINE, "take the lock", "its directory vanished again and again"))
    }

    /// The claim's hold as the server has it: the directory's version, read first, and the node.
    async fn find(
        &self,
        session: &Session,
        directory: &str,
        id: ClaimId,
    ) -> Result<Option<Node>, RequestError> {
        let (limit, path) = (self.0.limit(), format!("{directory}/{HOLDER_NODE}"));
        let found = async {
            let version = session.exists(directory, limit).await?.version;
            let (data, stat) = session.data(&path, limit).await?;
            Ok((version, data, stat))
        };
        let (version, data, stat) = match found.await {
            Err(RequestError::Refused(code::NO_NODE)) => return Ok(None),
            found => found?,
        };
        let is_ours = Content::read(&data).is_some_and(|content| content.claim == id.to_string());
        let (session, czxid) = (stat.ephemeral_owner, stat.czxid);
        Ok(is_ours.then_some(Node { session, path, czxid, version: Some(version), token: czxid }))
    }

    async fn leave_once(&self, claim: &Claim, directory: &str) -> Result<Left, RequestError> {
        let Some(record) = self.0.claims.record(claim.id) else { return Ok(Left::NotThere) };
        let Some(session) = self.0.sessions.living(record.session) else { return Ok(Left::NotThere) };
        session.connected(self.0.limit()).await?;
        let node = match record.node.filter(|_| record.doubt.is_none()) {
            Some(node) => Some(node),
            None => self.find(&session, directory, claim.id).await?,
        };
        let Some(node) = node else { return Ok(Left::NotThere) };
        self.0.claims.leaving(claim.id);
        if self.0.remove(&session, &node).await? == Left::Left {
            return Ok(Left::Left);
        }
        match self.find(&session, directory, claim.id).await? {
            // Somebody uses the lock in the other style, which raises the version as well.
            Some(found) => self.0.remove(&session, &found).await,
            None if record.leaving => Ok(Left::Left),
            None => Ok(Left::NotThere),
        }
    }

    async fn list_once(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>, RequestError> {
        let (limit, chroot) = (self.0.limit(), &self.0.sessions.settings().chroot);
        let session = self.0.sessions.usable().await?;
        let is_wanted = |child: &str| child == PLAIN_NODE;
        let found = view::find(&session, chroot, prefix, is_wanted, limit).await?;
        let mut locks = Vec::new();
        for lock in found.into_iter().take(at_most) {
            let directory = format!("{}/{PLAIN_NODE}", lock.directory);
            let nodes = view::read_all(&session, &directory, &[HOLDER_NODE.to_owned()], limit).await?;
            let claims: Vec<_> = nodes
                .iter()
                .map(|(name, data, stat)| view::claim(name, Demand::Exclusive, data, stat))
                .collect();
            if !claims.is_empty() {
                locks.push(LockView::from_queue(lock.name, claims));
            }
        }
        Ok(locks)
    }

    /// Frees the claim's hold. `sent` remembers that it was seen, in case only the reply was lost.
    async fn evict_once(&self, directory: &str, id: ClaimId, sent: &mut bool) -> Result<bool, RequestError> {
        let session = self.0.sessions.usable().await?;
        let Some(node) = self.find(&session, directory, id).await? else { return Ok(*sent) };
        *sent = true;
        Ok(self.0.remove(&session, &node).await? == Left::Left)
    }
}

/// The node that was just made. Both steps are one transaction, so the directory's last change made it.
fn node(session: &Session, path: String, outcomes: &[Outcome]) -> Option<Node> {
    let [Outcome::Created(_), Outcome::Touched(directory)] = outcomes else { return None };
    let (czxid, version) = (directory.mzxid, Some(directory.version));
    Some(Node { session: session.id(), path, czxid, version, token: czxid }).filter(|_| !session.is_over())
}

impl Race for ZooKeeperPlain {
    fn abilities(&self) -> Abilities {
        crate::STYLES[1]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, _asked: Duration) -> Duration {
        self.0.sessions.timeout()
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let failed = |error: RequestError| error.into_error("take the lock");
        let directory = self.directory(&claim.name);
        let session = self.0.sessions.usable().await.map_err(failed)?;
        let sent_before = self.0.claims.was_sent(claim.id, session.id());
        if sent_before
            && let Some(node) = self.find(&session, &directory, claim.id).await.map_err(failed)?
            && node.session == session.id()
        {
            let token = token_of(node.token);
            self.0.claims.moved(claim.id, node);
            self.0.claims.renewed(claim.id, claim.ttl);
            return Ok(Attempted::GrantedOn(Grant { token }, session.lifeline().clone()));
        }
        self.take(&session, claim, &directory).await
    }

    async fn changed(&self, claim: &Claim, _free_in: Option<Duration>) -> Result<()> {
        let failed = |error: RequestError| error.into_error("watch the holder");
        let watched = [format!("{}/{HOLDER_NODE}", self.directory(&claim.name))];
        let (session, limit) = (self.0.sessions.usable().await.map_err(failed)?, self.0.limit());
        tokio::select! {
            biased;
            woken = wait_for(&session, &watched, limit) => woken.map(drop).map_err(failed),
            // Nothing is renewed for a claim that waits, so nothing else says that the servers are away.
            error = session.away(limit) => Err(failed(error)),
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        self.0.keep(renewals).await
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let directory = self.directory(&claim.name);
        let mut tries = Retries::few();
        loop {
            match self.leave_once(claim, &directory).await {
                Err(error) if tries.again_after(&error) => {}
                left => {
                    let left = left.map_err(|error| error.into_error("free the lock"))?;
                    self.0.forget(claim.id);
                    return Ok(left);
                }
            }
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let mut tries = Retries::few();
        loop {
            match self.list_once(prefix, at_most).await {
                Err(error) if tries.again_after(&error) => {}
                locks => return locks.map_err(|error| error.into_error("list locks")),
            }
        }
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let directory = self.directory(name);
        let (mut tries, mut sent) = (Retries::few(), false);
        loop {
            match self.evict_once(&directory, id, &mut sent).await {
                Err(error) if tries.again_after(&error) => {}
                evicted => return evicted.map_err(|error| error.into_error("evict a claim")),
            }
        }
    }

    async fn ask(&self, _: &LockName, id: ClaimId) -> Result<bool> {
        self.0.ask(id).await.map(|()| true)
    }

    async fn close(&self) {
        self.0.sessions.close().await;
    }
}
