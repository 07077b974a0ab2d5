//! redsync and redislock, whose locks are string keys, beside the style 'plain' and RedLock.

use crate::peers::{Peer, SOON, contend};
use lockkeeper::Connect;
use lockkeeper_testkit::Redis;
use std::time::Duration;
use tokio::time::timeout;

/// Each excludes the other, wakes up after the other's release, and counts with it.
async fn shares(url: &str, mut go: Peer) {
    let keeper =
        Connect::to(url).namespace("").ttl(Duration::from_secs(10)).connect().await.expect("a keeper");
    go.must("a lock go/key", "locked").await;
    assert!(keeper.mutex("go/key").try_lock().await.unwrap().is_none());
    let mutex = keeper.mutex("go/key");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    go.must("a unlock go/key", "unlocked").await;
    let guard = timeout(SOON, waiting).await.expect("we get it").unwrap();
    go.must("a try go/key", "busy").await;
    go.send("a lock go/key").await;
    assert_eq!(go.reply_within("a", Duration::from_millis(200)).await, None);
    guard.release().await.unwrap();
    assert_eq!(go.reply("a").await, "locked");
    go.must("a unlock go/key", "unlocked").await;
    contend(url, &mut go, "go/contended", 4, Duration::from_secs(5)).await.is_shared();
}

fn addresses(servers: &[Redis]) -> String {
    let addresses: Vec<String> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    addresses.join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn redsync_on_one_server_shares_with_the_style_plain() {
    let redis = Redis::start();
    let go = Peer::go("redsync", &format!("127.0.0.1:{}", redis.port())).await;
    shares(&format!("{}?style=plain", redis.url()), go).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redislock_shares_with_the_style_plain() {
    let redis = Redis::start();
    let go = Peer::go("redislock", &format!("127.0.0.1:{}", redis.port())).await;
    shares(&format!("{}?style=plain", redis.url()), go).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redsync_on_five_servers_shares_with_redlock() {
    let servers = Redis::start_many(5);
    let addresses = addresses(&servers);
    let go = Peer::go("redsync", &addresses).await;
    shares(&format!("redlock://{addresses}"), go).await;
}
