//! What both styles share: parents, renewal, and the view of a node.

use crate::book::{Book, Node};
use crate::content::{Content, foreign_holder};
use crate::failure::{ENGINE, Failure, code};
use crate::keys;
use crate::lapse;
use crate::protocol::{self, Mode, Request, Stat, Step};
use crate::session::Session;
use crate::sessions::Sessions;
use lockkeeper_core::{
    ClaimView, Clock, Demand, Error, Kept, Left, LockName, Renewal, Result, Standing, Token,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The ground both styles stand on.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) sessions: Sessions,
    pub(crate) book: Book,
}

impl Common {
    pub(crate) fn start(sessions: Sessions) -> Arc<Self> {
        let common = Arc::new(Self { sessions, book: Book::default() });
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

    /// Renews all claims in one go: asks the leader whether the session lives, and looks whether each node is
    /// still the one that was made.
    ///
    /// Any server answers a read, even one that has lost its leader and does not know it yet. A sync goes through
    /// the leader, which refuses it if the session has expired. So its answer is the sign of life to count from.
    pub(crate) async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let failed = |failure: Failure| failure.to_error("renew");
        let session = self.sessions.present();
        match session.connected(self.limit()).await {
            Err(Failure::Expired | Failure::AuthFailed) => return Ok(all_dead(renewals)),
            connected => connected.map_err(failed)?,
        }
        let as_of = Clock::Boot.now();
        let mut dead = Vec::new();
        let mut batch = session.batch();
        let sign_of_life = batch.add(Request::sync("/"), |_| Ok(()));
        let mut looks = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let id = renewal.claim.id;
            match self.book.node(id).filter(|node| node.session == session.id()) {
                Some(node) => {
                    self.book.renewed(id, renewal.ttl);
                    let look = batch.add(Request::exists(&node.path), protocol::read_stat);
                    looks.push((id, node.czxid, look));
                }
                None => dead.push(id),
            }
        }
        batch.send();
        match sign_of_life.within(self.limit()).await {
            Err(Failure::Expired) => return Ok(all_dead(renewals)),
            alive => alive.map_err(failed)?,
        }
        for (id, czxid, look) in looks {
            match look.within(self.limit()).await {
                Ok(stat) if stat.czxid == czxid && stat.ephemeral_owner == session.id() => {}
                Ok(_) | Err(Failure::Refused(code::NO_NODE)) => dead.push(id),
                Err(Failure::Expired) => return Ok(all_dead(renewals)),
                Err(failure) => return Err(failed(failure)),
            }
        }
        Ok(Kept { dead, as_of: Some(as_of) })
    }

    /// Deletes a claim's node, and no later one at the same path.
    pub(crate) async fn remove(&self, session: &Session, node: &Node) -> Result<Left, Failure> {
        let removed = match (node.version, node.path.rsplit_once('/')) {
            (Some(version), Some((directory, _))) => {
                let steps = [Step::Check { path: directory, version }, Step::Delete { path: &node.path }];
                session.multi(&steps, self.limit()).await.map(drop)
            }
            _ => session.delete(&node.path, self.limit()).await,
        };
        match removed {
            Ok(()) => Ok(Left::Left),
            Err(Failure::Refused(code::BAD_VERSION | code::NO_NODE) | Failure::Expired) => Ok(Left::NotThere),
            Err(failure) => Err(failure),
        }
    }

    /// Rule of every grant: the node must be of the session that is in use now, not of one before it.
    pub(crate) fn check_owner(&self, session: &Session, stat: &Stat) -> Result<()> {
        if stat.ephemeral_owner == session.id() && !session.is_over() {
            return Ok(());
        }
        Err(Error::temporary(ENGINE, "join the queue", Failure::Expired))
    }
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
