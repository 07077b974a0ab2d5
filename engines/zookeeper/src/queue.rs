//! The fair style: claims are ephemeral sequential nodes, and each waits for those that block it.

use crate::book::{Node, Record};
use crate::common::{Common, token_of, view};
use crate::content::Content;
use crate::failure::{ENGINE, Failure, code};
use crate::keys::{NodeName, Sequence, nodes_of};
use crate::look::Look;
use crate::protocol::{self, Created, Mode, Request, Step};
use crate::session::{Session, all_done};
use crate::sessions::Sessions;
use crate::sweep::sweep_later;
use crate::tree;
use crate::wire::Bell;
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, Clock, Demand, Error, Joined, Kept, Left, LockName, LockView, Place,
    Queue, Renewal, Result,
};
use std::sync::Arc;
use std::time::Duration;

/// How often a lock's directory may vanish under our hands: the server removes it when it is empty.
const PARENT_TRIES: usize = 5;
/// How often a leave is sent again after its connection broke.
const LEAVE_TRIES: usize = 3;
/// A watch is not lost by the protocol; this is the poll beneath it all the same (Law 10).
const SLOW_POLL: Duration = Duration::from_secs(60);

/// The fair style on one ensemble.
#[derive(Debug)]
pub(crate) struct ZooKeeperQueue(Arc<Common>);

