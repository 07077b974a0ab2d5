//! Joining the fair queue: create the node and look what is ahead, in one round trip. Apart from `queue`, since it also has to find
//! what an earlier try has left.

use crate::batch::{Made, What, Written, unexpected};
use crate::claims::Node;
use crate::client::{DIRECTORY_TRIES, token_of};
use crate::error::{ENGINE, RequestError, code};
use crate::keys::nodes_of;
use crate::queue::ZooKeeperQueue;
use crate::session::Session;
use crate::view::Content;
use crate::wake::Look;
use lockkeeper_core::engine::{Claim, Joined, Place};
use lockkeeper_core::{Error, Result};
use std::sync::Arc;

fn failed(error: RequestError) -> Error {
    error.into_error("join the queue")
}

impl ZooKeeperQueue {
    /// Creates the claim's node and looks, in one write.
    pub(crate) async fn create_and_look(
        &self,
        session: &Arc<Session>,
        claim: &Claim,
        directory: &str,
    ) -> Result<Joined> {
        let client = &self.0;
        for tries in 0..DIRECTORY_TRIES {
            let epoch = session.epoch();
            client.claims.sending(claim.id, session.id(), epoch);
            match self.create(session, claim, directory).await {
                Ok(made) => {
                    let node = self.node(session, claim, made.path, made.czxid, epoch).map_err(failed)?;
                    let mut children = made.children.map_err(failed)?;
                    if client.claims.is_in_doubt(claim.id) {
                        self.remove_repeated(session, claim, &node, &mut children).await.map_err(failed)?;
                    }
                    return self.joined(session, claim, &node, &children).await;
                }
                // Mostly only the lock's own directory is missing, and the next try may be sent right behind it.
                Err(RequestError::Refused(code::NO_NODE)) if tries == 0 => {
                    client.make_directory(session, directory);
                }
                Err(RequestError::Refused(code::NO_NODE)) => {
                    client.make_parents(session, directory).await.map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::temporary(ENGINE, "join the queue", "its directory vanished again and again"))
    }

    /// Creates the claim's node, alone or together with those of other locks.
    async fn create(
        &self,
        session: &Arc<Session>,
        claim: &Claim,
        directory: &str,
    ) -> Result<Made, RequestError> {
        let naming = self.0.sessions.settings().naming;
        let path = format!("{directory}/{}", naming.prefix(claim.id, claim.demand));
        let data = Content::of(claim, claim.demand, None, None);
        let create = What::Create { claim: claim.clone(), directory: directory.to_owned(), path, data };
        match self.0.write(session, create).await? {
            Written::Made(made) => Ok(made),
            Written::Deleted => Err(unexpected()),
        }
    }

    /// Notes the node that was made, if its session is still in use.
    fn node(
        &self,
        session: &Session,
        claim: &Claim,
        path: String,
        czxid: i64,
        epoch: u64,
    ) -> Result<Node, RequestError> {
        if session.is_over() {
            return Err(RequestError::Expired);
        }
        let node = Node { session: session.id(), path, czxid, version: None, token: czxid };
        self.0.claims.made(claim.id, node.clone(), epoch);
        Ok(node)
    }

    /// The result of a join whose node stands; a claim of the wrong shape leaves again (Law 6).
    pub(crate) async fn joined(
        &self,
        session: &Session,
        claim: &Claim,
        node: &Node,
        children: &[String],
    ) -> Result<Joined> {
        let (directory, sequence) = node.place().ok_or_else(|| claim.gone())?;
        let look = Look::from_place(children, directory, sequence, claim.demand);
        if let Err(mismatch) = claim.check_shape(look.ruling) {
            match session.delete(&node.path, self.0.limit()).await {
                Ok(()) | Err(RequestError::Refused(code::NO_NODE) | RequestError::Expired) => {}
                Err(error) => return Err(error.into_error("leave the queue")),
            }
            self.0.claims.forget(claim.id);
            return Err(mismatch);
        }
        self.0.claims.renewed(claim.id, claim.ttl);
        self.0.claims.waits_for(claim.id, look.blockers);
        // The sequence counts from zero again when the directory was removed; the transaction never does.
        let token = token_of(node.token);
        Ok(Joined {
            place: Place(token.0),
            token,
            ahead: look.ahead,
            lifeline: Some(session.lifeline().clone()),
        })
    }

    /// Finds the node of a join that was sent before, whose reply was lost (Law 4). A node of an earlier
    /// session goes with that session, and must not be taken for ours.
    pub(crate) async fn find_again(
        &self,
        session: &Session,
        claim: &Claim,
        directory: &str,
    ) -> Result<Option<(Node, Vec<String>)>, RequestError> {
        let limit = self.0.limit();
        let children = match session.children_now(directory, limit).await {
            Err(RequestError::Refused(code::NO_NODE)) => return Ok(None),
            children => children?,
        };
        let paths: Vec<String> =
            nodes_of(claim.id, &children).map(|child| format!("{directory}/{child}")).collect();
        for path in paths {
            match session.exists(&path, limit).await {
                Ok(stat) if stat.ephemeral_owner == session.id() => {
                    let (session, czxid) = (session.id(), stat.czxid);
                    let node = Node { session, path, czxid, version: None, token: czxid };
                    self.0.claims.moved(claim.id, node.clone());
                    return Ok(Some((node, children)));
                }
                Ok(_) | Err(RequestError::Refused(code::NO_NODE)) => {}
                Err(error) => return Err(error),
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
    ) -> Result<(), RequestError> {
        let Some((directory, _)) = node.place() else { return Ok(()) };
        let repeated: Vec<String> = nodes_of(claim.id, children)
            .filter(|child| !node.path.ends_with(child.as_str()))
            .cloned()
            .collect();
        for child in repeated {
            match session.delete(&format!("{directory}/{child}"), self.0.limit()).await {
                Ok(()) | Err(RequestError::Refused(code::NO_NODE)) => {
                    children.retain(|other| *other != child)
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
