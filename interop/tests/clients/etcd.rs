//! Go's concurrency package beside our queue on etcd: Mutex and Election.

use crate::peers::{Peer, SOON, contend};
use lockkeeper::{Connect, Keeper};
use lockkeeper_testkit::Etcd;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::timeout;

static ETCD: LazyLock<Etcd> = LazyLock::new(Etcd::start);

async fn both() -> (Keeper, Peer) {
    let ttl = Duration::from_secs(10);
    let keeper = Connect::to(ETCD.url()).namespace("").ttl(ttl).connect().await.expect("a keeper");
    let endpoint = format!("127.0.0.1:{}", ETCD.servers()[0].port());
    (keeper, Peer::go("etcd", &endpoint).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn gos_mutex_stands_in_one_queue_with_ours() {
    let (keeper, mut go) = both().await;
    go.must("a lock go/mutex", "locked").await;
    assert!(keeper.mutex("go/mutex").try_lock().await.unwrap().is_none());
    let mutex = keeper.mutex("go/mutex");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    while keeper.inspect("go/mutex").await.unwrap()[0].claims.len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Behind us, although it is quicker.
    go.send("b lock go/mutex").await;
    while keeper.inspect("go/mutex").await.unwrap()[0].claims.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    go.must("a unlock go/mutex", "unlocked").await;
    let guard = timeout(SOON, waiting).await.expect("it is our turn").unwrap();
    assert_eq!(go.reply_within("b", Duration::from_millis(200)).await, None);
    go.must("a try go/mutex", "busy").await;
    guard.release().await.unwrap();
    assert_eq!(go.reply("b").await, "locked");
    go.must("b unlock go/mutex", "unlocked").await;
    contend(&ETCD.url(), &mut go, "go/contended", 4, Duration::from_secs(5)).await.is_fair();
}

#[tokio::test(flavor = "multi_thread")]
async fn gos_election_and_ours_see_each_others_leader() {
    let (keeper, mut go) = both().await;
    let election = keeper.election("go/election");
    let mut leaders = election.observe();
    go.must("watch observe go/election", "observes").await;
    go.must("a campaign go/election the-leader-of-go", "leads").await;
    assert_eq!(go.reply("watch").await, "observed the-leader-of-go");
    let seen = timeout(SOON, async {
        loop {
            if let Some(leader) = leaders.changed().await.unwrap() {
                return leader;
            }
        }
    });
    assert_eq!(seen.await.expect("we see it").holder.text, "the-leader-of-go");
    assert!(election.try_campaign().await.unwrap().is_none());
    let campaign = keeper.election("go/election");
    let campaign = tokio::spawn(async move { campaign.campaign().await.unwrap() });
    go.must("a resign go/election", "resigned").await;
    let guard = timeout(SOON, campaign).await.expect("we are elected").unwrap();
    let leader = election.leader().await.unwrap().expect("a leader");
    assert!(!leader.foreign);
    let observed = go.reply("watch").await;
    assert!(observed.contains(&leader.id), "{observed}");
    assert!(go.call("a leader go/election").await.contains(&leader.id));
    guard.release().await.unwrap();
    go.must("b campaign go/election again", "leads").await;
    assert_eq!(election.leader().await.unwrap().unwrap().holder.text, "again");
}
