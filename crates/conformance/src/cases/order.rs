//! First come, first served.

use crate::bench::{Bench, PATIENCE, soon_held};
use std::sync::{Arc, Mutex};

pub(super) async fn first_come_first_served(bench: Bench) {
    let keeper = bench.keeper().await;
    let first = soon_held(keeper.mutex("turn").lock()).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..8 {
        let (waiting, served) = (bench.keeper().await, Arc::clone(&served));
        waiters.push(tokio::spawn(async move {
            let guard = soon_held(waiting.mutex("turn").lock()).await;
            served.lock().expect("no panic").push(number);
            guard.release().await.expect("a release");
        }));
        bench.until_waiting(&keeper, "turn", number + 1).await;
    }
    first.release().await.expect("a release");
    for waiter in waiters {
        waiter.await.expect("a waiter");
    }
    assert_eq!(*served.lock().expect("no panic"), (0..8).collect::<Vec<_>>());
}

pub(super) async fn a_thousand_waiters_each_get_their_turn(bench: Bench) {
    let keepers = [
        bench.keeper_with(PATIENCE).await,
        bench.keeper_with(PATIENCE).await,
        bench.keeper_with(PATIENCE).await,
    ];
    let first = soon_held(keepers[0].mutex("contended").lock()).await;
    let waiters: Vec<_> = (0..1000)
        .map(|number| {
            let keeper = keepers[number % keepers.len()].clone();
            tokio::spawn(async move {
                let guard = keeper.mutex("contended").lock().await.expect("its turn");
                if let Err(error) = guard.release().await {
                    assert!(error.is_temporary(), "a busy server is asked again behind our back: {error}");
                }
            })
        })
        .collect();
    bench.until_waiting(&keepers[0], "contended", 1000).await;
    first.release().await.expect("a release");
    for waiter in waiters {
        waiter.await.expect("a waiter");
    }
    bench.until_idle(&keepers[0], "contended").await;
}

pub(super) async fn a_cancelled_waiter_lets_the_next_one_go_on(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let first = soon_held(keeper.mutex("gap").lock()).await;
    let quits = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.mutex("gap").lock().await }
    });
    bench.until_waiting(&keeper, "gap", 1).await;
    let stays = tokio::spawn({
        let keeper = keeper.clone();
        async move { soon_held(keeper.mutex("gap").lock()).await }
    });
    bench.until_waiting(&keeper, "gap", 2).await;
    quits.abort();
    bench.until_waiting(&keeper, "gap", 1).await;
    first.release().await.expect("a release");
    stays.await.expect("the one who stays").release().await.expect("a release");
}
