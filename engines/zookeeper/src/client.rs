//! What both styles do over the session: directories, writes, renewals, and the end of claims that are not renewed. Apart, since
//! neither style is the owner of it.

use crate::batch::{self, What, Write, Writes, Written};
use crate::claims::{Claims, Node};
use crate::error::{RequestError, Retries, code};
use crate::keys;
use crate::protocol::{self, Mode, Request, Stat, Step};
use crate::session::{Session, Sessions};
use lockkeeper_core::engine::{Batcher, ClaimId, Clock, Kept, Left, LockName, Renewal, background};
use lockkeeper_core::{Result, Token};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a lock's directory may vanish under our hands: the server removes it when it is empty.
pub(crate) const DIRECTORY_TRIES: usize = 5;

/// The directory of requests to release: a node for each claim that somebody asks for, which lives as long as the session of the
/// one who asks. It is mostly empty or missing, so that every renewal can list it.
const ASKS: &str = "lockkeeper-asks";

/// The sessions and claims of one engine.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) sessions: Sessions,
    pub(crate) claims: Claims,
    writes: Batcher<Writes>,
}

impl Client {
    pub(crate) fn start(sessions: Sessions) -> Arc<Self> {
        let writes = batch::batcher(sessions.settings().acl.clone());
        let client = Arc::new(Self { sessions, claims: Claims::default(), writes });
        background::handle().spawn(end_lapsed(Arc::downgrade(&client), client.sessions.timeout() / 15));
        client
    }

    pub(crate) fn limit(&self) -> Duration {
        self.sessions.limit()
    }

    pub(crate) fn directory(&self, name: &LockName) -> String {
        keys::directory(&self.sessions.settings().chroot, name.as_str())
    }

    /// Writes alone or together with other tasks.
    pub(crate) async fn write(&self, session: &Arc<Session>, what: What) -> Result<Written, RequestError> {
        let write = Write { session: Arc::clone(session), limit: self.limit(), what };
        let ended = || Err(RequestError::NotSent("the background runtime has ended".into()));
        self.writes.request(write).await.unwrap_or_else(ended)
    }

    fn container(&self, path: &str) -> Request {
        Request::create(path, &[], &self.sessions.settings().acl, Mode::Container)
    }

    /// Makes a lock's directory if all above it is there, without waiting: what is sent after it comes after it.
    pub(crate) fn make_directory(&self, session: &Session, directory: &str) {
        let mut requests = session.requests();
        requests.add_without_reply(self.container(directory));
        requests.send();
    }

