//! RedLock next to other clients on five nodes: we exclude them and they exclude us.

use crate::common::keeper;
use lockkeeper_core::State;
use lockkeeper_testkit::Redis;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

/// node-redlock and its driver, of just these versions, or why they cannot be had.
fn node_redlock() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-redlock");
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let npm = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--prefix", ".", "redlock@4.2.0", "ioredis@5"])
        .current_dir(&directory)
        .output()
        .map_err(|error| format!("npm cannot be run: {error}"))?;
    match npm.status.success() {
        true => Ok(directory.join("node_modules")),
        false => Err(format!("npm install failed: {}", String::from_utf8_lossy(&npm.stderr))),
    }
}

/// Two processes with node-redlock and two keepers of ours under contention: a counter in a file that nothing else
/// protects stays exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_we_alternate_and_a_shared_counter_stays_exact() {
    const EACH: u64 = 40;
    let modules = match node_redlock() {
        Ok(modules) => modules,
        Err(reason) => {
            eprintln!("skipped, and rslock stands in for it: {reason}");
            return;
        }
    };
    let nodes = Redis::start_many(5);
    let ports: Vec<String> = nodes.iter().map(|node| node.port().to_string()).collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("node-counter-{}", std::process::id()));
    std::fs::write(&path, "0").unwrap();
    let node = |_| {
        Command::new("node")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.js"))
            .args([&ports.join(","), "interop/node"])
            .arg(&path)
            .arg(EACH.to_string())
            .env("NODE_PATH", &modules)
            .spawn()
            .expect("node is there, since npm is")
    };
    let mut theirs: Vec<_> = (0..2).map(node).collect();
    let mut ours = Vec::new();
    for _ in 0..2 {
        let (keeper, path) = (keeper(&nodes, TTL, "restart_delay=0s").await.unwrap(), path.clone());
        ours.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..EACH {
                let guard = keeper.mutex("interop/node").lock().await.unwrap();
                let number: u64 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
                tokio::task::yield_now().await;
                std::fs::write(&path, (number + 1).to_string()).unwrap();
                assert_eq!(guard.state(), State::Held);
                tokens.push(guard.token().unwrap());
                guard.release().await.unwrap();
            }
            tokens
        }));
    }
    for task in ours {
        let tokens =
            tokio::time::timeout(Duration::from_secs(120), task).await.expect("we are served").unwrap();
        assert!(tokens.is_sorted_by(|one, next| one < next));
    }
    for child in &mut theirs {
        assert!(child.wait().unwrap().success(), "node-redlock failed");
    }
    let counted: u64 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(counted, 4 * EACH);
}

/// A client of the crate rslock and ours under contention: a counter that nothing else protects stays exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_we_alternate_and_a_shared_counter_stays_exact() {
    const EACH: u64 = 40;
    let nodes = Redis::start_many(5);
    let counter = Arc::new(AtomicU64::new(0));
    let step = |counter: Arc<AtomicU64>| async move {
        let number = counter.load(SeqCst);
        tokio::task::yield_now().await;
        counter.store(number + 1, SeqCst);
    };
    let urls: Vec<String> = nodes.iter().map(|node| node.url()).collect();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (manager, theirs) = (rslock::LockManager::new(urls.clone()), Arc::clone(&counter));
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let guard = manager.acquire(b"interop/counter", TTL).await.unwrap();
                step(Arc::clone(&theirs)).await;
                guard.release().await;
            }
        }));
        let (keeper, ours) = (keeper(&nodes, TTL, "restart_delay=0s").await.unwrap(), Arc::clone(&counter));
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let guard = keeper.mutex("interop/counter").lock().await.unwrap();
                step(Arc::clone(&ours)).await;
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(120), task).await.expect("everybody is served").unwrap();
    }
    assert_eq!(counter.load(SeqCst), 4 * EACH);
}
