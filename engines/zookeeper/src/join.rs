//! Joining the fair queue: create the node and look, in one round trip.

use crate::book::Node;
use crate::common::{check_owner, token_of};
use crate::content::Content;
use crate::failure::{ENGINE, Failure, code};
use crate::keys::nodes_of;
use crate::look::Look;
use crate::protocol::{Created, Mode};
use crate::queue::ZooKeeperQueue;
use crate::session::Session;
use lockkeeper_core::{Claim, Error, Joined, Place, Result};

/// How often a lock's directory may vanish under our hands: the server removes it when it is empty.
const PARENT_TRIES: usize = 5;

impl ZooKeeperQueue {
    /// Creates the claim's node and looks, sent together: the look is done after the create, without a wait
    /// in between.
    pub(crate) async fn create_and_look(
        &self,
        session: &Session,
        claim: &Claim,
        directory: &str,
    ) -> Result<Joined> {
        let failed = |failure: Failure| failure.into_error("join the queue");
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
                    let mut children = children.within(common.limit()).await.map_err(failed)?;
                    if common.book.is_in_doubt(claim.id) {
                        self.remove_repeated(session, claim, &node, &mut children).await.map_err(failed)?;
                    }
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
        check_owner(session, &created.stat).map_err(|failure| failure.into_error("join the queue"))?;
        let czxid = created.stat.czxid;
        let node = Node { session: session.id(), path: created.path, czxid, version: None, token: czxid };
        self.0.book.made(claim.id, node.clone(), epoch);
        Ok(node)
    }

    /// The answer to a join whose node stands; a claim of the wrong shape leaves again (Law 6).
    pub(crate) async fn joined(
        &self,
        session: &Session,
        claim: &Claim,
        node: &Node,
        children: &[String],
    ) -> Result<Joined> {
        let (directory, sequence) = node.place().ok_or_else(|| claim.gone())?;
        let look = Look::from_place(children, sequence, claim.demand);
        if let Err(mismatch) = claim.check_shape(look.ruling) {
            match session.delete(&node.path, self.0.limit()).await {
                Ok(()) | Err(Failure::Refused(code::NO_NODE) | Failure::Expired) => {}
                Err(failure) => return Err(failure.into_error("leave the queue")),
            }
            self.0.book.forget(claim.id);
            return Err(mismatch);
        }
        self.0.book.renewed(claim.id, claim.ttl);
        self.0.book.waits_for(claim.id, look.blocker_paths(directory));
        // The sequence counts from zero again when the directory was removed; the transaction never does.
        let token = token_of(node.token);
        Ok(Joined {
            place: Place(token.0),
            token,
            ahead: look.ahead,
            lifeline: Some(session.lifeline().clone()),
        })
    }

    /// Finds the node of a join that was sent before, whose answer was lost (Law 4). A node of an earlier
    /// session is a ghost: it goes with that session, and must not be taken for ours.
    pub(crate) async fn find_again(
        &self,
        session: &Session,
        claim: &Claim,
        directory: &str,
    ) -> Result<Option<(Node, Vec<String>)>, Failure> {
        let limit = self.0.limit();
        let children = match session.children_now(directory, limit).await {
            Err(Failure::Refused(code::NO_NODE)) => return Ok(None),
            children => children?,
        };
        let paths: Vec<String> =
            nodes_of(claim.id, &children).map(|child| format!("{directory}/{child}")).collect();
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

    /// Removes what an earlier create of the same claim has left, that came after all: the claim must not stand
    /// behind itself.
    async fn remove_repeated(
        &self,
        session: &Session,
        claim: &Claim,
        node: &Node,
        children: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let Some((directory, _)) = node.place() else { return Ok(()) };
        let repeated: Vec<String> = nodes_of(claim.id, children)
            .filter(|child| !node.path.ends_with(child.as_str()))
            .cloned()
            .collect();
        for child in repeated {
            match session.delete(&format!("{directory}/{child}"), self.0.limit()).await {
                Ok(()) | Err(Failure::Refused(code::NO_NODE)) => children.retain(|other| *other != child),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}
