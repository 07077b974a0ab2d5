//! Creates and deletes of many tasks as one transaction, so that they share a commit.
//!
//! What a write costs ZooKeeper is mostly its commit, not the node. While several writes are under way, further ones are sent
//! together, all or none; if one is refused, each is sent on its own. An uncontended write is sent as it is.

use crate::client::check_owner;
use crate::error::RequestError;
use crate::leave::remove_later;
use crate::protocol::{self, Acl, Mode, Outcome, Request, Step};
use crate::session::{Session, all_done};
use futures_util::future::join_all;
use lockkeeper_core::engine::{Batch, Batcher, Claim, background, send_apart};
use std::sync::Arc;
use std::time::Duration;

/// How many requests are under way before others gather.
const AT_ONCE: usize = 4;

/// How many are sent together; far below what the server takes in one packet.
const AT_MOST: usize = 32;

/// Sends writes, several together when there are many.
pub(crate) fn batcher(acl: Vec<Acl>) -> Batcher<Writes> {
    Batcher::new(Writes { acl }, background::handle().clone(), AT_ONCE)
}

/// How writes are sent together.
pub(crate) struct Writes {
    acl: Vec<Acl>,
}

/// One task's write.
pub(crate) struct Write {
    pub(crate) session: Arc<Session>,
    pub(crate) limit: Duration,
    pub(crate) what: What,
}

/// What is to be written.
pub(crate) enum What {
    /// The node of a claim, to whose path the server appends the sequence; and a look at its directory.
    Create {
        claim: Claim,
        directory: String,
        path: String,
        data: Vec<u8>,
    },
    Delete {
        path: String,
    },
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    Made(Made),
    Deleted,
}

/// A claim's node that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) path: String,
    pub(crate) czxid: i64,
    /// What stood in its directory just after it was made.
    pub(crate) children: Result<Vec<String>, RequestError>,
}

impl What {
    /// The directory of the lock.
    fn directory(&self) -> &str {
        match self {
            Self::Create { directory, .. } => directory,
            Self::Delete { path } => path.rsplit_once('/').map_or("", |(directory, _)| directory),
        }
    }

    fn is_create(&self) -> bool {
        matches!(self, Self::Create { .. })
    }
}

impl Batch for Writes {
    type Request = Write;
    type Reply = Result<Written, RequestError>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, writes: &[Write]) -> Vec<Self::Reply> {
        if let [write] = writes {
            return vec![self.one(write).await];
        }
        // Of one session, and no directory twice: a look must not show a claim that comes behind it as ahead.
        let session_and_lock = |write| {
            let Write { session, what, .. }: &Write = write;
            (session.id(), what.directory())
        };
        send_apart(writes, session_and_lock, |writes| self.together(writes)).await
    }

    /// The claim's leave may have looked for the node before this was sent.
    fn abandoned(&self, write: Write, written: Self::Reply) {
        let Write { session, limit, what: What::Create { claim, directory, .. } } = write else { return };
        match written {
            Ok(Written::Made(made)) => {
                background::handle().spawn(async move {
                    let deleted = session.delete(&made.path, limit).await;
                    if let Err(RequestError::Unknown(_) | RequestError::NotSent(_)) = deleted {
                        remove_later(&session, directory, claim, limit);
                    }
                });
            }
            Err(RequestError::Unknown(_)) => remove_later(&session, directory, claim, limit),
            _ => {}
        }
    }
}

impl Writes {
    async fn one(&self, write: &Write) -> Result<Written, RequestError> {
        let Write { session, limit, what } = write;
        match what {
            What::Create { directory, path, data, .. } => {
                let create = Request::create(path, data, &self.acl, Mode::EphemeralSequential);
                let mut requests = session.requests();
                let created = requests.add(create, protocol::read_created);
                let children = requests.children(directory);
                requests.send();
                let created = created.within(*limit).await?;
                check_owner(session, &created.stat)?;
                let children = children.within(*limit).await;
                Ok(Written::Made(Made { path: created.path, czxid: created.stat.czxid, children }))
            }
            What::Delete { path } => session.delete(path, *limit).await.map(|()| Written::Deleted),
        }
    }

    /// Sends writes to different locks as one.
    async fn together(&self, writes: Vec<&Write>) -> Vec<Result<Written, RequestError>> {
        if writes.len() > 1 {
            match self.transaction(&writes).await {
                Ok(written) => return written.into_iter().map(Ok).collect(),
                // Nothing was done, and only one of them may be the cause.
                Err(RequestError::Refused(_)) => {}
                Err(error) => return vec![Err(error); writes.len()],
            }
        }
        join_all(writes.into_iter().map(|write| self.one(write))).await
    }

    async fn transaction(&self, writes: &[&Write]) -> Result<Vec<Written>, RequestError> {
        let Some(Write { session, limit, .. }) = writes.first() else { return Ok(Vec::new()) };
        let steps: Vec<_> = writes.iter().map(|write| self.step(&write.what)).collect();
        let directories =
            writes.iter().filter(|write| write.what.is_create()).map(|write| write.what.directory());
        let mut requests = session.requests();
        let done = requests.add(Request::multi(&steps), protocol::read_multi);
        let looks = (directories.clone().next().is_some())
            .then(|| requests.add(Request::children_of_all(directories), protocol::read_children_of_all));
        requests.send();
        let outcomes = all_done(done.within(*limit).await?)?;
        let Some(looks) = looks else { return Ok(vec![Written::Deleted; writes.len()]) };
        let czxid = created_in(session, &outcomes, *limit).await.map_err(after_commit)?;
        let mut looks = looks.within(*limit).await.map_err(after_commit)?.into_iter();
        let written = outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Created(path) => {
                let children = looks.next().ok_or_else(unexpected)?.map_err(RequestError::Refused);
                Ok(Written::Made(Made { path, czxid, children }))
            }
            _ => Ok(Written::Deleted),
        });
        written.collect()
    }

    fn step<'a>(&'a self, what: &'a What) -> Step<'a> {
        match what {
            What::Create { path, data, .. } => {
                Step::Create { path, data, acl: &self.acl, mode: Mode::EphemeralSequential }
            }
            What::Delete { path } => Step::Delete { path },
        }
    }
}

/// The transaction that made these nodes, which is in the stat of each.
async fn created_in(session: &Session, outcomes: &[Outcome], limit: Duration) -> Result<i64, RequestError> {
    let mut found = Err(unexpected());
    for outcome in outcomes {
        let Outcome::Created(path) = outcome else { continue };
        found = session.exists(path, limit).await;
        // One may be evicted already.
        if found.is_ok() {
            break;
        }
    }
    let stat = found?;
    check_owner(session, &stat)?;
    Ok(stat.czxid)
}

/// An error behind a transaction that was done: it must not look as if nothing was, or the writes would be repeated.
fn after_commit(error: RequestError) -> RequestError {
    match error {
        RequestError::Refused(_) => RequestError::Unknown(error.to_string()),
        other => other,
    }
}

/// A reply of another kind than the request.
pub(crate) fn unexpected() -> RequestError {
    RequestError::Unknown("the reply does not fit the request".into())
}
