//! The verbs of the queue, on files.

use crate::claim_file::hash_of;
use crate::config::Config;
use crate::gate::{self, Entrance};
use crate::join::join;
use crate::look::{self, Look};
use crate::own::Own;
use crate::shards::Shards;
use crate::trouble::{ENGINE, trouble};
use crate::view;
use crate::wake::Watching;
use lockkeeper_core::{
    Abilities, Ahead, Claim, ClaimId, Clock, Demand, Error, Joined, Kept, Left, LockName, LockView, Moment,
    Place, Queue, Renewal, Result, background, grant,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After a ring whose cause is not to be seen yet, look again so often: the system tells that a file was closed
/// just before it drops the file's lock.
const LOOKS_AFTER_A_RING: u32 = 5;

/// Locks in a directory.
pub(crate) struct Files {
    pub(crate) shards: Arc<Shards>,
    own: Mutex<HashMap<ClaimId, Arc<Own>>>,
}

impl Files {
    pub(crate) fn new(config: Config) -> Self {
        Self { shards: Arc::new(Shards::new(config)), own: Mutex::default() }
    }

    fn owns(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Own>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn own(&self, id: ClaimId) -> Option<Arc<Own>> {
        self.owns().get(&id).cloned()
    }

    pub(crate) fn remember(&self, own: Own) {
        self.owns().insert(own.name.id, Arc::new(own));
    }

    /// Ends a claim: removes its file, forgets and closes it. `false` if it was dead before. A file that cannot be
    /// removed is closed all the same, so that others find its owner gone.
    pub(crate) fn end(&self, own: &Own) -> Result<bool, Errno> {
        let stood = own.leave();
        self.owns().remove(&own.name.id);
        stood
    }

    /// A look at what stands ahead of our claim, and at the claim itself: a dead one must not be granted.
    fn look(&self, claim: &Claim, own: &Own) -> Result<Look> {
        let looked = self.look_in(claim, own);
        looked
            .map_err(|errno| trouble("look at the queue", &own.shard.path, errno))?
            .ok_or_else(|| claim.gone())
    }

    fn look_in(&self, claim: &Claim, own: &Own) -> Result<Option<Look>, Errno> {
        let claims = match own.shard.claims() {
            Err(Errno::NOENT) => return Ok(None),
            claims => claims?,
        };
        let ahead = look::ahead_of(&claims, own.name.hash, own.name.place);
        let look = look::weigh(claim, &ahead, |other| look::inspect(&own.shard, other))?;
        // After the queue was read: had the claim been removed before, somebody behind it may hold.
        Ok((own.stands()? && own.shard.is_in_place()?).then_some(look))
    }

    /// Whether the blockers still stand as they were seen, after watches were set on them.
    fn nothing_changed(&self, claim: &Claim, own: &Own, look: &Look) -> Result<bool> {
        let failed = |errno| trouble("look at the queue", &own.shard.path, errno);
        for blocker in &look.blockers {
            if !look::still_stands(&own.shard, claim, blocker).map_err(failed)? {
                return Ok(false);
            }
        }
        own.stands().map_err(failed)
    }

    /// Rings when a blocker or our own claim may be gone.
    fn watch(&self, own: &Own, look: &Look) -> Watching {
        let blockers = look.blockers.iter().map(|blocker| own.shard.path.join(blocker.name.file_name()));
        Watching::on(blockers.chain([own.shard.path.join(&own.file_name)]))
    }

    /// Removes blockers that were never finished. Only inside the gate one can tell; if it is busy, next time.
    fn clear_unfinished(&self, own: &Own, look: &Look) -> Result<(), Errno> {
        for blocker in look.blockers.iter().filter(|blocker| blocker.unfinished) {
            if let Entrance::Inside(inside) = gate::enter(&own.shard)? {
                look::inspect_inside(&inside, &blocker.name)?;
            }
        }
        Ok(())
    }

    /// Removes whichever claim has this id; `false` if none has.
    fn remove_by_id(&self, name: &LockName, id: ClaimId) -> Result<bool, Errno> {
        let hash = hash_of(name.as_str());
        let Some(shard) = self.shards.existing(hash)? else { return Ok(false) };
        let found = shard.claims()?.into_iter().find(|claim| claim.hash == hash && claim.id == id);
        found.map_or(Ok(false), |claim| shard.remove(&claim.file_name()))
    }
}

impl Queue for Files {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn join(&self, claim: &Claim) -> Result<Joined> {
        join(self, claim).await
    }

    async fn changed(&self, claim: &Claim, _place: Place, seen: Ahead) -> Result<Ahead> {
        let own = self.own(claim.id).ok_or_else(|| claim.gone())?;
        let mut looks_left = 0;
        loop {
            let look = self.look(claim, &own)?;
            let fits = grant::fits(look.ahead.0, claim.demand.weight(), claim.demand.limit());
            if look.ahead < seen || fits {
                return Ok(look.ahead);
            }
            let mut watching = self.watch(&own, &look);
            if !self.nothing_changed(claim, &own, &look)? {
                continue;
            }
            let look_at = look.blockers.iter().map(|blocker| blocker.look_at).min().unwrap_or(Moment::NEVER);
            let soon = Clock::Boot.now().plus(Duration::from_millis(1));
            let look_at = if looks_left > 0 { soon.min(look_at) } else { look_at };
            looks_left = tokio::select! {
                () = watching.rings() => LOOKS_AFTER_A_RING,
                () = Clock::Boot.sleep_until(look_at) => looks_left.saturating_sub(1),
            };
            let cleared = self.clear_unfinished(&own, &look);
            cleared.map_err(|errno| trouble("look at the queue", &own.shard.path, errno))?;
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let mut dead = Vec::new();
        let mut failure = None;
        for Renewal { claim, ttl } in renewals {
            let Some(own) = self.own(claim.id) else {
                dead.push(claim.id);
                continue;
            };
            match own.renew(*ttl).and_then(|kept| Ok(kept && own.shard.is_in_place()?)) {
                Ok(true) => {}
                Ok(false) => {
                    // Dead anyway, whether or not its file can be removed.
                    let _ = self.end(&own);
                    dead.push(claim.id);
                }
                // The others are renewed all the same.
                Err(errno) => failure = Some(trouble("renew", &own.shard.path, errno)),
            }
        }
        failure.map_or(Ok(Kept { dead, as_of: None }), Err)
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let left = match self.own(claim.id) {
            Some(own) => self.end(&own),
            // Not one of ours, or not any more.
            None => self.remove_by_id(&claim.name, claim.id),
        };
        let left = left.map_err(|errno| trouble("leave the queue", &self.shards.config.root, errno))?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let own = self.own(claim.id).ok_or_else(|| claim.gone())?;
        let failed = |errno| trouble("downgrade", &own.shard.path, errno);
        own.shrink(to).map_err(failed)?;
        if own.stands().map_err(failed)? { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let (shards, prefix) = (Arc::clone(&self.shards), prefix.to_owned());
        let listed = background::handle().spawn_blocking(move || view::list(&shards, &prefix, at_most)).await;
        listed.map_err(|error| Error::temporary(ENGINE, "list locks", error))?
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let evicted = self.remove_by_id(name, id);
        evicted.map_err(|errno| trouble("evict a claim", &self.shards.config.root, errno))
    }

    async fn close(&self) {
        self.shards.close_idle();
    }
}
