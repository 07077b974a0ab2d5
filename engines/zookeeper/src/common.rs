//! What both styles share: parents, renewal, and the view of a node.

use crate::book::{Book, Node};
use crate::content::{Content, foreign_holder};
use crate::failure::{Failure, code};
use crate::keys;
use crate::lapse;
use crate::protocol::{self, Mode, Request, Stat, Step};
use crate::recent::Recent;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::writes::{self, What, Write, Writes, Written};
use lockkeeper_core::{
    Batcher, ClaimId, ClaimView, Clock, Demand, Kept, Left, LockName, Renewal, Result, Standing, Token,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The ground both styles stand on.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) sessions: Sessions,
    pub(crate) book: Book,
    pub(crate) recent: Recent,
    writes: Batcher<Writes>,
}

impl Common {
    pub(crate) fn start(sessions: Sessions) -> Arc<Self> {
        let writes = writes::batcher(sessions.settings().acl.clone());
        let common = Arc::new(Self { sessions, book: Book::default(), recent: Recent::default(), writes });
        lapse::start(&common);
        common
    }

    pub(crate) fn limit(&self) -> Duration {
        self.sessions.limit()
    }

    pub(crate) fn directory(&self, name: &LockName) -> String {
        keys::directory(&self.sessions.settings().chroot, name.as_str())
    }

    pub(crate) fn create(&self, path: &str, data: &[u8], mode: Mode) -> Request {
        Request::create(path, data, &self.sessions.settings().acl, mode)
    }

    /// Writes alone or together with other tasks.
    pub(crate) async fn write(&self, session: &Arc<Session>, what: What) -> Result<Written, Failure> {
        let write = Write { session: Arc::clone(session), limit: self.limit(), what };
        let ended = || Err(Failure::NotSent("the keeper's thread has ended".into()));
        self.writes.ask(write).await.unwrap_or_else(ended)
    }

    /// Makes a lock's directory if all above it is there, and does not wait: what is sent after it comes after it.
    pub(crate) fn make_directory(&self, session: &Session, directory: &str) {
        drop(session.one(self.create(directory, &[], Mode::Container), protocol::read_created));
    }

