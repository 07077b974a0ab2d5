//! The engine from within: what other processes' deaths and pauses leave behind, made by hand.

mod broken;
mod detached;
mod order;
pub(crate) mod stall;
mod vanished;

use crate::claim_file::{self, ClaimName, hash_of};
use crate::config::Config;
use crate::queue::FileQueue;
use crate::shard::index;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{Ahead, Claim, ClaimId, Clock, Joined, LockName, Moment, Queue};
use lockkeeper_core::{Demand, Holder};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A liveness limit: reached only when something is stuck.
const STUCK: Duration = Duration::from_secs(30);

struct Place {
    temporary: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { temporary: tempfile::tempdir().unwrap() }
    }

    fn root(&self) -> PathBuf {
        self.temporary.path().join("locks")
    }

    /// An engine as another process would have it: nothing shared but the directory.
    fn engine(&self) -> Arc<FileQueue> {
        let address = Address::parse(&format!("file:{}", self.root().display())).unwrap();
        let config = Config::take(address).unwrap();
        config.prepare().unwrap();
        Arc::new(FileQueue::new(config).unwrap())
    }

    fn shard(&self, name: &str) -> PathBuf {
        self.root().join(format!("{:02x}", index(hash_of(name))))
    }

    fn gate(&self, name: &str) -> PathBuf {
        self.shard(name).join("gate")
    }

    /// The names of all files but gates.
    fn leftovers(&self) -> Vec<String> {
        let shards = std::fs::read_dir(self.root()).unwrap().map(|shard| shard.unwrap().path());
        let files = shards.flat_map(|shard| std::fs::read_dir(shard).unwrap());
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("gate")).collect()
    }

    /// A claim's file as somebody else's process makes it; locked if that process lives.
    fn plant(&self, place: u64, claim: &Claim, expires_at: Moment, alive: bool) -> File {
        let hash = hash_of(claim.name.as_str());
        let name = ClaimName { place, hash, demand: claim.demand, id: claim.id };
        self.plant_as(name, claim, expires_at, alive)
    }

    fn plant_as(&self, name: ClaimName, claim: &Claim, expires_at: Moment, alive: bool) -> File {
        let shard = self.root().join(format!("{:02x}", index(name.hash)));
        std::fs::create_dir_all(&shard).unwrap();
        let file = File::create_new(shard.join(name.file_name())).unwrap();
        if alive {
            file.lock().unwrap();
        }
        let content = claim_file::encode(claim, Clock::Boot.now(), expires_at, false);
        claim_file::write_at(&file, &content, 0).unwrap();
        file
    }
}

fn claim(name: &str, demand: Demand) -> Claim {
    claim_for(name, demand, Duration::from_secs(60))
}

fn claim_for(name: &str, demand: Demand, ttl: Duration) -> Claim {
    Claim {
        id: ClaimId::random(),
        name: LockName::new(name).unwrap(),
        demand,
        holder: Arc::new(Holder::here("a test")),
        keeper: ClaimId(1),
        ttl,
    }
}

fn mutex(name: &str) -> Claim {
    claim(name, Demand::Exclusive)
}

fn far() -> Moment {
    Clock::Boot.now().plus(Duration::from_secs(3600))
}

/// Waits for a change ahead, as the core does.
async fn changed(files: &FileQueue, claim: &Claim, joined: Joined) -> lockkeeper_core::Result<Ahead> {
    let changed = files.changed(claim, joined.place, joined.ahead);
    tokio::time::timeout(STUCK, changed).await.expect("nothing woke the waiter")
}

/// Lets a wait begin: afterwards its watches are set.
fn begin(waiting: &mut (impl Future + Unpin)) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(waiting).poll(&mut context).is_pending(), "there is nothing to wait for");
}
