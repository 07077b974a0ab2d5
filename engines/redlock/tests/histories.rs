//! What clients of RedLock see while nodes are killed, stopped and restarted without their data, judged by the checker.

mod common;

use common::keeper;
use lockkeeper_conformance::checker::{Promises, check};
use lockkeeper_conformance::history::{ClaimRecorder, EventKind, Recorder, ReleaseOutcome};
use lockkeeper_core::{Clock, Demand, Guard, Keeper};
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

fn now_ns() -> u64 {
    Clock::Boot.now().as_nanos()
}

/// Asks for a lock, holds it for a while and gives it back, and records all of it.
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
    let story = recorder.claim(client, lock, rand::random());
    story.invokes(now_ns(), demand.weight() as u32, demand.limit() as u32);
    let name = keeper.rwlock(format!("history/{lock}"));
    let patience = 2 * TTL;
    let asked = if writes { name.write_within(patience).await } else { name.read_within(patience).await };
    match asked {
        Ok(Some(guard)) => holds(&story, guard, Duration::from_millis(hold_ms)).await,
        Ok(None) => story.is_cancelled(now_ns()),
        Err(_) => story.is_unknown(now_ns()),
    }
}

async fn holds(story: &ClaimRecorder, guard: Guard, long: Duration) {
    let (valid, at) = (guard.valid_for(), Clock::Boot.now());
    let Ok(token) = guard.token() else { return story.is_unknown(now_ns()) };
    story.is_granted(at.as_nanos(), token.0, at.plus(valid).as_nanos());
    tokio::select! {
        _ = guard.lost() => story.is_lost(now_ns()),
        () = tokio::time::sleep(long) => {}
    }
    story.invokes_release(now_ns());
    let outcome = match guard.release().await {
        Ok(()) => ReleaseOutcome::Released,
        Err(error) if error.is_lost() => ReleaseOutcome::NotHeld,
        Err(_) => ReleaseOutcome::Unknown,
    };
    story.release_is_done(now_ns(), outcome);
}

/// Kills one node after the other, which forgets everything, and stops another meanwhile: never more than a minority.
async fn trouble(nodes: &[Redis]) {
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
    trouble(&nodes).await;
    over.store(true, SeqCst);
    for client in clients {
        tokio::time::timeout(Duration::from_secs(30), client).await.expect("no client is stuck").unwrap();
    }
    let history = recorder.history();
    let grants =
        history.events.iter().filter(|event| matches!(event.kind, EventKind::Granted { .. })).count();
    println!("{grants} grants");
    assert!(grants > 50, "only {grants} grants: a minority must not stop the majority");
    let violations = check(&history, &Promises::safety());
    assert!(violations.is_empty(), "{}", violations.iter().map(|it| format!("{it}\n")).collect::<String>());
}
