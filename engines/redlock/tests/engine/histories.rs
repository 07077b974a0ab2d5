//! What clients of RedLock see while nodes are killed, stopped and restarted without their data, judged by the checker.

use crate::common::keeper;
use lockkeeper_conformance::history::{EventKind, Recorder};
use lockkeeper_core::{Demand, Keeper};
use lockkeeper_testkit::Redis;
use rand::RngExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(2);
const CLIENTS: u32 = 6;
const LOCKS: u32 = 2;
/// How many nodes are killed, one after the other.
const KILLS: usize = 4;

/// Requests a lock, holds it for a while and gives it back, and records all of it.
async fn turn(keeper: &Keeper, recorder: &Recorder, client: u32) {
    let (lock, writes, hold_ms) = {
        let mut random = rand::rng();
        let long = random.random_ratio(1, 20); // long enough to be renewed
        (
            random.random_range(0..LOCKS),
            random.random_ratio(1, 2),
            if long { 1_000 } else { random.random_range(0..20) },
        )
    };
    let demand = if writes { Demand::Exclusive } else { Demand::Shared };
    let story = recorder.asks(client, lock, demand);
    let name = keeper.rwlock(format!("history/{lock}"));
    let limit = 2 * TTL;
    let guard = if writes { name.write_within(limit).await } else { name.read_within(limit).await };
    story.gets(guard, tokio::time::sleep(Duration::from_millis(hold_ms))).await;
}

/// Kills one node after the other, which forgets everything, and stops another meanwhile: never more than a minority.
async fn faults(nodes: &[Redis]) {
    for round in 0..KILLS {
        let (killed, stopped) = (&nodes[round % nodes.len()], &nodes[(round + 2) % nodes.len()]);
        killed.kill();
        stopped.pause();
        tokio::time::sleep(TTL / 4).await;
        tokio::task::block_in_place(|| killed.restart());
        stopped.resume();
        // It is used again when everything it may have forgotten is over.
        tokio::time::sleep(TTL + Duration::from_millis(1_500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_hold_while_nodes_are_killed_stopped_and_restarted_without_their_data() {
    let nodes = Redis::start_many(5);
    let recorder = Recorder::new();
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let keeper = keeper(&nodes, TTL, "").await.unwrap();
        let (recorder, over) = (recorder.clone(), Arc::clone(&over));
        clients.push(tokio::spawn(async move {
            while !over.load(SeqCst) {
                turn(&keeper, &recorder, client).await;
            }
        }));
    }
    faults(&nodes).await;
    over.store(true, SeqCst);
    for client in clients {
        tokio::time::timeout(Duration::from_secs(30), client).await.expect("no client is stuck").unwrap();
    }
    let history = recorder.judged();
    let grants =
        history.events.iter().filter(|event| matches!(event.kind, EventKind::Granted { .. })).count();
    println!("{grants} grants");
    assert!(grants > 50, "only {grants} grants: a minority must not stop the majority");
}
