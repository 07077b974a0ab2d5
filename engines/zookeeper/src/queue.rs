//! The fair style: claims are ephemeral sequential nodes, and each waits for those that block it.

use crate::claims::Node;
use crate::client::{Client, check_owner};
use crate::error::{RequestError, Retries, code};
use crate::keys::NodeName;
use crate::protocol::{self, Mode, Request, Step};
use crate::session::{Sessions, all_done};
use crate::view::{self, Content};
use crate::wake::{Woken, wait_for};
use lockkeeper_core::engine::{
    Ahead, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Place, Queue, Renewal,
};
use lockkeeper_core::{Abilities, Demand, LockView, Result};
use std::sync::Arc;
use std::time::Duration;

/// The fair style on one ensemble.
#[derive(Debug)]
pub(crate) struct ZooKeeperQueue(pub(crate) Arc<Client>);

impl ZooKeeperQueue {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self(Client::start(sessions))
    }

    /// As Curator does it: a node of the new kind with the old one's sequence. Both steps in one, so that the
    /// claim is never twice in the queue, nor not at all.
    async fn shrink_once(&self, claim: &Claim, to: Demand) -> Result<(), RequestError> {
        let settings = self.0.sessions.settings();
        let node = self.0.claims.node(claim.id).ok_or(RequestError::Expired)?;
        let session = self.0.sessions.living(node.session).ok_or(RequestError::Expired)?;
        session.connected(self.0.limit()).await?;
        let (directory, sequence) = node.place().ok_or(RequestError::Expired)?;
        let path = format!("{directory}/{}{sequence}", settings.naming.prefix(claim.id, to));
        let data = Content::of(claim, to, Some(node.token), self.0.claims.held_for(claim.id));
        let steps = [
            Step::Create { path: &path, data: &data, acl: &settings.acl, mode: Mode::Ephemeral },
            Step::Delete { path: &node.path },
        ];
        self.0.claims.moving(claim.id);
        let mut requests = session.requests();
        let replaced = requests.add(Request::multi(&steps), protocol::read_multi);
        let stat = requests.add(Request::exists(&path), protocol::read_stat);
        requests.send();
        match replaced.within(self.0.limit()).await.and_then(all_done) {
            // Or an earlier try was done, and its reply lost.
            Ok(_) | Err(RequestError::Refused(code::NODE_EXISTS)) => {}
            Err(error) => return Err(error),
        }
        let stat = stat.within(self.0.limit()).await?;
        check_owner(&session, &stat)?;
        self.0.claims.moved(claim.id, Node { path, czxid: stat.czxid, ..node });
        Ok(())
    }

    /// Writes into the nodes of new holds since when they hold, which only those who look read: without a reply, and never
    /// over data that was changed since, so that it may be sent again. Who watches such a node looks again, once.
    fn note_grants(&self, renewals: &[Renewal]) {
        let session = self.0.sessions.present();
        let epoch = session.epoch();
        if !session.is_connected() {
            return;
        }
        let mut requests = session.requests();
        for Renewal { claim, held_for, .. } in renewals {
            let Some(held_for) = *held_for else { continue };
            let Some(node) = self.0.claims.granted(claim.id, held_for, session.id(), epoch) else {
                continue;
            };
            let name = node.path.rsplit_once('/').and_then(|(_, name)| NodeName::parse(name));
            if let Some(name) = name {
                // The token stands there only after a downgrade, which has written the time already if it knew it.
                let token = (node.token != node.czxid).then_some(node.token);
                let data = Content::of(claim, name.demand, token, Some(held_for));
                requests.add_without_reply(Request::replace(&node.path, &data));
            }
        }
        requests.send();
    }

    async fn list_once(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>, RequestError> {
        let (limit, chroot) = (self.0.limit(), &self.0.sessions.settings().chroot);
        let session = self.0.sessions.usable().await?;
        let is_wanted = |child: &str| NodeName::parse(child).is_some();
        let found = view::find(&session, chroot, prefix, is_wanted, limit).await?;
        let mut locks = Vec::new();
        for lock in found.into_iter().take(at_most) {
            let nodes = view::read_all(&session, &lock.directory, &lock.claims, limit).await?;
            let mut claims: Vec<_> = nodes
                .into_iter()
                .filter_map(|(name, data, stat)| {
                    let node = NodeName::parse(&name)?;
                    Some((node.sequence, view::claim(&name, node.demand, &data, &stat)))
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
}

impl Queue for ZooKeeperQueue {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, _asked: Duration) -> Duration {
        self.0.sessions.timeout()
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        let failed = |error: RequestError| error.into_error("join the queue");
        let directory = self.0.directory(&claim.name);
        let session = self.0.sessions.usable().await.map_err(failed)?;
        if self.0.claims.was_sent(claim.id, session.id())
            && let Some((node, children)) =
                self.find_again(&session, claim, &directory).await.map_err(failed)?
        {
            return self.joined(&session, claim, &node, &children).await;
        }
        self.create_and_look(&session, claim, &directory).await
    }

    async fn changed(&self, claim: &Claim, _place: Place, seen: Ahead) -> Result<Ahead> {
        let failed = |error: RequestError| match error {
            RequestError::Expired => claim.gone(),
            other => other.into_error("watch the claims ahead"),
        };
        let node = self.0.claims.node(claim.id).ok_or_else(|| claim.gone())?;
        let session = self.0.sessions.living(node.session).ok_or_else(|| claim.gone())?;
        let mut blockers = self.0.claims.take_blockers(claim.id);
        loop {
            session.connected(self.0.limit()).await.map_err(failed)?;
            if !blockers.is_empty() {
                if wait_for(&session, &blockers, self.0.limit()).await.map_err(failed)? == Woken::Over {
                    return Err(claim.gone());
                }
                session.connected(self.0.limit()).await.map_err(failed)?;
            }
            let look = self.look(&session, claim, &node).await?;
            if look.ahead < seen || look.blockers.is_empty() {
                self.0.claims.waits_for(claim.id, look.blockers);
                return Ok(look.ahead);
            }
            blockers = look.blockers;
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        self.note_grants(renewals);
        self.0.keep(renewals).await
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let mut tries = Retries::few();
        loop {
            match self.leave_once(claim).await {
                Err(error) if tries.again_after(&error) => {}
                left => {
                    let left = left.map_err(|error| error.into_error("leave the queue"))?;
                    self.0.forget(claim.id);
                    return Ok(left);
                }
            }
        }
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let mut tries = Retries::few();
        loop {
            match self.shrink_once(claim, to).await {
                Err(error) if tries.again_after(&error) => {}
                Err(RequestError::Refused(code::NO_NODE) | RequestError::Expired) => return Err(claim.gone()),
                done => return done.map_err(|error| error.into_error("downgrade")),
            }
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let mut tries = Retries::few();
        loop {
            match self.list_once(prefix, at_most).await {
                Err(error) if tries.again_after(&error) => {}
                locks => return locks.map_err(|error| error.into_error("list locks")),
            }
        }
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let directory = self.0.directory(name);
        let (mut tries, mut sent) = (Retries::few(), false);
        loop {
            match self.evict_once(&directory, id, &mut sent).await {
                Err(error) if tries.again_after(&error) => {}
                evicted => return evicted.map_err(|error| error.into_error("evict a claim")),
            }
        }
    }

    async fn ask(&self, _: &LockName, id: ClaimId) -> Result<bool> {
        self.0.ask(id).await.map(|()| true)
    }

    async fn close(&self) {
        self.0.sessions.close().await;
    }
}
