//! Joining the fair queue: create the node and see whether it is alone, in one round trip.

use crate::book::Node;
use crate::common::token_of;
use crate::content::Content;
use crate::failure::{ENGINE, Failure, code};
use crate::keys::{self, nodes_of};
use crate::look::Look;
use crate::protocol::{self, Request};
use crate::queue::ZooKeeperQueue;
use crate::recent::Last;
use crate::session::{Answer, Session, all_done};
use crate::writes::{Made, What, Written, create_and_touch, strange};
use lockkeeper_core::{Claim, Demand, Error, Joined, Place, Result};
use std::sync::Arc;

/// How often a lock's directory may vanish under our hands: the server removes it when it is empty.
const PARENT_TRIES: usize = 5;

fn failed(failure: Failure) -> Error {
    failure.into_error("join the queue")
}

impl ZooKeeperQueue {
    /// Creates the claim's node and touches its directory, whose answer tells whether the claim is alone there: then
    /// it holds, and a look would only cost the server a third request. Whoever may hold beside others looks at once,
    /// sent together with the create; the rest look when they are not alone.
    pub(crate) async fn create_and_look(
        &self,
        session: &Arc<Session>,
        claim: &Claim,
        directory: &str,
    ) -> Result<Joined> {
        let common = &self.0;
        for tries in 0..PARENT_TRIES {
            let epoch = session.epoch();
            common.book.sending(claim.id, session.id(), epoch);
            let (made, look) = match claim.demand {
                Demand::Exclusive => (self.create(session, claim, directory, true).await, None),
                Demand::Shared | Demand::Permits { .. } => {
                    self.create_beside(session, claim, directory).await
                }
            };
            match made {
                Ok(made) => {
                    let node = self.node(session, claim, made.path, made.czxid, epoch).map_err(failed)?;
                    let children = match look {
                        Some(look) => look.within(common.limit()).await,
                        None if made.alone => Ok(Vec::new()),
                        None => session.children(directory, common.limit()).await,
                    };
                    let mut children = children.map_err(failed)?;
                    if common.book.is_in_doubt(claim.id) {
                        self.remove_repeated(session, claim, &node, &mut children).await.map_err(failed)?;
                    }
                    return self.joined(session, claim, &node, &children).await;
                }
                // Mostly only the lock's own directory is missing, and the next try may go right behind it.
                Err(Failure::Refused(code::NO_NODE)) if tries == 0 => {
                    common.make_directory(session, directory)
                }
                Err(Failure::Refused(code::NO_NODE)) => {
                    common.make_parents(session, directory).await.map_err(failed)?;
                }
                Err(failure) => return Err(failed(failure)),
            }
        }
        Err(Error::temporary(ENGINE, "join the queue", "its directory vanished again and again"))
    }

    /// Creates the claim's node where this keeper's last claim was alone. If it is the next one, nobody was there in
    /// between, and it is alone without a look. `None` if the directory is gone, and nothing was made.
    pub(crate) async fn create_next(
        &self,
        session: &Arc<Session>,
        claim: &Claim,
        directory: &str,
        last: Last,
    ) -> Result<Option<Joined>> {
        let common = &self.0;
        let epoch = session.epoch();
        common.book.sending(claim.id, session.id(), epoch);
        let made = match self.create(session, claim, directory, false).await {
            Err(Failure::Refused(code::NO_NODE)) => return Ok(None),
            made => made.map_err(failed)?,
        };
        let node = self.node(session, claim, made.path, made.czxid, epoch).map_err(failed)?;
        let children = if made.alone || last.is_followed_by(&node) {
            Vec::new()
        } else {
            session.children(directory, common.limit()).await.map_err(failed)?
        };
        self.joined(session, claim, &node, &children).await.map(Some)
    }

    /// Creates the claim's node, alone or together with those of other locks.
    async fn create(
        &self,
        session: &Arc<Session>,
        claim: &Claim,
        directory: &str,
        touch: bool,
    ) -> Result<Made, Failure> {
        let (path, data) = self.content(claim, directory);
        let (claim, directory) = (claim.clone(), directory.to_owned());
        match self.0.write(session, What::Create { claim, directory, path, data, touch }).await? {
            Written::Made(made) => Ok(made),
            Written::Deleted => Err(strange()),
        }
    }

    /// Creates the node of a claim that may hold beside others, and looks, in one piece.
    async fn create_beside(
        &self,
        session: &Session,
        claim: &Claim,
        directory: &str,
    ) -> (Result<Made, Failure>, Option<Answer<Vec<String>>>) {
        let (path, data) = self.content(claim, directory);
        let steps = create_and_touch(directory, &path, &data, &self.0.sessions.settings().acl);
        let mut batch = session.batch();
        let created = batch.add(Request::multi(&steps), protocol::read_multi);
        let look = batch.children(directory);
        batch.send();
        let created = created.within(self.0.limit()).await.and_then(all_done);
        (created.and_then(Made::read), Some(look))
    }

    /// The path of the claim's node, but for its sequence, and its data.
    fn content(&self, claim: &Claim, directory: &str) -> (String, Vec<u8>) {
        let naming = self.0.sessions.settings().naming;
        let path = format!("{directory}/{}", naming.prefix(claim.id, claim.demand));
        (path, Content::of(claim, claim.demand, None))
    }

    /// Notes the node that was made, if its session is still in use.
    fn node(
        &self,
        session: &Session,
        claim: &Claim,
        path: String,
        czxid: i64,
        epoch: u64,
    ) -> Result<Node, Failure> {
        if session.is_over() {
            return Err(Failure::Expired);
        }
        let node = Node { session: session.id(), path, czxid, version: None, token: czxid };
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
        if children.iter().all(|child| !keys::is_claim(child) || node.path.ends_with(child.as_str())) {
            self.0.book.is_alone(claim.id);
        }
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