    /// Makes a lock's directory and what is above it, as containers: the server removes them when they have
    /// been empty for a while, so idle locks need no room (Law 8: tokens do not depend on them).
    pub(crate) async fn make_parents(&self, session: &Session, directory: &str) -> Result<(), RequestError> {
        let ends = directory.match_indices('/').map(|(at, _)| at).skip(1).chain([directory.len()]);
        let mut requests = session.requests();
        let replies: Vec<_> =
            ends.map(|end| requests.add(self.container(&directory[..end]), protocol::read_created)).collect();
        requests.send();
        for reply in replies {
            match reply.within(self.limit()).await {
                // One above may be another's, and closed to us; what counts is the last one.
                Ok(_) | Err(RequestError::Refused(code::NODE_EXISTS | code::NO_AUTH)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Renews all claims in one go: says as of when the leader is known to have had the session, which is what keeps
    /// the nodes, and which of them were evicted.
    pub(crate) async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let session = self.sessions.present();
        for renewal in renewals {
            self.claims.renewed(renewal.claim.id, renewal.ttl);
        }
        let timeout = self.sessions.timeout();
        let mut dead = self.of_other_sessions(&session, renewals);
        let (evicted, asked) = tokio::join!(
            self.evicted(&session, renewals, timeout / 18),
            self.asked(&session, renewals, timeout / 18)
        );
        match evicted {
            Ok(evicted) => dead.extend(evicted),
            Err(RequestError::Expired | RequestError::AuthFailed) => return Ok(all_dead(renewals)),
            // An eviction that is not seen now is seen by the next renewal.
            Err(error) => tracing::debug!(%error, "could not look for evicted claims"),
        }
        let recently = Clock::Boot.now().minus(timeout / 3);
        let silent = || RequestError::Unknown("the leader has not replied lately".into()).into_error("renew");
        let as_of = session.alive_as_of().filter(|alive| *alive >= recently).ok_or_else(silent)?;
        Ok(Kept::new(dead).as_of(as_of).asked(asked))
    }

    fn asks(&self) -> String {
        keys::directory(&self.sessions.settings().chroot, ASKS)
    }

    /// Asks for a claim to be released, for as long as this session lives.
    pub(crate) async fn ask(&self, id: ClaimId) -> Result<()> {
        let mut tries = Retries::few();
        loop {
            match self.ask_once(id).await {
                Err(RequestError::Refused(code::NODE_EXISTS)) => return Ok(()),
                // The server removes an empty directory.
                Err(error) if tries.again_after(&error) => {}
                asked => return asked.map_err(|error| error.into_error("ask a holder to release")),
            }
        }
    }

    async fn ask_once(&self, id: ClaimId) -> Result<(), RequestError> {
        let (session, directory) = (self.sessions.usable().await?, self.asks());
        self.make_parents(&session, &directory).await?;
        let (path, acl) = (format!("{directory}/{id}"), &self.sessions.settings().acl);
        let step = Step::Create { path: &path, data: &[], acl, mode: Mode::Ephemeral };
        session.multi(&[step], self.limit()).await.map(drop)
    }

    /// Which of these claims somebody asks for. What is not seen now is seen by the next renewal.
    async fn asked(&self, session: &Session, renewals: &[Renewal], limit: Duration) -> Vec<ClaimId> {
        let Ok(asks) = session.children(&self.asks(), limit).await else { return Vec::new() };
        let asks: HashSet<ClaimId> = asks.iter().filter_map(|id| id.parse().ok()).collect();
        renewals.iter().map(|renewal| renewal.claim.id).filter(|id| asks.contains(id)).collect()
    }

    /// The claims that died with an earlier session.
    fn of_other_sessions(&self, session: &Session, renewals: &[Renewal]) -> Vec<ClaimId> {
        let ids = renewals.iter().map(|renewal| renewal.claim.id);
        ids.filter(|id| self.claims.node(*id).is_none_or(|node| node.session != session.id())).collect()
    }

    /// The claims of the session in use whose nodes are gone: one request, however many there are.
    async fn evicted(
        &self,
        session: &Session,
        renewals: &[Renewal],
        limit: Duration,
    ) -> Result<Vec<ClaimId>, RequestError> {
        // Noted before the request is sent, so that the reply knows all of them.
        let nodes: Vec<(ClaimId, Node)> = renewals
            .iter()
            .filter_map(|renewal| Some((renewal.claim.id, self.claims.node(renewal.claim.id)?)))
            .filter(|(_, node)| node.session == session.id())
            .collect();
        let existing: HashSet<String> = session.ephemerals(limit).await?.into_iter().collect();
        let latest = self.claims.latest();
        let is_gone = |node: &Node| {
            // The style 'plain' makes nodes again at the same path, also for another claim of this keeper.
            !existing.contains(&node.path) || latest.get(&node.path).is_some_and(|last| *last > node.czxid)
        };
        // A downgrade may have put another node in its place meanwhile.
        let gone = nodes.iter().filter(|(id, node)| is_gone(node) && self.claims.is_settled(*id, node.czxid));
        Ok(gone.map(|(id, _)| *id).collect())
    }

    /// The claim has left: nothing of it is known any more.
    pub(crate) fn forget(&self, id: ClaimId) {
        self.claims.forget(id);
        self.sessions.present().lifeline().untie(id);
    }

    /// Deletes a claim's node, and no later one at the same path.
    pub(crate) async fn remove(&self, session: &Arc<Session>, node: &Node) -> Result<Left, RequestError> {
        let removed = match (node.version, node.path.rsplit_once('/')) {
            (Some(version), Some((directory, _))) => {
                let steps = [Step::Check { path: directory, version }, Step::Delete { path: &node.path }];
                session.multi(&steps, self.limit()).await.map(drop)
            }
            _ => self.write(session, What::Delete { path: node.path.clone() }).await.map(drop),
        };
        match removed {
            Ok(()) => Ok(Left::Left),
            Err(RequestError::Refused(code::BAD_VERSION | code::NO_NODE) | RequestError::Expired) => {
                Ok(Left::NotThere)
            }
            Err(error) => Err(error),
        }
    }
}

/// Removes claims that their keeper has stopped renewing, as long as the engine is there.
///
/// A session is kept alive by its connection, also if nobody renews. So that a claim ends with its TTL, as on every
/// engine, and a fixed lease with its own, the engine removes what was not renewed. The keeper has stopped
/// trusting such a claim before.
async fn end_lapsed(client: Weak<Client>, every: Duration) {
    loop {
        Clock::Boot.sleep(every).await;
        let Some(client) = client.upgrade() else { return };
        for (id, node) in client.claims.lapsed() {
            let removed = match client.sessions.living(node.session) {
                Some(session) => client.remove(&session, &node).await.is_ok(),
                None => true,
            };
            // If it failed, it is tried again, or the session is over by then.
            if removed {
                tracing::debug!(claim = %id, "removed a claim that was not renewed");
                client.claims.forget(id);
            }
        }
    }
}

/// Before a grant counts: the node must be of the session that is in use now, not of one before it.
pub(crate) fn check_owner(session: &Session, stat: &Stat) -> Result<(), RequestError> {
    let is_ours = stat.ephemeral_owner == session.id() && !session.is_over();
    if is_ours { Ok(()) } else { Err(RequestError::Expired) }
}

fn all_dead(renewals: &[Renewal]) -> Kept {
    Kept::new(renewals.iter().map(|renewal| renewal.claim.id).collect())
}

/// Transaction numbers are never negative.
pub(crate) fn token_of(czxid: i64) -> Token {
    Token(u64::try_from(czxid).unwrap_or_default())
}
