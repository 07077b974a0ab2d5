//! Reentrancy: an owner enters again what it holds.

use crate::bench::{Bench, soon, soon_held};
use lockkeeper::Error;

pub(super) async fn an_owner_enters_again_and_must_release_as_often(bench: Bench) {
    let (keeper, other) = (bench.keeper().await, bench.keeper().await);
    let owner = keeper.owner();
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(soon_held(owner.mutex("again").lock()).await);
    }
    assert!(guards.windows(2).all(|pair| pair[0].token().unwrap() == pair[1].token().unwrap()));
    for guard in guards {
        assert!(other.mutex("again").try_lock().await.expect("an answer").is_none());
        guard.release().await.expect("a release");
    }
    assert!(other.mutex("again").try_lock().await.expect("an answer").is_some());
}

pub(super) async fn entering_again_costs_no_round_trip(bench: Bench) {
    let (keeper, engine) = bench.faulty(lockkeeper::DEFAULT_TTL).await;
    let owner = keeper.owner();
    let outer = soon_held(owner.mutex("local").lock()).await;
    let before = engine.calls();
    for _ in 0..100 {
        soon_held(owner.mutex("local").lock()).await.release().await.expect("a release");
    }
    let after = engine.calls();
    assert_eq!((before.0, before.2), (after.0, after.2), "no acquire and no release reached the engine");
    outer.release().await.expect("a release");
}

pub(super) async fn two_owners_exclude_each_other(bench: Bench) {
    let keeper = bench.keeper().await;
    let (one, other) = (keeper.owner(), keeper.owner());
    let guard = soon_held(one.mutex("mine").lock()).await;
    assert!(other.mutex("mine").try_lock().await.expect("an answer").is_none());
    guard.release().await.expect("a release");
    let guard = other.mutex("mine").try_lock().await.expect("an answer").expect("free again");
    assert!(one.mutex("mine").try_lock().await.expect("an answer").is_none());
    guard.release().await.expect("a release");
}

pub(super) async fn a_reader_cannot_become_a_writer_by_entering_again(bench: Bench) {
    let owner = bench.keeper().await.owner();
    let reader = soon_held(owner.rwlock("grow").read()).await;
    let writer = soon("an answer", owner.rwlock("grow").write()).await;
    assert!(matches!(writer, Err(Error::Invalid(_))), "it would wait for itself: {writer:?}");
    reader.release().await.expect("a release");
    let writer = soon_held(owner.rwlock("grow").write()).await;
    let reader = soon_held(owner.rwlock("grow").read()).await;
    assert_eq!(writer.token().unwrap(), reader.token().unwrap());
}

pub(super) async fn tasks_of_one_owner_do_not_wait_for_each_other(bench: Bench) {
    let owner = bench.keeper().await.owner();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let owner = owner.clone();
            tokio::spawn(async move { soon_held(owner.mutex("tasks").lock()).await })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.expect("a task"));
    }
}
