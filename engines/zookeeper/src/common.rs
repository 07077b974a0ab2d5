//! What both styles share: parents, renewal, and the view of a node.

use crate::book::{Book, Node};
use crate::content::{Content, foreign_holder};
use crate::failure::{Failure, code};
use crate::keys;
use crate::lapse;
use crate::protocol::{self, Mode, Request, Stat, Step};
use crate::session::Session;
use crate::sessions::Sessions;
use lockkeeper_core::{
    ClaimId, ClaimView, Clock, Demand, Kept, Left, LockName, Renewal, Result, Standing, Token,
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

    /// Renews all claims in one go: looks whether each node is still the one that was made, and says as of when
    /// the leader is known to have had the session.
    ///
    /// If the look takes too long, that moment is enough: the session is what keeps the nodes. Without a
    /// connection everything is uncertain.
    pub(crate) async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let failed = |failure: Failure| failure.into_error("renew");
        let session = self.sessions.present();
        for renewal in renewals {
            self.book.renewed(renewal.claim.id, renewal.ttl);
        }
        let patience = self.sessions.trusted() / 12;
        let looked = tokio::time::timeout(patience, self.look_after(&session, renewals)).await;
        let why = match looked {
            Ok(Ok(kept)) => return Ok(kept),
            Ok(Err(Failure::Expired | Failure::AuthFailed)) => return Ok(all_dead(renewals)),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Unknown(format!("nothing within {patience:?}")),
        };
        let recently = Clock::Boot.now().minus(self.sessions.trusted() / 4);
        match session.alive_as_of().filter(|alive| *alive >= recently && session.is_connected()) {
            Some(as_of) => Ok(Kept { dead: self.of_other_sessions(&session, renewals), as_of: Some(as_of) }),
            None => Err(failed(why)),
        }
    }

    /// The claims that died with an earlier session.
    fn of_other_sessions(&self, session: &Session, renewals: &[Renewal]) -> Vec<ClaimId> {
        let ids = renewals.iter().map(|renewal| renewal.claim.id);
        ids.filter(|id| self.book.node(*id).is_none_or(|node| node.session != session.id())).collect()
    }

    async fn look_after(&self, session: &Session, renewals: &[Renewal]) -> Result<Kept, Failure> {
        session.connected(self.limit()).await?;
        let sent = Clock::Boot.now();
        let mut dead = self.of_other_sessions(session, renewals);
        let mut batch = session.batch();
        let sign_of_life = batch.add(Request::sync("/"), |_| Ok(()));
        let mut looks = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let id = renewal.claim.id;
            if let Some(node) = self.book.node(id).filter(|node| node.session == session.id()) {
                let look = batch.add(Request::exists(&node.path), protocol::read_stat);
                looks.push((id, node.czxid, look));
            }
        }
        batch.send();
        sign_of_life.within(self.limit()).await?;
        for (id, czxid, look) in looks {
            match look.within(self.limit()).await {
                Ok(stat) if stat.czxid == czxid && stat.ephemeral_owner == session.id() => {}
                // A downgrade may have put another node in its place since we asked.
                Ok(_) | Err(Failure::Refused(code::NO_NODE)) if self.book.is_settled(id, czxid) => {
                    dead.push(id)
                }
                Ok(_) | Err(Failure::Refused(code::NO_NODE)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Kept { dead, as_of: Some(sent) })
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
