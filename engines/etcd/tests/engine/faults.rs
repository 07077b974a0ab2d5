//! What goes wrong around a lock: compaction, late requests, lost leases, frozen and restarted servers.

use crate::common::{address, keeper, keeper_at, look, server, soon, until, until_waiting};
use lockkeeper::{Connect, Keeper, State};
use lockkeeper_testkit::{Etcd, Proxy};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Runs etcdctl against a server; returns what it prints.
fn etcdctl(server: &Etcd, arguments: &[&str]) -> String {
    let mut command = Command::new("etcdctl");
    let output =
        command.env("ETCDCTL_API", "3").args(["--endpoints", &address(server)]).args(arguments).output();
    let output = output.expect("etcdctl is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn proxy(server: &Etcd) -> Proxy {
    Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.servers()[0].port())))
}

/// The present revision of a server.
fn revision(server: &Etcd) -> String {
    let json = etcdctl(server, &["get", "nothing", "-w", "json"]);
    let after = json.split("\"revision\":").nth(1).expect("a revision");
    after.chars().take_while(char::is_ascii_digit).collect()
}

fn waits(
    keeper: &Keeper,
    name: &'static str,
) -> tokio::task::JoinHandle<lockkeeper::Result<lockkeeper::Guard>> {
    let keeper = keeper.clone();
    tokio::spawn(async move { keeper.mutex(name).lock().await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_departure_swallowed_by_compaction_still_wakes() {
    let server = Etcd::start();
    let proxy = proxy(&server);
    let holder = keeper_at(&server.url(), LONG).await;
    let waiter = keeper_at(&format!("etcd://{}", proxy.addr()), LONG).await;
    let guard = holder.mutex("compacted").lock().await.expect("a grant");
    let wait = waits(&waiter, "compacted");
    until_waiting(&holder, "compacted", 1).await;
    proxy.cut();
    guard.release().await.expect("a release");
    etcdctl(&server, &["put", "other", "data"]);
    etcdctl(&server, &["compaction", &revision(&server)]);
    proxy.reset();
    proxy.heal();
    soon("the wait ends", wait)
        .await
        .expect("no panic")
        .expect("a grant")
        .release()
        .await
        .expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_arrives_after_its_leave_leaves_nothing() {
    let server = Etcd::start();
    let watcher = keeper_at(&server.url(), LONG).await;
    for _ in 0..5 {
        let (slow, quick) = (proxy(&server), proxy(&server));
        let url = format!("etcd://{},{}", slow.addr(), quick.addr());
        let keeper = keeper_at(&url, Duration::from_secs(10)).await;
        // The first join is held up; the second way leads to a grant and a release before it arrives.
        slow.cut_requests();
        let guard = soon("the other way", keeper.mutex("late").lock()).await.expect("a grant");
        guard.release().await.expect("a release");
        slow.heal();
        // What was held up arrives before what is sent now.
        for _ in 0..20 {
            assert!(look(&watcher, "late").await.is_none(), "the late join has arrived");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(watcher.mutex("late").try_lock().await.expect("a reply").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_dropped_on_its_way_leaves_nothing() {
    let proxy = proxy(server());
    let dropping = keeper_at(&format!("etcd://{}", proxy.addr()), LONG).await;
    let watcher = keeper().await;
    for _ in 0..20 {
        proxy.delay(Duration::from_millis(20));
        let mutex = dropping.mutex("dropped");
        assert!(tokio::time::timeout(Duration::from_millis(10), mutex.lock()).await.is_err());
        proxy.heal();
        let guard = soon("the lock is free", watcher.mutex("dropped").lock()).await.expect("a grant");
        guard.release().await.expect("a release");
    }
    until("nothing is left", async || look(&watcher, "dropped").await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_outlasts_a_server_that_is_silent_for_more_than_half_the_ttl() {
    let server = Etcd::start();
    let keeper = keeper_at(&server.url(), Duration::from_secs(6)).await;
    let guard = keeper.mutex("patient").lock().await.expect("a grant");
    server.servers()[0].pause();
    let release = tokio::spawn(guard.release());
    tokio::time::sleep(keeper.ttl() * 3 / 5).await;
    assert!(!release.is_finished(), "it gave up: {:?}", release.await);
    server.servers()[0].resume();
    soon("a reply", release).await.expect("no panic").expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_lease_loses_holders_and_waiters_join_again_with_another() {
    let server = Etcd::start();
    let keeper = keeper_at(&server.url(), LONG).await;
    let guard = keeper.mutex("revoked").lock().await.expect("a grant");
    let wait = waits(&keeper, "revoked");
    until_waiting(&keeper, "revoked", 1).await;
    let leases = etcdctl(&server, &["lease", "list"]);
    let lease = leases.lines().last().expect("one lease").to_owned();
    etcdctl(&server, &["lease", "revoke", &lease]);
    // Long before the next renewal, which comes after a third of the TTL.
    let lost = tokio::time::timeout(LONG / 6, guard.lost()).await;
    assert!(lost.expect("the lost signal").is_lost());
    let granted = soon("the waiter's turn", wait).await.expect("no panic").expect("a grant");
    assert_eq!(granted.state(), State::Held);
    assert_ne!(etcdctl(&server, &["lease", "list"]).lines().last(), Some(lease.as_str()));
    granted.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_waiter_is_notified_long_before_its_next_renewal() {
    let keeper = keeper_at(&server().url(), Duration::from_secs(1200)).await;
    let _guard = keeper.mutex("notified").lock().await.expect("a grant");
    let wait = waits(&keeper, "notified");
    until_waiting(&keeper, "notified", 1).await;
    let lock = look(&keeper, "notified").await.expect("in use");
    let waiter = lock.waiters().next().expect("a waiter");
    assert!(keeper.evict("notified", &waiter.id).await.expect("a reply"));
    let id = &waiter.id;
    let is_back = async || {
        look(&keeper, "notified").await.is_some_and(|lock| lock.waiters().any(|waiter| waiter.id != *id))
    };
    until("the waiter joins again", is_back).await;
    wait.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_below_a_lock_do_not_hold_it_up() {
    let keeper = keeper().await;
    let mut below = Vec::new();
    for number in 0..30 {
        below.push(keeper.mutex(format!("tree/{number}/leaf")).lock().await.expect("a grant"));
        below.push(keeper.mutex(format!("tree/{number}")).lock().await.expect("a grant"));
    }
    let mutex = soon("the mutex", keeper.mutex("tree").try_lock()).await.expect("a reply").expect("free");
    assert!(keeper.mutex("tree").try_lock().await.expect("a reply").is_none());
    mutex.release().await.expect("a release");
    let reader = keeper.rwlock("tree").try_read().await.expect("a reply").expect("free");
    reader.release().await.expect("a release");
    assert!(keeper.semaphore("tree", 2).try_acquire(1).await.expect("a reply").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_keeps_the_lock() {
    let server = Etcd::start();
    let keeper = keeper_at(&server.url(), Duration::from_secs(20)).await;
    let guard = keeper.mutex("restarted").lock().await.expect("a grant");
    let wait = waits(&keeper, "restarted");
    until_waiting(&keeper, "restarted", 1).await;
    server.servers()[0].kill();
    server.servers()[0].restart();
    until("it is sure again", async || guard.state() == State::Held).await;
    assert!(!wait.is_finished());
    guard.release().await.expect("a release");
    soon("the wait ends", wait)
        .await
        .expect("no panic")
        .expect("a grant")
        .release()
        .await
        .expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_member_is_avoided_and_the_lock_is_kept() {
    let cluster = Etcd::cluster(3);
    let keeper = keeper_at(&cluster.url(), Duration::from_secs(10)).await;
    let guard = keeper.mutex("frozen").lock().await.expect("a grant");
    let wait = waits(&keeper, "frozen");
    until_waiting(&keeper, "frozen", 1).await;
    // Requests begin at the first one.
    cluster.servers()[0].pause();
    let other = soon("another lock", keeper.mutex("another").lock()).await.expect("a grant");
    other.release().await.expect("a release");
    assert_eq!(guard.state(), State::Held);
    guard.release().await.expect("a release");
    soon("the wait ends", wait)
        .await
        .expect("no panic")
        .expect("a grant")
        .release()
        .await
        .expect("a release");
    cluster.servers()[0].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_is_closed_revokes_its_lease() {
    let server = Etcd::start();
    let keeper = keeper_at(&server.url(), LONG).await;
    let _guard = keeper.mutex("closed").lock().await.expect("a grant");
    keeper.close().await;
    assert!(etcdctl(&server, &["lease", "list"]).contains("found 0 leases"));
    assert_eq!(etcdctl(&server, &["get", "", "--prefix", "--keys-only"]).trim(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_ttl_is_refused_with_the_reason() {
    let refused = Connect::to(server().url()).ttl(Duration::from_secs(1)).connect().await;
    let error = refused.expect_err("too short").to_string();
    assert!(error.contains("whole seconds") && error.contains("at least 2s"), "{error}");
}

/// Requests from the runtime that connected have a connection there; it goes with that runtime, and nothing else does.
#[test]
fn a_keeper_outlives_the_runtime_it_was_made_on() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let first = runtime();
    let (keeper, guard) = first.block_on(async {
        let keeper = keeper().await;
        let guard = keeper.mutex("moves").lock().await.expect("a grant");
        (keeper, guard)
    });
    drop(first);
    runtime().block_on(async {
        assert_eq!(guard.state(), State::Held);
        assert!(keeper.mutex("moves").try_lock().await.expect("a reply").is_none());
        guard.release().await.expect("a release");
        keeper.mutex("moves").lock().await.expect("a grant").release().await.expect("a release");
    });
}