impl ZooKeeperQueue {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self(Common::start(sessions))
    }

    /// Creates the claim's node and looks, sent together: the look is done after the create, without a wait
    /// in between.
    async fn create_and_look(&self, session: &Session, claim: &Claim, directory: &str) -> Result<Joined> {
        let failed = |failure: Failure| failure.to_error("join the queue");
        let common = &self.0;
        let naming = common.sessions.settings().naming;
        let path = format!("{directory}/{}", naming.prefix(claim.id, claim.demand));
        let data = Content::of(claim, claim.demand, None);
        for _ in 0..PARENT_TRIES {
            let epoch = session.epoch();
            common.book.sending(claim.id, session.id(), epoch);
            let mut batch = session.batch();
            let created = batch.create(common.create(&path, &data, Mode::EphemeralSequential));
            let children = batch.children(directory);
            batch.send();
            match created.within(common.limit()).await {
                Ok(created) => {
                    let node = self.node(session, claim, created, epoch)?;
                    let children = children.within(common.limit()).await.map_err(failed)?;
                    return self.joined(session, claim, &node, &children).await;
                }
                Err(Failure::Refused(code::NO_NODE)) => {
                    common.make_parents(session, directory).await.map_err(failed)?;
                }
                Err(failure) => return Err(failed(failure)),
            }
        }
        Err(Error::temporary(ENGINE, "join the queue", "its directory vanished again and again"))
    }

    /// Notes the node that was made, if it is of the session in use.
    fn node(&self, session: &Session, claim: &Claim, created: Created, epoch: u64) -> Result<Node> {
        self.0.check_owner(session, &created.stat)?;
        let czxid = created.stat.czxid;
        let node = Node { session: session.id(), path: created.path, czxid, version: None, token: czxid };
        self.0.book.made(claim.id, node.clone(), epoch);
        Ok(node)
    }

    /// The answer to a join whose node stands; a claim of the wrong shape leaves again (Law 6).
    async fn joined(
        &self,
        session: &Session,
        claim: &Claim,
        node: &Node,
        children: &[String],
    ) -> Result<Joined> {
        let (directory, sequence) = place_of(node)?;
        let look = Look::from_place(children, sequence, claim.demand);
        if let Err(mismatch) = claim.check_shape(look.ruling) {
            match session.delete(&node.path, self.0.limit()).await {
                Ok(()) | Err(Failure::Refused(code::NO_NODE) | Failure::Expired) => {}
                Err(failure) => return Err(failure.to_error("leave the queue")),
            }
            self.0.book.forget(claim.id);
            return Err(mismatch);
        }
        self.0.book.renewed(claim.id, claim.ttl);
        self.0.book.waits_for(claim.id, paths(directory, look.blockers));
        // The sequence counts from zero again when the directory was removed; the transaction never does.
        let token = token_of(node.token);
        Ok(Joined { place: Place(token.0), token, ahead: look.ahead })
    }

    /// Finds the node of a join that was sent before, whose answer was lost (Law 4). A node of an earlier
    /// session is a ghost: it goes with that session, and must not be taken for ours.
    async fn find_again(
        &self,
        session: &Session,
        claim: &Claim,
        directory: &str,
    ) -> Result<Option<(Node, Vec<String>)>, Failure> {
        let limit = self.0.limit();
        let children = match session.children(directory, limit).await {
            Err(Failure::Refused(code::NO_NODE)) => return Ok(None),
            children => children?,
        };
        let paths: Vec<String> =
            nodes_of(claim, &children).map(|child| format!("{directory}/{child}")).collect();
        for path in paths {
            match session.exists(&path, limit).await {
                Ok(stat) if stat.ephemeral_owner == session.id() => {
                    let (session, czxid) = (session.id(), stat.czxid);
                    let node = Node { session, path, czxid, version: None, token: czxid };
                    self.0.book.moved(claim.id, node.clone());
                    return Ok(Some((node, children)));
                }
                Ok(_) | Err(Failure::Refused(code::NO_NODE)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// A look that must also find the claim itself.
    async fn look(&self, session: &Session, claim: &Claim, node: &Node) -> Result<Look> {
        let (directory, sequence) = place_of(node)?;
        let own = &node.path[directory.len() + 1..];
        let children = match session.children(directory, self.0.limit()).await {
            Err(Failure::Refused(code::NO_NODE) | Failure::Expired) => return Err(claim.gone()),
            children => children.map_err(|failure| failure.to_error("look at the queue"))?,
        };
        if session.is_over() || !children.iter().any(|child| child == own) {
            return Err(claim.gone());
        }
        let mut look = Look::from_place(&children, sequence, claim.demand);
        look.blockers = paths(directory, look.blockers);
        Ok(look)
    }

    /// Waits until one of these nodes goes or changes; at once if one is gone.
    async fn wait_for(&self, session: &Session, claim: &Claim, blockers: &[String]) -> Result<()> {
        let bell = Bell::default();
        let failed = |failure: Failure| match failure {
            Failure::Expired => claim.gone(),
            other => other.to_error("watch the claims ahead"),
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

    async fn leave_once(&self, claim: &Claim) -> Result<Left, Failure> {
        let Some(record) = self.0.book.record(claim.id) else {
            return self.leave_by_id(claim, None).await;
        };
        let Some(session) = self.0.sessions.living(record.session) else { return Ok(Left::NotThere) };
        session.connected(self.0.limit()).await?;
        let Some(node) = record.node.as_ref().filter(|_| record.doubt.is_none()) else {
            return self.leave_by_id(claim, Some(&record)).await;
        };
        self.0.book.leaving(claim.id);
        match self.0.remove(&session, node).await? {
            // An earlier try of ours was done, and its answer lost.
            Left::NotThere if record.leaving => Ok(Left::Left),
            left => Ok(left),
        }
    }
}

/// Deletes every node that carries the claim's id.
pub(crate) async fn delete_by_id(
    session: &Session,
    directory: &str,
    claim: &Claim,
    limit: Duration,
) -> Result<Left, Failure> {
    let children = match session.children(directory, limit).await {
        Err(Failure::Refused(code::NO_NODE)) => return Ok(Left::NotThere),
        children => children?,
    };
    let mut left = Left::NotThere;
    for child in nodes_of(claim, &children) {
        match session.delete(&format!("{directory}/{child}"), limit).await {
            Ok(()) => left = Left::Left,
            Err(Failure::Refused(code::NO_NODE)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(left)
}

/// The directory of a node, and its place there.
fn place_of(node: &Node) -> Result<(&str, Sequence)> {
    let parsed = node
        .path
        .rsplit_once('/')
        .and_then(|(directory, name)| Some((directory, NodeName::parse(name)?.sequence)));
    parsed.ok_or_else(|| Error::permanent(ENGINE, "read the sequence", format!("bad node {}", node.path)))
}

fn paths(directory: &str, names: Vec<String>) -> Vec<String> {
    names.into_iter().map(|name| format!("{directory}/{name}")).collect()
}

impl Queue for ZooKeeperQueue {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, _asked: Duration) -> Duration {
        self.0.sessions.trusted()
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let failed = |failure: Failure| failure.to_error("join the queue");
        let directory = self.0.directory(&claim.name);
        let session = self.0.sessions.usable().await.map_err(failed)?;
        let sent_before = self.0.book.record(claim.id).is_some_and(|record| record.session == session.id());
        if sent_before
            && let Some((node, children)) =
                self.find_again(&session, claim, &directory).await.map_err(failed)?
        {
            return self.joined(&session, claim, &node, &children).await;
        }
        self.create_and_look(&session, claim, &directory).await
    }

    async fn changed(&self, claim: &Claim, _place: Place, seen: Ahead) -> Result<Ahead> {
        let node = self.0.book.node(claim.id).ok_or_else(|| claim.gone())?;
        let session = self.0.sessions.living(node.session).ok_or_else(|| claim.gone())?;
        let mut blockers = self.0.book.take_blockers(claim.id);
        loop {
            if !blockers.is_empty() {
                self.wait_for(&session, claim, &blockers).await?;
            }
            session.connected(self.0.limit()).await.map_err(|failure| match failure {
                Failure::Expired => claim.gone(),
                other => other.to_error("look at the queue"),
            })?;
            let look = self.look(&session, claim, &node).await?;
            if look.ahead < seen || look.blockers.is_empty() {
                self.0.book.waits_for(claim.id, look.blockers);
                return Ok(look.ahead);
            }
            blockers = look.blockers;
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        self.0.keep(renewals).await
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let mut tries = 1;
        loop {
            match self.leave_once(claim).await {
                Ok(left) => {
                    self.0.book.forget(claim.id);
                    return Ok(left);
                }
                Err(failure) if failure.is_unknown() && tries < LEAVE_TRIES => tries += 1,
                Err(failure) => return Err(failure.to_error("leave the queue")),
            }
        }
    }

    /// As Curator does it: a node of the new kind with the old one's sequence. Both steps in one, so that the
    /// claim is never twice in the queue, nor not at all.
    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let failed = |failure: Failure| failure.to_error("downgrade");
        let settings = self.0.sessions.settings();
        let node = self.0.book.node(claim.id).ok_or_else(|| claim.gone())?;
        let session = self.0.sessions.living(node.session).ok_or_else(|| claim.gone())?;
        session.connected(self.0.limit()).await.map_err(failed)?;
        let (directory, sequence) = place_of(&node)?;
        let path = format!("{directory}/{}{sequence}", settings.naming.prefix(claim.id, to));
        let data = Content::of(claim, to, Some(node.token));
        let steps = [
            Step::Create { path: &path, data: &data, acl: &settings.acl, mode: Mode::Ephemeral },
            Step::Delete { path: &node.path },
        ];
        let mut batch = session.batch();
        let replaced = batch.add(Request::multi(&steps), protocol::read_multi);
        let stat = batch.add(Request::exists(&path), protocol::read_stat);
        batch.send();
        match replaced.within(self.0.limit()).await.and_then(all_done) {
            // Or an earlier try was done, and its answer lost.
            Ok(_) | Err(Failure::Refused(code::NODE_EXISTS)) => {}
            Err(Failure::Refused(code::NO_NODE) | Failure::Expired) => return Err(claim.gone()),
            Err(failure) => return Err(failed(failure)),
        }
        let stat = stat.within(self.0.limit()).await.map_err(failed)?;
        self.0.check_owner(&session, &stat)?;
        self.0.book.moved(claim.id, Node { path, czxid: stat.czxid, ..node });
        Ok(())
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let failed = |failure: Failure| failure.to_error("list locks");
        let (limit, chroot) = (self.0.limit(), &self.0.sessions.settings().chroot);
        let session = self.0.sessions.usable().await.map_err(failed)?;
        let is_wanted = |child: &str| NodeName::parse(child).is_some();
        let found = tree::find(&session, chroot, prefix, is_wanted, limit).await.map_err(failed)?;
        let mut locks = Vec::new();
        for lock in found.into_iter().take(at_most) {
            let nodes =
                tree::read_all(&session, &lock.directory, &lock.claims, limit).await.map_err(failed)?;
            let mut claims: Vec<_> = nodes
                .into_iter()
                .filter_map(|(name, data, stat)| {
                    let node = NodeName::parse(&name)?;
                    Some((node.sequence, view(&name, node.demand, &data, &stat)))
                })
                .collect();
            claims.sort_by(|(one, _), (other, _)| one.order(*other));
            if !claims.is_empty() {
                let claims = claims.into_iter().map(|(_, claim)| claim).collect();
                locks.push(LockView::from_queue(lock.name, claims));
            }
        }
        Ok(locks)
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let failed = |failure: Failure| failure.to_error("evict a claim");
        let directory = self.0.directory(name);
        let session = self.0.sessions.usable().await.map_err(failed)?;
        let children = match session.children(&directory, self.0.limit()).await {
            Err(Failure::Refused(code::NO_NODE)) => return Ok(false),
            children => children.map_err(failed)?,
        };
        let own = |child: &&String| NodeName::parse(child).is_some_and(|node| node.id == Some(id));
        let mut evicted = false;
        for child in children.iter().filter(own) {
            match session.delete(&format!("{directory}/{child}"), self.0.limit()).await {
                Ok(()) => evicted = true,
                Err(Failure::Refused(code::NO_NODE)) => {}
                Err(failure) => return Err(failed(failure)),
            }
        }
        Ok(evicted)
    }

    async fn close(&self) {
        self.0.sessions.close().await;
    }
}
