//! Redisson's RLock, RReadWriteLock and RFencedLock beside the styles 'redisson' and 'redisson-rw'.

use crate::peers::{Peer, SOON, contend};
use lockkeeper::{Connect, Guard, Keeper};
use lockkeeper_testkit::{Proxy, Redis, RedisCluster};
use rustix::process::Signal;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

static REDIS: LazyLock<Redis> = LazyLock::new(Redis::start);

/// Of both sides, unless a test says otherwise: a waiter that no message wakes would sleep for as long.
const TTL: Duration = Duration::from_secs(30);
/// A waiter that is awake by then was woken by a message.
const BY_MESSAGE: Duration = Duration::from_secs(10);
/// For tests that wait for it.
const SHORT_TTL: Duration = Duration::from_millis(1500);

async fn keeper(style: &str, ttl: Duration) -> Keeper {
    let url = format!("{}?style={style}", REDIS.url());
    Connect::to(&url).namespace("").ttl(ttl).connect().await.expect("a keeper")
}

/// Redisson with this timeout of its watchdog.
async fn redisson(watchdog: Duration) -> Peer {
    let address = format!("redis://127.0.0.1:{}", REDIS.port());
    Peer::java("RedissonPeer", &["single", &address, &watchdog.as_millis().to_string()]).await
}

fn locking(keeper: &Keeper, name: &str) -> JoinHandle<Guard> {
    let mutex = keeper.mutex(name);
    tokio::spawn(async move { mutex.lock().await.expect("the lock") })
}

