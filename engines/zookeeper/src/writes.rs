//! Creates and deletes of many tasks, as one transaction.
//!
//! What a write costs ZooKeeper is mostly its way through the server, not the node. So when more tasks write than requests should
//! be under way, theirs go together, all or none; if one is refused, each is sent on its own. One alone goes as it is.

use crate::common::check_owner;
use crate::failure::Failure;
use crate::protocol::{self, Acl, Created, Mode, Outcome, Request, Step};
use crate::session::Session;
use crate::sweep::sweep_later;
use futures_util::future::join_all;
use lockkeeper_core::{Batch, Batcher, Claim, background, send_apart};
use std::sync::Arc;
use std::time::Duration;

/// So many requests are under way before others gather.
const AT_ONCE: usize = 4;

/// So many travel together; far below what the server takes in one packet.
const AT_MOST: usize = 32;

/// Sends writes, several together when there are many.
pub(crate) fn batcher(acl: Vec<Acl>) -> Batcher<Writes> {
    Batcher::new(Writes { acl }, background::handle().clone(), AT_ONCE)
}

/// How writes travel together.
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
    /// The node of a claim, with its sequence appended.
    Create {
        claim: Claim,
        directory: String,
        path: String,
        data: Vec<u8>,
        /// Must tell whether it is alone.
        touch: bool,
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
    /// It is known to be the only one in its directory.
    pub(crate) alone: bool,
}

impl Made {
    /// Both steps are one transaction, so the directory's last change is what made the node.
    pub(crate) fn read(outcomes: impl IntoIterator<Item = Outcome>) -> Result<Self, Failure> {
        let mut outcomes = outcomes.into_iter();
        match (outcomes.next(), outcomes.next()) {
            (Some(Outcome::Created(path)), Some(Outcome::Touched(directory))) => {
                Ok(Self { path, czxid: directory.mzxid, alone: directory.children == 1 })
            }
            _ => Err(strange()),
        }
    }
}

/// The steps that make a claim's node and tell whether it is alone.
pub(crate) fn create_and_touch<'a>(
    directory: &'a str,
    path: &'a str,
    data: &'a [u8],
    acl: &'a [Acl],
) -> [Step<'a>; 2] {
    [Step::Create { path, data, acl, mode: Mode::EphemeralSequential }, Step::Touch { path: directory }]
}

impl What {
    /// The directory of the lock.
    fn directory(&self) -> &str {
        match self {
            Self::Create { directory, .. } => directory,
            Self::Delete { path } => path.rsplit_once('/').map_or("", |(directory, _)| directory),
        }
    }
}

impl Batch for Writes {
    type Ask = Write;
    type Answer = Result<Written, Failure>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, asks: &[Write]) -> Vec<Self::Answer> {
        if let [ask] = asks {
            return vec![self.alone(ask).await];
        }
        // Of one session, and no directory twice: the claims of one transaction are told apart by their locks.
        send_apart(asks, |ask| (ask.session.id(), ask.what.directory()), |writes| self.together(writes)).await
    }

    /// The claim's leave may have looked for the node before this was sent.
    fn unheard(&self, ask: Write, answer: Self::Answer) {
        let Write { session, limit, what: What::Create { claim, directory, .. } } = ask else { return };
        match answer {
            Ok(Written::Made(made)) => {
                background::handle().spawn(async move {
                    let deleted = session.delete(&made.path, limit).await;
                    if let Err(Failure::Unknown(_) | Failure::NotSent(_)) = deleted {
                        sweep_later(&session, directory, claim, limit);
                    }
                });
            }
            Err(Failure::Unknown(_)) => sweep_later(&session, directory, claim, limit),
            _ => {}
        }
    }
}

impl Writes {
    async fn alone(&self, write: &Write) -> Result<Written, Failure> {
        let Write { session, limit, what } = write;
        match what {
            What::Create { directory, path, data, touch: true, .. } => {
                let steps = create_and_touch(directory, path, data, &self.acl);
                Made::read(session.multi(&steps, *limit).await?).map(Written::Made)
            }
            What::Create { path, data, .. } => {
                let request = Request::create(path, data, &self.acl, Mode::EphemeralSequential);
                let answer = session.one(request, protocol::read_created).within(*limit).await;
                let Created { path, stat } = answer?;
                check_owner(session, &stat)?;
                Ok(Written::Made(Made { path, czxid: stat.czxid, alone: false }))
            }
            What::Delete { path } => session.delete(path, *limit).await.map(|()| Written::Deleted),
        }
    }

    /// Sends writes to different locks as one.
    async fn together(&self, writes: Vec<&Write>) -> Vec<Result<Written, Failure>> {
        let (Some(first), 2..) = (writes.first(), writes.len()) else {
            return join_all(writes.into_iter().map(|write| self.alone(write))).await;
        };
        let mut steps = Vec::new();
        for write in &writes {
            match &write.what {
                What::Create { directory, path, data, .. } => {
                    steps.extend(create_and_touch(directory, path, data, &self.acl));
                }
                What::Delete { path } => steps.push(Step::Delete { path }),
            }
        }
        match first.session.multi(&steps, first.limit).await {
            Ok(outcomes) => read(&writes, outcomes),
            // Nothing was done, and only one of them may be at fault.
            Err(Failure::Refused(_)) => join_all(writes.into_iter().map(|write| self.alone(write))).await,
            Err(failure) => vec![Err(failure); writes.len()],
        }
    }
}

/// What was done for each.
fn read(writes: &[&Write], outcomes: Vec<Outcome>) -> Vec<Result<Written, Failure>> {
    let mut outcomes = outcomes.into_iter();
    let answers = writes.iter().map(|write| match write.what {
        What::Create { .. } => Made::read(outcomes.by_ref().take(2)).map(Written::Made),
        What::Delete { .. } if outcomes.next() == Some(Outcome::Done) => Ok(Written::Deleted),
        What::Delete { .. } => Err(strange()),
    });
    answers.collect()
}

/// An answer of another kind than the question.
pub(crate) fn strange() -> Failure {
    Failure::Unknown("the answer does not fit the question".into())
}
