//! Curator of Maven Central beside our queue on ZooKeeper; Debian's, which is older, is in the tests of that engine.

use crate::peers::{Peer, SOON, contend};
use lockkeeper::{Connect, Keeper};
use lockkeeper_testkit::ZooKeeper;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::timeout;

static ZOOKEEPER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);

async fn both(parameters: &str) -> (Keeper, Peer) {
    let url = format!("{}{parameters}", ZOOKEEPER.url());
    let keeper = Connect::to(url).namespace("").connect().await.expect("a keeper");
    let address = format!("127.0.0.1:{}", ZOOKEEPER.servers()[0].port());
    (keeper, Peer::java("CuratorPeer", &[&address]).await)
}

/// Waits until this number of claims hold or wait.
async fn until_claims(keeper: &Keeper, name: &str, count: usize) {
    let look = async {
        while keeper.inspect(name).await.unwrap().first().map_or(0, |lock| lock.claims.len()) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, look).await.expect("the claims are seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn curators_mutex_stands_in_one_queue_with_ours() {
    let (keeper, mut java) = both("").await;
    java.must("a lock mutex curator", "locked").await;
    let mutex = keeper.mutex("curator");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_claims(&keeper, "curator", 2).await;
    java.send("b lock mutex curator").await;
    until_claims(&keeper, "curator", 3).await;
    java.must("a unlock mutex curator", "unlocked").await;
    let guard = timeout(SOON, waiting).await.expect("it is our turn").unwrap();
    assert_eq!(java.reply_within("b", Duration::from_millis(200)).await, None);
    guard.release().await.unwrap();
    assert_eq!(java.reply("b").await, "locked");
    java.must("b unlock mutex curator", "unlocked").await;
    contend(&ZOOKEEPER.url(), &mut java, "curator-contended", 4, Duration::from_secs(5)).await.is_fair();
}

#[tokio::test(flavor = "multi_thread")]
async fn curators_read_write_lock_shares_with_ours() {
    let (keeper, mut java) = both("?names=curator-rw").await;
    let lock = keeper.rwlock("curator-rw");
    java.must("a lock read curator-rw", "locked").await;
    let reader = lock.read().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    java.send("b lock write curator-rw").await;
    until_claims(&keeper, "curator-rw", 3).await;
    java.must("a unlock read curator-rw", "unlocked").await;
    assert_eq!(java.reply_within("b", Duration::from_millis(200)).await, None, "we still read");
    reader.release().await.unwrap();
    assert_eq!(java.reply("b").await, "locked");
    assert!(lock.try_read().await.unwrap().is_none());
    java.must("b unlock write curator-rw", "unlocked").await;
    lock.write().await.unwrap().release().await.unwrap();
}
