//! A disk that does not answer costs only the locks that are on it.

use super::*;
use lockkeeper_core::engine::{Memory, QueueEngine};
use lockkeeper_core::{Guard, Keeper, State};
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

/// The TTL of the keeper on another engine of the same process.
const TTL: Duration = Duration::from_millis(900);

/// The directories whose system calls stall.
static STALLED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static HEALED: Condvar = Condvar::new();

/// Stands before the system calls of renewals and departures, and waits if their disk is stalled.
pub(crate) fn here(path: &Path) {
    let mut stalled = STALLED.lock().unwrap();
    while stalled.iter().any(|root| path.starts_with(root)) {
        stalled = HEALED.wait(stalled).unwrap();
    }
}

/// A disk that is stalled until this is dropped.
struct Stall(PathBuf);

impl Stall {
    fn of(place: &Place) -> Self {
        STALLED.lock().unwrap().push(place.root());
        Self(place.root())
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        STALLED.lock().unwrap().retain(|root| *root != self.0);
        HEALED.notify_all();
    }
}

fn keeper(place: &Place, ttl: Duration) -> Keeper {
    let address = Address::parse(&format!("file:{}", place.root().display())).unwrap();
    let config = Config::take(address).unwrap();
    config.prepare().unwrap();
    let engine = Arc::new(QueueEngine(FileQueue::new(config).unwrap()));
    Keeper::builder().ttl(ttl).build(engine).unwrap()
}

/// Watches the lock of another engine for three of its TTLs.
fn stays_held(guard: &Guard, doing: &str) {
    let start = Instant::now();
    while start.elapsed() < TTL * 3 {
        assert_eq!(guard.state(), State::Held, "after {:?} {doing}", start.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_directory_costs_no_other_lock() {
    let elsewhere = Keeper::builder().ttl(TTL).build(Memory::engine()).unwrap();
    let other = elsewhere.mutex("other").lock().await.unwrap();
    let place = Place::new();
    let stalled = keeper(&place, Duration::from_secs(2));
    let [renewed, dropped] = [stalled.mutex("renewed").lock().await, stalled.mutex("dropped").lock().await];
    let renewed = renewed.unwrap();
    let stall = Stall::of(&place);
    drop(dropped);
    stays_held(&other, "of renewals and departures that stall");
    assert_eq!(renewed.state(), State::Lost, "its own lock is not believed in for longer than its TTL");
    drop((stalled, renewed));
    stays_held(&other, "of a close that stalls");
    drop(stall);
    let keeper = keeper(&place, Duration::from_secs(30));
    for name in ["renewed", "dropped"] {
        let mutex = keeper.mutex(name);
        let guard = tokio::time::timeout(STUCK, mutex.lock()).await.expect("still stalled").unwrap();
        guard.release().await.unwrap();
    }
    other.release().await.unwrap();
}