/// Waits until this number of clients subscribe to the lock's channel, which they do when they wait.
async fn until_waiting(channel: &str, clients: u64) {
    let client = redis::Client::open(REDIS.url()).expect("a client");
    let mut direct = client.get_multiplexed_async_connection().await.expect("a connection");
    let started = Instant::now();
    loop {
        let mut command = redis::cmd("PUBSUB");
        command.arg("NUMSUB").arg(channel);
        let (_, count): (String, u64) = command.query_async(&mut direct).await.expect("a count");
        if count >= clients {
            return;
        }
        assert!(started.elapsed() < SOON, "{count} clients wait on {channel}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_excludes_the_other_and_a_release_wakes_by_message() {
    let (keeper, mut java) = (keeper("redisson", TTL).await, redisson(TTL).await);
    for turn in 0..5 {
        java.must("a lock mutex both", "locked").await;
        assert!(keeper.mutex("both").try_lock().await.unwrap().is_none());
        let waiting = locking(&keeper, "both");
        until_waiting(&channel("both"), 1).await;
        java.must("a unlock mutex both", "unlocked").await;
        let guard = timeout(BY_MESSAGE, waiting).await.expect("their message wakes us").unwrap();

        java.must("a try mutex both", "busy").await;
        java.send("a lock mutex both").await;
        until_waiting(&channel("both"), 1).await;
        assert_eq!(java.reply_within("a", Duration::from_millis(200)).await, None, "turn {turn}");
        guard.release().await.unwrap();
        let reply = java.reply_within("a", BY_MESSAGE).await;
        assert_eq!(reply.as_deref(), Some("locked"), "our message wakes them");
        java.must("a unlock mutex both", "unlocked").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_waiter_of_both_sides_is_woken_in_its_turn() {
    let (keeper, mut java) = (keeper("redisson", TTL).await, redisson(TTL).await);
    let guard = keeper.mutex("turns").lock().await.unwrap();
    let threads = ["a", "b", "c", "d"];
    for thread in threads {
        java.send(&format!("{thread} turn mutex turns")).await;
    }
    let ours: Vec<_> = threads
        .map(|_| {
            let waiting = locking(&keeper, "turns");
            tokio::spawn(async move { waiting.await.unwrap().release().await.unwrap() })
        })
        .into();
    until_waiting(&channel("turns"), 2).await;
    guard.release().await.unwrap();
    // Each frees the lock for the next, ours or theirs, and only messages say so.
    let all = async {
        for thread in threads {
            assert_eq!(java.reply(thread).await, "had it");
        }
        for ours in ours {
            ours.await.unwrap();
        }
    };
    timeout(BY_MESSAGE, all).await.expect("all of them have had their turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redisson_has_entered_twice_it_must_leave_twice() {
    let (keeper, mut java) = (keeper("redisson", TTL).await, redisson(TTL).await);
    java.must("a lock mutex twice", "locked").await;
    java.must("a lock mutex twice", "locked").await;
    let seen = keeper.inspect("twice").await.unwrap();
    let holder = &seen[0].claims[0];
    assert!(holder.foreign);
    assert!(holder.holder.text.contains("hold count 2"), "{holder:?}");
    java.must("a unlock mutex twice", "unlocked").await;
    assert!(keeper.mutex("twice").try_lock().await.unwrap().is_none());
    java.must("a unlock mutex twice", "unlocked").await;
    let owner = keeper.owner();
    let (one, two) = (owner.mutex("twice").lock().await.unwrap(), owner.mutex("twice").lock().await.unwrap());
    one.release().await.unwrap();
    java.must("a try mutex twice", "busy").await;
    two.release().await.unwrap();
    java.must("a try mutex twice", "locked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_theirs_ends_and_we_get_in() {
    let (keeper, mut java) = (keeper("redisson", TTL).await, redisson(TTL).await);
    java.must("a lock mutex lease 1500", "locked").await;
    let started = Instant::now();
    let guard = timeout(BY_MESSAGE, keeper.mutex("lease").lock()).await.expect("it ends").unwrap();
    assert!(started.elapsed() > Duration::from_millis(500), "{:?}", started.elapsed());
    guard.release().await.unwrap();
    let fixed = keeper.mutex("lease").lease(SHORT_TTL).lock().await.unwrap();
    java.send("b lock mutex lease").await;
    assert_eq!(java.reply_within("b", BY_MESSAGE).await.as_deref(), Some("locked"));
    drop(fixed);
}

#[tokio::test(flavor = "multi_thread")]
async fn watchdogs_of_both_sides_keep_a_long_hold() {
    let (keeper, mut java) = (keeper("redisson", SHORT_TTL).await, redisson(SHORT_TTL).await);
    java.must("a lock mutex long", "locked").await;
    let waiting = locking(&keeper, "long");
    let long = async {
        tokio::time::sleep(SHORT_TTL * 4).await;
        assert!(!waiting.is_finished(), "their watchdog renews");
        java.must("a unlock mutex long", "unlocked").await;
        let guard = waiting.await.unwrap();
        java.send("a lock mutex long").await;
        assert_eq!(java.reply_within("a", SHORT_TTL * 4).await, None, "we renew");
        guard.release().await.unwrap();
        assert_eq!(java.reply("a").await, "locked");
    };
    timeout(SOON, long).await.expect("in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_killed_process_expires_for_the_other_side() {
    let (keeper, mut java) = (keeper("redisson", TTL).await, redisson(SHORT_TTL).await);
    let url = format!("{}?style=redisson", REDIS.url());
    let mut rust = Peer::rust(&url, SHORT_TTL).await;
    assert!(rust.call("a lock killed").await.starts_with("locked "));
    java.send("a lock mutex killed").await;
    until_waiting(&channel("killed"), 1).await;
    rust.signal(Signal::KILL);
    assert_eq!(java.reply_within("a", BY_MESSAGE).await.as_deref(), Some("locked"));
    let waiting = locking(&keeper, "killed");
    until_waiting(&channel("killed"), 1).await;
    java.signal(Signal::KILL);
    timeout(BY_MESSAGE, waiting).await.expect("it expires").unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_unlock_is_a_loss_of_ours_and_an_eviction_wakes_them() {
    let (keeper, mut java) = (keeper("redisson", SHORT_TTL).await, redisson(TTL).await);
    let guard = keeper.mutex("forced").lock().await.unwrap();
    java.must("a force mutex forced", "freed").await;
    java.must("a try mutex forced", "locked").await;
    let error = timeout(SHORT_TTL, guard.lost()).await.expect("told by the next renewal");
    assert!(error.is_lost(), "{error}");
    assert!(guard.release().await.is_err());

    java.send("b lock mutex forced").await;
    until_waiting(&channel("forced"), 1).await;
    let seen = keeper.inspect("forced").await.unwrap();
    assert!(keeper.evict("forced", &seen[0].claims[0].id).await.unwrap());
    assert_eq!(java.reply_within("b", BY_MESSAGE).await.as_deref(), Some("locked"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_knows_that_it_has_lost_before_it_does_anything_more() {
    let mut java = redisson(TTL).await;
    let url = format!("{}?style=redisson", REDIS.url());
    let mut rust = Peer::rust(&url, SHORT_TTL).await;
    assert!(rust.call("a lock stopped").await.starts_with("locked "));
    rust.signal(Signal::STOP);
    java.send("a lock mutex stopped").await;
    assert_eq!(java.reply_within("a", BY_MESSAGE).await.as_deref(), Some("locked"));
    rust.signal(Signal::CONT);
    let first = rust.reply("a").await;
    assert!(first.starts_with("lost "), "the loss comes by itself: {first}");
    assert_eq!(rust.call("a unlock stopped").await, "failed nothing is held");
    java.must("b try mutex stopped", "busy").await;
    java.must("a unlock mutex stopped", "unlocked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_has_lost_before_redisson_gets_in() {
    let mut java = redisson(TTL).await;
    let proxy = Proxy::start(([127, 0, 0, 1], REDIS.port()).into());
    let url = format!("redis://{}?style=redisson", proxy.addr());
    let keeper = Connect::to(&url).namespace("").ttl(SHORT_TTL).connect().await.expect("a keeper");
    let guard = keeper.mutex("cut").lock().await.unwrap();
    java.send("a lock mutex cut").await;
    until_waiting(&channel("cut"), 1).await;
    proxy.cut();
    let lost = async {
        guard.lost().await;
        Instant::now()
    };
    let theirs = async {
        assert_eq!(java.reply_within("a", BY_MESSAGE).await.as_deref(), Some("locked"));
        Instant::now()
    };
    let (lost, theirs) = tokio::join!(lost, theirs);
    assert!(lost < theirs, "they had it {:?} before we knew", lost - theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_fenced_lock_are_one_series() {
    let (keeper, mut java) = (keeper("redisson&fenced=true", TTL).await, redisson(TTL).await);
    let mut last = 0;
    for _ in 0..3 {
        let guard = keeper.mutex("fenced").lock().await.unwrap();
        let token: u64 = guard.token().unwrap().into();
        assert!(token > last, "{token} after {last}");
        guard.release().await.unwrap();
        let reply = java.call("a token fenced fenced").await;
        last = reply.strip_prefix("token ").unwrap_or_else(|| panic!("{reply}")).parse().unwrap();
        assert!(last > token, "{last} after {token}");
        java.must("a unlock fenced fenced", "unlocked").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_writers_exclude_on_both_sides() {
    let (keeper, mut java) = (keeper("redisson-rw", TTL).await, redisson(TTL).await);
    let lock = keeper.rwlock("shared");
    java.must("a lock read shared", "locked").await;
    let reader = lock.read().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    java.must("b try write shared", "busy").await;
    let writing = tokio::spawn(async move { lock.write().await.unwrap() });
    until_waiting("redisson_rwlock:{shared}", 1).await;
    reader.release().await.unwrap();
    java.must("a unlock read shared", "unlocked").await;
    let writer = timeout(BY_MESSAGE, writing).await.expect("their last reader wakes our writer").unwrap();
    java.must("a try read shared", "busy").await;
    for thread in ["a", "b"] {
        java.send(&format!("{thread} lock read shared")).await;
    }
    until_waiting("redisson_rwlock:{shared}", 1).await;
    writer.downgrade().await.unwrap();
    for thread in ["a", "b"] {
        let reply = java.reply_within(thread, BY_MESSAGE).await;
        assert_eq!(reply.as_deref(), Some("locked"), "our downgrade lets their readers in");
    }
    java.must("c try write shared", "busy").await;
    java.send("c lock write shared").await;
    java.must("a unlock read shared", "unlocked").await;
    java.must("b unlock read shared", "unlocked").await;
    assert_eq!(java.reply_within("c", Duration::from_millis(300)).await, None, "we still read");
    writer.release().await.unwrap();
    assert_eq!(java.reply_within("c", BY_MESSAGE).await.as_deref(), Some("locked"));

    // Theirs becomes a reader in two steps, without a message.
    java.must("c lock read shared", "locked").await;
    java.must("c unlock write shared", "unlocked").await;
    let reader = keeper.rwlock("shared").try_read().await.unwrap().expect("it is shared now");
    assert!(keeper.rwlock("shared").try_write().await.unwrap().is_none());
    assert_eq!(keeper.inspect("shared").await.unwrap()[0].claims.len(), 2);
    reader.release().await.unwrap();
    java.must("c unlock read shared", "unlocked").await;
    assert!(keeper.inspect("shared").await.unwrap().is_empty());
}

/// `LOCKKEEPER_INTEROP_SECONDS` is how long it takes (default 15).
#[tokio::test(flavor = "multi_thread")]
async fn eight_threads_and_eight_tasks_take_turns_on_one_lock() {
    let seconds = std::env::var("LOCKKEEPER_INTEROP_SECONDS").ok().map_or(15, |text| text.parse().unwrap());
    let (url, mut java) = (format!("{}?style=redisson", REDIS.url()), redisson(TTL).await);
    let contended = contend(&url, &mut java, "contended", 8, Duration::from_secs(seconds)).await;
    contended.is_fair();
    contended.is_quick();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_messages_of_both_sides_arrive() {
    let cluster = RedisCluster::start();
    let url = format!("{}?style=redisson", cluster.url());
    let keeper = Connect::to(&url).namespace("").ttl(TTL).connect().await.unwrap();
    let nodes: Vec<String> =
        cluster.servers().iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    let mut java = Peer::java("RedissonPeer", &["cluster", &nodes.join(",")]).await;
    // On all members.
    for name in ["one", "two", "three", "four", "five", "six"] {
        java.must(&format!("a lock mutex {name}"), "locked").await;
        let waiting = locking(&keeper, name);
        tokio::time::sleep(Duration::from_millis(50)).await;
        java.must(&format!("a unlock mutex {name}"), "unlocked").await;
        let guard = timeout(BY_MESSAGE, waiting).await.expect("their message wakes us").unwrap();
        java.send(&format!("a lock mutex {name}")).await;
        assert_eq!(java.reply_within("a", Duration::from_millis(100)).await, None);
        guard.release().await.unwrap();
        assert_eq!(java.reply_within("a", BY_MESSAGE).await.as_deref(), Some("locked"));
        java.must(&format!("a unlock mutex {name}"), "unlocked").await;
    }
    contend(&url, &mut java, "contended", 4, Duration::from_secs(5)).await.is_fair();
}
