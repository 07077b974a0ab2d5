//! A hand-over costs few requests, whatever the number of waiters, and everybody gets a turn.

use crate::common::{all_done, keeper_at, soon, until_waiting};
use lockkeeper::State;
use lockkeeper_testkit::Etcd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Every message the server got over gRPC, single requests and those on watch streams, but for the keep-alives: they
/// come by the clock, and a busy machine would make them look like a part of the hand-over.
fn messages(server: &Etcd) -> u64 {
    let counts = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("grpc_server_msg_received_total{")?;
        let rest = (!rest.contains("LeaseKeepAlive")).then_some(rest)?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok().map(|count| count as u64)
    };
    server.metrics(0).lines().filter_map(counts).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_need_at_most_four_requests_per_hand_over() {
    let server = Etcd::start();
    let (clients, rounds) = (16, 25);
    let mut keepers = Vec::new();
    for _ in 0..clients {
        keepers.push(keeper_at(&server.url(), Duration::from_secs(10)).await);
    }
    let gate = keepers[0].mutex("turns").lock().await.expect("a grant");
    let turns: Arc<Vec<AtomicUsize>> = Arc::new((0..clients).map(|_| AtomicUsize::new(0)).collect());
    let tasks: Vec<_> = keepers
        .iter()
        .enumerate()
        .map(|(client, keeper)| {
            let (keeper, turns) = (keeper.clone(), Arc::clone(&turns));
            tokio::spawn(async move {
                for round in 0..rounds {
                    let guard = keeper.mutex("turns").lock().await.expect("a grant");
                    let least = turns.iter().map(|turns| turns.load(SeqCst)).min().expect("a client");
                    assert!(
                        least + 1 >= round,
                        "somebody had {least} turns when another began its {round}th"
                    );
                    turns[client].fetch_add(1, SeqCst);
                    guard.release().await.expect("a release");
                }
            })
        })
        .collect();
    until_waiting(&keepers[0], "turns", clients).await;
    let before = messages(&server);
    gate.release().await.expect("a release");
    all_done(tasks).await;
    let per_hand_over = (messages(&server) - before) as f64 / (clients * rounds) as f64;
    println!("{per_hand_over:.2} requests per hand-over with {clients} clients");
    assert!(turns.iter().all(|turns| turns.load(SeqCst) == rounds));
    assert!(per_hand_over <= 4.0, "{per_hand_over} requests per hand-over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_cost_no_more_per_hand_over() {
    let server = Etcd::start();
    let (clients, each) = (20, 50);
    let mut keepers = Vec::new();
    for _ in 0..clients {
        keepers.push(keeper_at(&server.url(), Duration::from_secs(60)).await);
    }
    let gate = keepers[0].mutex("contended").lock().await.expect("a grant");
    let tasks: Vec<_> = (0..clients * each)
        .map(|task| {
            let keeper = keepers[task % clients].clone();
            tokio::spawn(async move {
                let guard = keeper.mutex("contended").lock().await.expect("a grant");
                guard.release().await.expect("a release");
            })
        })
        .collect();
    until_waiting(&keepers[0], "contended", clients * each).await;
    let before = messages(&server);
    gate.release().await.expect("a release");
    all_done(tasks).await;
    let per_hand_over = (messages(&server) - before) as f64 / (clients * each) as f64;
    println!("{per_hand_over:.2} requests per hand-over with {} waiters", clients * each);
    assert!(per_hand_over <= 4.0, "{per_hand_over} requests per hand-over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_locks_are_renewed_in_one_request() {
    let server = Etcd::start();
    let ttl = Duration::from_secs(9);
    let keeper = keeper_at(&server.url(), ttl).await;
    let mut guards = Vec::new();
    for number in 0..500 {
        guards.push(keeper.mutex(format!("kept/{number}")).lock().await.expect("a grant"));
    }
    let mut per_ttl = Vec::new();
    // A renewal that a slow machine holds up is sent again, which shows in one TTL; what each of them sends shows in all.
    while per_ttl.len() < 4 && per_ttl.iter().all(|sent| *sent > 6.0) {
        let (before, start) = (messages(&server), std::time::Instant::now());
        tokio::time::sleep(ttl).await;
        let sent = (messages(&server) - before) as f64;
        per_ttl.push(sent * ttl.as_secs_f64() / start.elapsed().as_secs_f64());
    }
    println!("{per_ttl:.1?} requests in a TTL while {} locks are held", guards.len());
    // Three renewals in a TTL, and as much again.
    assert!(per_ttl.iter().any(|sent| *sent <= 6.0), "{per_ttl:.1?} requests in a TTL");
    assert!(guards.iter().all(|guard| guard.state() == State::Held));
    let id = keeper.inspect("kept/7").await.expect("a look")[0].claims[0].id.clone();
    assert!(keeper.evict("kept/7", &id).await.expect("a reply"));
    soon("the eviction is seen", guards[7].lost()).await;
    assert_eq!(guards.iter().filter(|guard| guard.state() == State::Held).count(), 499);
}

/// No herd: a departure wakes the one behind it, and no other keeper gets a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_departure_is_sent_to_two_keepers_at_most() {
    let server = Etcd::start();
    let keeper = async || keeper_at(&server.url(), Duration::from_secs(10)).await;
    let sent = || -> u64 {
        let counts = |line: &str| line.strip_prefix("etcd_debugging_mvcc_events_total ")?.parse::<f64>().ok();
        server.metrics(0).lines().find_map(counts).expect("the server counts events") as u64
    };
    let clients = 40;
    let holder = keeper().await;
    let gate = holder.mutex("herd").lock().await.expect("a grant");
    let mut tasks = Vec::new();
    for count in 1..=clients {
        let keeper = keeper().await;
        tasks.push(tokio::spawn(async move {
            let guard = keeper.mutex("herd").lock().await.expect("a grant");
            std::future::pending::<()>().await;
            drop(guard);
        }));
        until_waiting(&holder, "herd", count).await;
    }
    let before = sent();
    gate.release().await.expect("a release");
    until_waiting(&holder, "herd", clients - 1).await;
    let events = sent() - before;
    println!("{events} events for one departure with {clients} waiting keepers");
    assert!((1..=2).contains(&events), "{events} events");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