    /// Makes a lock's directory and what is above it, as containers: the server removes them when they have
    /// been empty for a while, so idle locks need no room (Law 8: tokens do not depend on them).
    pub(crate) async fn make_parents(&self, session: &Session, directory: &str) -> Result<(), Failure> {
        let ends = directory.match_indices('/').map(|(at, _)| at).skip(1).chain([directory.len()]);
        let mut batch = session.batch();
        let answers: Vec<_> =
            ends.map(|end| batch.create(self.create(&directory[..end], &[], Mode::Container))).collect();
        batch.send();
        for answer in answers {
            match answer.within(self.limit()).await {
                // One above may be another's, and closed to us; what counts is the last one.
                Ok(_) | Err(Failure::Refused(code::NODE_EXISTS | code::NO_AUTH)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Renews all claims in one go: says as of when the leader is known to have had the session, which is what keeps
    /// the nodes, and which of them were evicted.
    pub(crate) async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let session = self.sessions.present();
        for renewal in renewals {
            self.book.renewed(renewal.claim.id, renewal.ttl);
        }
        let timeout = self.sessions.timeout();
        let mut dead = self.of_other_sessions(&session, renewals);
        match self.evicted(&session, renewals, timeout / 18).await {
            Ok(evicted) => dead.extend(evicted),
            Err(Failure::Expired | Failure::AuthFailed) => return Ok(all_dead(renewals)),
            // An eviction that is not seen now is seen by the next renewal.
            Err(failure) => tracing::debug!(%failure, "could not look for evicted claims"),
        }
        let recently = Clock::Boot.now().minus(timeout / 3);
        let silent = || Failure::Unknown("the leader has not answered lately".into()).into_error("renew");
        let as_of = session.alive_as_of().filter(|alive| *alive >= recently).ok_or_else(silent)?;
        Ok(Kept { dead, as_of: Some(as_of) })
    }

    /// The claims that died with an earlier session.
    fn of_other_sessions(&self, session: &Session, renewals: &[Renewal]) -> Vec<ClaimId> {
        let ids = renewals.iter().map(|renewal| renewal.claim.id);
        ids.filter(|id| self.book.node(*id).is_none_or(|node| node.session != session.id())).collect()
    }

    /// The claims of the session in use whose nodes are gone: one request, however many there are.
    async fn evicted(
        &self,
        session: &Session,
        renewals: &[Renewal],
        limit: Duration,
    ) -> Result<Vec<ClaimId>, Failure> {
        // Noted before the question is sent, so that the answer knows all of them.
        let nodes: Vec<(ClaimId, Node)> = renewals
            .iter()
            .filter_map(|renewal| Some((renewal.claim.id, self.book.node(renewal.claim.id)?)))
            .filter(|(_, node)| node.session == session.id())
            .collect();
        let standing: HashSet<String> = session.ephemerals(limit).await?.into_iter().collect();
        let latest = self.book.latest();
        let is_gone = |node: &Node| {
            // The plain style makes nodes again at the same path, also another claim of ours.
            !standing.contains(&node.path) || latest.get(&node.path).is_some_and(|last| *last > node.czxid)
        };
        // A downgrade may have put another node in its place since we asked.
        let gone = nodes.iter().filter(|(id, node)| is_gone(node) && self.book.is_settled(*id, node.czxid));
        Ok(gone.map(|(id, _)| *id).collect())
    }

    /// The claim has left: nothing of it is known any more.
    pub(crate) fn forget(&self, id: ClaimId) {
        self.book.forget(id);
        self.sessions.present().lifeline().untie(id);
    }

    /// Deletes a claim's node, and no later one at the same path.
    pub(crate) async fn remove(&self, session: &Arc<Session>, node: &Node) -> Result<Left, Failure> {
        let removed = match (node.version, node.path.rsplit_once('/')) {
            (Some(version), Some((directory, _))) => {
                let steps = [Step::Check { path: directory, version }, Step::Delete { path: &node.path }];
                session.multi(&steps, self.limit()).await.map(drop)
            }
            _ => self.write(session, What::Delete { path: node.path.clone() }).await.map(drop),
        };
        match removed {
            Ok(()) => Ok(Left::Left),
            Err(Failure::Refused(code::BAD_VERSION | code::NO_NODE) | Failure::Expired) => Ok(Left::NotThere),
            Err(failure) => Err(failure),
        }
    }
}

/// Before a grant counts: the node must be of the session that is in use now, not of one before it.
pub(crate) fn check_owner(session: &Session, stat: &Stat) -> Result<(), Failure> {
    let is_ours = stat.ephemeral_owner == session.id() && !session.is_over();
    if is_ours { Ok(()) } else { Err(Failure::Expired) }
}

fn all_dead(renewals: &[Renewal]) -> Kept {
    Kept { dead: renewals.iter().map(|renewal| renewal.claim.id).collect(), as_of: None }
}

/// A node as people see it. Its demand is what its name says.
pub(crate) fn view(name: &str, demand: Demand, data: &[u8], stat: &Stat) -> ClaimView {
    let ours = Content::read(data);
    let id = keys::NodeName::parse(name).and_then(|node| node.id).map(|id| id.to_string());
    let token = ours.as_ref().and_then(|content| content.token).unwrap_or(stat.czxid);
    ClaimView {
        id: ours.as_ref().map(|content| content.claim.clone()).or(id).unwrap_or_else(|| name.to_owned()),
        standing: Standing::Waits,
        demand,
        foreign: ours.is_none(),
        holder: ours.map_or_else(|| foreign_holder(data), |content| content.holder),
        token: Some(token_of(token)),
        age: age(stat.ctime_ms),
        // Only the leader knows when a session expires.
        ttl_left: None,
    }
}

/// Transaction numbers are never negative.
pub(crate) fn token_of(czxid: i64) -> Token {
    Token(u64::try_from(czxid).unwrap_or_default())
}

/// For people only: the server's wall clock against ours.
fn age(ctime_ms: i64) -> Option<Duration> {
    let created = Duration::from_millis(u64::try_from(ctime_ms).ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(created))
}
