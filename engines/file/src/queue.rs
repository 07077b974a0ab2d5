//! The verbs of the queue, on files.

use crate::claim_file::{self, hash_of};
use crate::config::Config;
use crate::error::{ENGINE, from_errno};
use crate::gate::{self, Entrance};
use crate::join::join;
use crate::look::{self, Look, Verdict};
use crate::own_claim::{Adopted, OwnClaim};
use crate::shard::Shards;
use crate::view;
use crate::wake::Watching;
use lockkeeper_core::engine::{
    Ahead, Attached, Claim, ClaimId, Clock, Joined, Kept, Left, LockName, Moment, Place, Queue, Renewal,
    Worker, background, grant,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often to look again after a wake-up whose cause does not show yet: the kernel reports that a file was closed just
/// before it drops the file's lock.
const LOOKS_AFTER_A_WAKE_UP: u32 = 5;

const ATTACH: &str = "attach a hold";

/// How often to try to take over a claim that somebody looks at, a millisecond apart.
const ATTACH_TRIES: u32 = 100;

/// The limit of a request that is not bound to a claim's TTL.
const LIMIT: Duration = Duration::from_secs(2);

/// The engine.
///
/// Calls of the user's task are served inline, on its own thread: a join and a leave take some 16 µs together, and two trips
/// to another thread would add about as much in processor time. What the background runtime calls (renewals, departures,
/// the end of the engine) is served by the engine's thread: a disk that stalls must not stop the renewals of other engines.
pub(crate) struct FileQueue {
    pub(crate) files: Arc<Files>,
    worker: Worker,
}

impl FileQueue {
    pub(crate) fn new(config: Config) -> Result<Self> {
        Ok(Self { files: Arc::new(Files::new(config)), worker: Worker::start(ENGINE)? })
    }
}

/// Closing files may wait for the disk.
impl Drop for FileQueue {
    fn drop(&mut self) {
        let files = Arc::clone(&self.files);
        self.worker.send(move || files.close());
    }
}

/// Locks in a directory.
pub(crate) struct Files {
    pub(crate) shards: Shards,
    /// The mutex is never held over a system call, since the background takes it.
    own: Mutex<HashMap<ClaimId, Arc<OwnClaim>>>,
}

impl Files {
    fn new(config: Config) -> Self {
        Self { shards: Shards::new(config), own: Mutex::default() }
    }

    /// Closes every file.
    fn close(&self) {
        let own = std::mem::take(&mut *self.owns());
        drop(own);
        self.shards.close_idle();
    }

    fn owns(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<OwnClaim>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn own(&self, id: ClaimId) -> Option<Arc<OwnClaim>> {
        self.owns().get(&id).cloned()
    }

    pub(crate) fn remember(&self, own: OwnClaim) {
        let before = self.owns().insert(own.name.id, Arc::new(own));
        drop(before);
    }

    /// Forgets a claim. It is closed when the last reference is dropped.
    pub(crate) fn forget(&self, id: ClaimId) -> Option<Arc<OwnClaim>> {
        self.owns().remove(&id)
    }

    /// A look at what is ahead of our claim, and at the claim itself: a dead one must not be granted.
    fn look(&self, claim: &Claim, own: &OwnClaim) -> Result<Look> {
        let looked = self.look_in(claim, own);
        looked
            .map_err(|errno| from_errno("look at the queue", &own.shard.path, errno))?
            .ok_or_else(|| claim.gone())
    }

    fn look_in(&self, claim: &Claim, own: &OwnClaim) -> Result<Option<Look>, Errno> {
        let claims = match own.shard.claims() {
            Err(Errno::NOENT) => return Ok(None),
            claims => claims?,
        };
        let ahead = look::ahead_of(&claims, own.name.hash, own.name.place);
        let look = look::weigh(claim, &ahead, |other| look::inspect(&own.shard, other))?;
        // After the queue was read: had the claim been removed before, a claim behind it may hold.
        Ok((own.stands()? && own.shard.is_in_place()?).then_some(look))
    }

    /// Whether the blockers still stand as they were seen, after watches were set on them.
    fn nothing_changed(&self, claim: &Claim, own: &OwnClaim, look: &Look) -> Result<bool> {
        let failed = |errno| from_errno("look at the queue", &own.shard.path, errno);
        for blocker in &look.blockers {
            if !look::still_stands(&own.shard, claim, blocker).map_err(failed)? {
                return Ok(false);
            }
        }
        own.stands().map_err(failed)
    }

    /// Watches the blockers and our own claim.
    fn watch(&self, own: &OwnClaim, look: &Look) -> Watching {
        let blockers = look.blockers.iter().map(|blocker| own.shard.path.join(blocker.name.file_name()));
        Watching::on(blockers.chain([own.shard.path.join(&own.file_name)]))
    }

    /// Removes blockers that were never finished. Only inside the gate this can be decided; if it is busy, next time.
    fn clear_unfinished(&self, own: &OwnClaim, look: &Look) -> Result<(), Errno> {
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

    /// Asks for the claim of this id to be released; `false` if there is none.
    fn ask_by_id(&self, name: &LockName, id: ClaimId) -> Result<bool, Errno> {
        let hash = hash_of(name.as_str());
        let Some(shard) = self.shards.existing(hash)? else { return Ok(false) };
        let found = shard.claims()?.into_iter().find(|claim| claim.hash == hash && claim.id == id);
        let Some(claim) = found else { return Ok(false) };
        let Verdict::Alive(content) = look::inspect(&shard, &claim)? else { return Ok(false) };
        match shard.open_file(&claim.file_name(), OFlags::RDWR) {
            Err(Errno::NOENT) => Ok(false),
            opened => claim_file::write_ask(opened?, &content).map(|()| true),
        }
    }

    /// Renews the claims; says which are dead, and which somebody asks for.
    fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let mut kept = Kept::default();
        let mut failed = None;
        for renewal in renewals {
            let claim = &renewal.claim;
            let Some(own) = self.own(claim.id) else {
                kept.dead.push(claim.id);
                continue;
            };
            match own.renew(renewal).and_then(|alive| Ok(alive && own.shard.is_in_place()?)) {
                Ok(true) => kept.asked.extend(own.is_asked().unwrap_or(false).then_some(claim.id)),
                Ok(false) => {
                    // Dead anyway, whether or not its file can be removed.
                    self.forget(claim.id);
                    let _ = own.leave();
                    kept.dead.push(claim.id);
                }
                // The others are renewed all the same.
                Err(errno) => failed = Some(from_errno("renew", &own.shard.path, errno)),
            }
        }
        failed.map_or(Ok(kept), Err)
    }

    /// Takes over a detached claim.
    fn adopt(&self, renewal: &Renewal) -> Result<Adopted> {
        let failed = |errno| from_errno(ATTACH, &self.shards.config.root, errno);
        let hash = hash_of(renewal.claim.name.as_str());
        let shard = self.shards.of(hash).map_err(failed)?;
        let claims = shard.claims().map_err(failed)?;
        let found = claims.into_iter().find(|claim| claim.hash == hash && claim.id == renewal.claim.id);
        let Some(name) = found else { return Ok(Adopted::Gone) };
        OwnClaim::adopt(&shard, name, renewal).map_err(failed)
    }

    /// Ends a claim: removes its file and closes it. A file that cannot be removed is closed all the same, so that others
    /// find its owner gone.
    fn leave(&self, name: &LockName, id: ClaimId, own: Option<Arc<OwnClaim>>) -> Result<Left> {
        let left = match own {
            Some(own) => own.leave(),
            // Not a claim of this engine, or not any more.
            None => self.remove_by_id(name, id),
        };
        let left = left.map_err(|errno| from_errno("leave the queue", &self.shards.config.root, errno))?;
        Ok(if left { Left::Left } else { Left::NotThere })
    }
}

impl Queue for FileQueue {
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
        join(&self.files, claim).await
    }

    async fn changed(&self, claim: &Claim, _place: Place, seen: Ahead) -> Result<Ahead> {
        let files = &self.files;
        let own = files.own(claim.id).ok_or_else(|| claim.gone())?;
        let mut looks_left = 0;
        loop {
            let look = files.look(claim, &own)?;
            let fits = grant::fits(look.ahead.0, claim.demand.weight(), claim.demand.limit());
            if look.ahead < seen || fits {
                return Ok(look.ahead);
            }
            let mut watching = files.watch(&own, &look);
            if !files.nothing_changed(claim, &own, &look)? {
                continue;
            }
            let look_at = look.blockers.iter().map(|blocker| blocker.look_at).min().unwrap_or(Moment::NEVER);
            let soon = Clock::Boot.now().plus(Duration::from_millis(1));
            let look_at = if looks_left > 0 { soon.min(look_at) } else { look_at };
            looks_left = tokio::select! {
                () = watching.changed() => LOOKS_AFTER_A_WAKE_UP,
                () = Clock::Boot.sleep_until(look_at) => looks_left.saturating_sub(1),
            };
            let cleared = files.clear_unfinished(&own, &look);
            cleared.map_err(|errno| from_errno("look at the queue", &own.shard.path, errno))?;
        }
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let shortest = renewals.iter().map(|renewal| renewal.claim.ttl).min().unwrap_or(LIMIT);
        let (files, renewals) = (Arc::clone(&self.files), renewals.to_vec());
        self.worker.run("renew", shortest / 4, move || files.keep(&renewals)).await?
    }

    async fn attach(&self, renewal: &Renewal, _: Token) -> Result<Option<Attached>> {
        for _ in 0..ATTACH_TRIES {
            match self.files.adopt(renewal)? {
                Adopted::Taken(own) => {
                    self.files.remember(own);
                    return Ok(Some(Attached::default()));
                }
                Adopted::Gone => return Ok(None),
                Adopted::Busy => Clock::Boot.sleep(Duration::from_millis(1)).await,
            }
        }
        let name = &renewal.claim.name;
        Err(Error::invalid(format!(
            "another process holds '{name}' by this handle now: wait until it has ended"
        )))
    }

    fn detached(&self, claim: &Claim) {
        let Some(own) = self.files.forget(claim.id) else { return };
        own.detach();
        if background::is_current_thread() {
            // Closing files may wait for the disk.
            self.worker.send(move || drop(own));
        }
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        // Forgotten at once: if the disk stalls, the claim is closed when it goes on, whether or not this is given up.
        let own = self.files.forget(claim.id);
        if !background::is_current_thread() {
            return self.files.leave(&claim.name, claim.id, own);
        }
        let (files, name, id) = (Arc::clone(&self.files), claim.name.clone(), claim.id);
        self.worker.run("leave the queue", claim.ttl / 4, move || files.leave(&name, id, own)).await?
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let own = self.files.own(claim.id).ok_or_else(|| claim.gone())?;
        let failed = |errno| from_errno("downgrade", &own.shard.path, errno);
        own.shrink(to).map_err(failed)?;
        if own.stands().map_err(failed)? { Ok(()) } else { Err(claim.gone()) }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let (files, prefix) = (Arc::clone(&self.files), prefix.to_owned());
        // Not on the engine's thread: renewals do not wait until many files have been read.
        let list = move || view::list(&files.shards, &prefix, at_most);
        let listed = background::handle().spawn_blocking(list).await;
        listed.map_err(|error| Error::temporary(ENGINE, "list locks", error))?
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let evicted = self.files.remove_by_id(name, id);
        evicted.map_err(|errno| from_errno("evict a claim", &self.files.shards.config.root, errno))
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let asked = self.files.ask_by_id(name, id);
        asked.map_err(|errno| from_errno("ask a holder to release", &self.files.shards.config.root, errno))
    }

    async fn close(&self) {
        let files = Arc::clone(&self.files);
        let _ = self.worker.run("close", LIMIT, move || files.shards.close_idle()).await;
    }
}
