//! What a wait and a hand-over cost the server, by the server's own counters.

use crate::common::{LIMIT, connect, unique};
use lockkeeper_core::{Guard, Keeper, State};
use lockkeeper_testkit::{ZooKeeper, wait_until};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(60);

/// A server of its own: its counters must not count anybody else.
struct Counted(ZooKeeper);

impl Counted {
    fn value(&self, key: &str) -> i64 {
        let all = self.0.four_letter(0, "mntr");
        let line = all.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
        line.unwrap_or_else(|| panic!("no {key} in:\n{all}")).trim().parse::<f64>().unwrap() as i64
    }

    /// How many watches were set off by nodes that were deleted.
    fn watch_events(&self) -> i64 {
        self.value("zk_sum_node_deleted_watch_count")
    }

    fn watches(&self) -> i64 {
        self.value("zk_watch_count")
    }

    fn requests(&self) -> i64 {
        self.value("zk_packets_received")
    }
}

async fn keepers(server: &Counted, query: &str, count: usize) -> Vec<Keeper> {
    let mut keepers = Vec::new();
    for _ in 0..count {
        keepers.push(connect(&format!("{}{query}", server.0.url()), TTL).await.unwrap());
    }
    keepers
}

/// Lets a number of tasks wait for a lock that is held, spread over the keepers.
async fn wait_in_line(keepers: &[Keeper], name: &str, waiters: usize, server: &Counted) -> JoinSet<Guard> {
    let mut waiting = JoinSet::new();
    for number in 0..waiters {
        let mutex = keepers[number % keepers.len()].mutex(name);
        waiting.spawn(async move { mutex.lock().await.unwrap() });
    }
    let count = i64::try_from(waiters.min(keepers.len())).unwrap();
    wait_until("everybody watches", LIMIT * 4, || server.watches() >= count);
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_thousand_waiters_a_release_sets_off_one_watch() {
    const WAITERS: usize = 1000;
    let server = Counted(ZooKeeper::start());
    let keepers = keepers(&server, "", 10).await;
    let name = unique("thousand");
    let mut guard = keepers[0].mutex(&name).lock().await.unwrap();
    let mut waiting = wait_in_line(&keepers, &name, WAITERS, &server).await;
    wait_until("each has a watch", LIMIT * 4, || server.watches() == WAITERS as i64);
    let (before, start) = (server.requests(), std::time::Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (sent, seconds) = (server.requests() - before, start.elapsed().as_secs_f64());
    println!("{sent} requests in {seconds:.1} s while {WAITERS} wait");
    // Twelve signs of life and three renewals of each session in a TTL, and as much again in case the machine is slow.
    let of_sessions = 10.0 * 15.0 * seconds / keepers[0].ttl().as_secs_f64();
    assert!(sent as f64 <= 2.0 * of_sessions + 10.0, "{sent} requests in {seconds} s");
    for released in 1..=20 {
        let before = server.watch_events();
        guard.release().await.unwrap();
        guard = timeout(LIMIT, waiting.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(server.watch_events() - before, 1, "release {released}");
    }
    waiting.abort_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_locks_are_renewed_in_one_request() {
    const LOCKS: usize = 500;
    let server = Counted(ZooKeeper::start());
    for query in ["", "?style=plain"] {
        let ttl = Duration::from_secs(9);
        let keeper = connect(&format!("{}{query}", server.0.url()), ttl).await.unwrap();
        let mut guards = Vec::new();
        for _ in 0..LOCKS {
            guards.push(keeper.mutex(unique("kept")).lock().await.unwrap());
        }
        // The first renewal notes the time of each grant, once.
        let is_noted = async || {
            let locks = keeper.inspect("kept").await.unwrap();
            locks.iter().flat_map(|lock| &lock.claims).filter(|claim| claim.held_for.is_some()).count()
                == LOCKS
        };
        let noted = async {
            while !is_noted().await {
                tokio::time::sleep(ttl / 20).await;
            }
        };
        timeout(LIMIT, noted).await.expect("all grants are noted");
        let (before, start) = (server.requests(), std::time::Instant::now());
        tokio::time::sleep(ttl).await;
        let (sent, seconds) = (server.requests() - before, start.elapsed().as_secs_f64());
        println!("{sent} requests in {seconds:.1} s while {LOCKS} locks are held");
        // Twelve signs of life and three renewals in a TTL, and as much again in case the machine is slow.
        assert!(sent as f64 <= 30.0 * seconds / ttl.as_secs_f64(), "{sent} requests in {seconds} s");
        let id = keeper.inspect(guards[0].name()).await.unwrap()[0].claims[0].id.clone();
        assert!(keeper.evict(guards[0].name(), &id).await.unwrap());
        timeout(LIMIT, guards[0].lost()).await.expect("an eviction is seen all the same");
        assert!(guards[1..].iter().all(|guard| guard.state() == State::Held));
        keeper.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_plain_style_a_release_wakes_everybody_and_the_page_says_so() {
    const WAITERS: usize = 100;
    let server = Counted(ZooKeeper::start());
    // One watch for each session and node: as many sessions as waiters.
    let keepers = keepers(&server, "?style=plain", WAITERS).await;
    let name = unique("herd");
    let guard = keepers[0].mutex(&name).lock().await.unwrap();
    let mut waiting = wait_in_line(&keepers, &name, WAITERS, &server).await;
    let before = server.watch_events();
    guard.release().await.unwrap();
    let guard = timeout(LIMIT, waiting.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(server.watch_events() - before, WAITERS as i64);
    waiting.abort_all();
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_costs_five_requests_with_any_number_of_waiters() {
    const HAND_OVERS: usize = 400;
    let server = Counted(ZooKeeper::start());
    for clients in [16, 200, 1000] {
        let keepers = keepers(&server, "", 16).await;
        let name = unique("hand-over");
        let guard = keepers[0].mutex(&name).lock().await.unwrap();
        let mut waiting = JoinSet::new();
        let turns = (HAND_OVERS / clients).max(1);
        for number in 0..clients {
            let mutex = keepers[number % keepers.len()].mutex(&name);
            waiting.spawn(async move {
                for _ in 0..turns {
                    mutex.lock().await.unwrap().release().await.unwrap();
                }
            });
        }
        wait_until("each has a watch", LIMIT * 2, || server.watches() == clients as i64);
        let (requests, start) = (server.requests(), std::time::Instant::now());
        guard.release().await.unwrap();
        while let Some(done) = timeout(LIMIT * 4, waiting.join_next()).await.unwrap() {
            done.unwrap();
        }
        let seconds = start.elapsed().as_secs_f64();
        let sent = server.requests() - requests;
        // Pings and renewals of sixteen sessions, at most two a second each.
        let aside = (seconds * 16.0 * 2.0) as i64 + 16 * 2;
        let hand_overs = (clients * turns) as i64;
        println!("{clients} clients: {sent} requests for {hand_overs} hand-overs in {seconds:.1} s");
        assert!(sent - aside <= 5 * hand_overs, "{sent} requests for {hand_overs} hand-overs");
    }
}

#[tokio::test]
async fn an_uncontended_lock_and_release_cost_three_requests_and_two_in_the_plain_style() {
    const PAIRS: i64 = 200;
    let server = Counted(ZooKeeper::start());
    for (query, each) in [("", 3), ("?style=plain", 2)] {
        let keeper = connect(&format!("{}{query}", server.0.url()), TTL).await.unwrap();
        let mutex = keeper.mutex(unique("alone"));
        mutex.lock().await.unwrap().release().await.unwrap();
        let (before, start) = (server.requests(), std::time::Instant::now());
        for _ in 0..PAIRS {
            mutex.lock().await.unwrap().release().await.unwrap();
        }
        let (sent, seconds) = (server.requests() - before, start.elapsed().as_secs_f64());
        // Signs of life and renewals, and the command that counts.
        let aside = seconds as i64 + 5;
        assert!(sent <= each * PAIRS + aside, "{query}: {sent} requests for {PAIRS} pairs in {seconds:.1} s");
    }
}
