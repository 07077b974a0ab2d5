//! Connections that fall silent while both sides believe in them, and a lease that ends before its time.

use crate::common::{keeper_at, soon, until_waiting};
use lockkeeper::{Keeper, State};
use lockkeeper_testkit::{Etcd, Proxy};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(4);

fn proxy(server: &Etcd) -> Proxy {
    Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.servers()[0].port())))
}

async fn keeper_behind(proxy: &Proxy) -> Keeper {
    keeper_at(&format!("etcd://{}", proxy.addr()), TTL).await
}

/// The two ways in which a connection becomes half open.
const WAYS: [fn(&Proxy); 2] = [Proxy::half_open, Proxy::half_open_for_clients];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_a_half_open_connection() {
    let server = Etcd::start();
    for make_half_open in WAYS {
        let proxy = proxy(&server);
        let keeper = keeper_behind(&proxy).await;
        let guard = keeper.mutex("half-open/held").lock().await.expect("a grant");
        for _ in 0..2 {
            make_half_open(&proxy);
            tokio::time::sleep(TTL * 3 / 2).await;
            assert_eq!(guard.state(), State::Held, "the renewals did not recover");
        }
        let other = keeper_at(&server.url(), TTL).await;
        assert!(other.mutex("half-open/held").try_lock().await.expect("a reply").is_none());
        guard.release().await.expect("a release");
    }
}

/// The keep-alive finds out first, and the watch stream on the same connection must not wait for its own time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_soon_after_its_connection_became_half_open() {
    let server = Etcd::start();
    let holder = keeper_at(&server.url(), TTL).await;
    for make_half_open in WAYS {
        let proxy = proxy(&server);
        let waiter = keeper_behind(&proxy).await;
        let guard = holder.mutex("half-open/waited").lock().await.expect("a grant");
        let waiting = waiter.clone();
        let wait = tokio::spawn(async move { waiting.mutex("half-open/waited").lock().await });
        until_waiting(&holder, "half-open/waited", 1).await;
        // Until the watch is certainly there.
        tokio::time::sleep(Duration::from_millis(200)).await;
        make_half_open(&proxy);
        let start = Instant::now();
        guard.release().await.expect("a release");
        let granted = soon("the wait ends", wait).await.expect("no panic").expect("a grant");
        let took = start.elapsed();
        println!("woken {took:?} after the connection became half open");
        assert!(took < TTL, "woken only after {took:?}");
        granted.release().await.expect("a release");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_ends_all_its_holds_long_before_the_next_renewal() {
    let server = Etcd::start();
    // The next renewal comes after 20 s.
    let keeper = keeper_at(&server.url(), Duration::from_secs(60)).await;
    let mut guards = Vec::new();
    for number in 0..3 {
        guards.push(keeper.mutex(format!("lease/{number}")).lock().await.expect("a grant"));
    }
    let etcdctl = |arguments: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", server.url().trim_start_matches("etcd://")]);
        let output = command.args(arguments).output().expect("etcdctl is installed");
        String::from_utf8(output.stdout).expect("text")
    };
    let leases = etcdctl(&["lease", "list"]);
    let start = Instant::now();
    etcdctl(&["lease", "revoke", leases.lines().last().expect("one lease")]);
    for guard in &guards {
        assert!(soon("the lost signal", guard.lost()).await.is_lost());
    }
    let took = start.elapsed();
    println!("all holds lost {took:?} after their lease");
    assert!(took < Duration::from_secs(5), "lost only after {took:?}");
    assert!(guards.iter().all(|guard| guard.state() == State::Lost));
    let again =
        soon("the next lock", keeper.mutex("lease/0").lock()).await.expect("a grant on another lease");
    again.release().await.expect("a release");
}
