//! Multi-locks, conditions, elections: what is built on the same claims.

use super::loss::evict_holder;
use crate::bench::{Bench, is_free, soon, soon_held};
use lockkeeper::{Guard, MultiLock, State, Wanted};
use std::time::Duration;

pub(super) async fn several_locks_are_had_all_or_none(bench: Bench) {
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let blocker = soon_held(keeper.mutex("c").lock()).await;
    assert!(keeper.all(["a", "b", "c"]).try_lock().await.expect("an answer").is_none());
    let several = keeper.all(["c", "b", "a"]);
    assert!(bench.answer(async || several.lock_within(Duration::from_millis(50)).await).await.is_none());
    for free in ["a", "b"] {
        assert!(
            keeper.mutex(free).try_lock().await.expect("an answer").is_some(),
            "'{free}' was not given back"
        );
    }
    is_free(&keeper, "a").await;
    is_free(&keeper, "b").await;
    blocker.release().await.expect("a release");
    let all = soon_held(keeper.all(["c", "b", "a"]).lock()).await;
    assert_eq!(all.tokens().expect("tokens").len(), 3);
    all.release().await.expect("a release");
    assert!(keeper.all(["a", "a"]).lock().await.is_err(), "the same name twice");
    assert!(keeper.all([""; 0]).lock().await.is_err(), "no name");
}

pub(super) async fn several_locks_in_any_order_do_not_deadlock(bench: Bench) {
    let mut clients = Vec::new();
    for names in [["x", "y", "z"], ["z", "y", "x"], ["y", "x", "z"]] {
        let keeper = bench.keeper().await;
        clients.push(tokio::spawn(async move {
            for _ in 0..5 {
                soon_held(keeper.all(names).lock()).await.release().await.expect("a release");
            }
        }));
    }
    for client in clients {
        client.await.expect("a client");
    }
}

pub(super) async fn one_lost_lock_of_several_is_the_loss_of_all(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let all = soon_held(keeper.all(["one", "two"]).lock()).await;
    evict_holder(&bench, &keeper, "two").await;
    soon("the lost signal", all.lost()).await;
    assert_eq!(all.state(), State::Lost);
    assert!(all.token().is_err());
    drop(all);
    is_free(&keeper, "one").await;
}

pub(super) async fn locks_may_span_keepers(bench: Bench) {
    let (here, there) = (bench.keeper().await, bench.keeper().await);
    let elsewhere = lockkeeper::connect("memory:").await.expect("another engine");
    let mixed =
        [Wanted::exclusive(&here, "h"), Wanted::exclusive(&there, "t"), Wanted::exclusive(&elsewhere, "e")];
    let all = soon_held(MultiLock::new(mixed).lock()).await;
    assert!(there.mutex("h").try_lock().await.expect("an answer").is_none());
    assert!(elsewhere.mutex("e").try_lock().await.expect("an answer").is_none());
    all.release().await.expect("a release");
    assert!(elsewhere.mutex("e").try_lock().await.expect("an answer").is_some());
}

/// Starts a task that waits on the condition, and returns when it does.
async fn waits(bench: &Bench, who: usize) -> tokio::task::JoinHandle<(usize, Guard)> {
    let keeper = bench.keeper().await;
    let (waiting, watch) = (keeper.clone(), keeper);
    let before = batons(&watch).await;
    let task = tokio::spawn(async move {
        let mutex = waiting.mutex("basket");
        let guard = soon_held(mutex.lock()).await;
        (who, waiting.condition("not-empty").wait(&mutex, guard).await.expect("a notification"))
    });
    bench.until("the waiter is enlisted", async || batons(&watch).await > before).await;
    task
}

async fn batons(keeper: &lockkeeper::Keeper) -> usize {
    keeper.inspect("not-empty/").await.expect("an answer").len()
}

pub(super) async fn a_condition_wakes_who_waited_longest(bench: Bench) {
    let keeper = bench.keeper().await;
    let condition = keeper.condition("not-empty");
    assert!(!condition.notify_one().await.expect("an answer"), "nobody waits");
    let tasks = [waits(&bench, 0).await, waits(&bench, 1).await, waits(&bench, 2).await];
    for (expected, task) in tasks.into_iter().enumerate() {
        let guard = soon_held(keeper.mutex("basket").lock()).await;
        assert!(condition.notify_one().await.expect("an answer"));
        guard.release().await.expect("a release");
        let (who, guard) = soon("the waiter", task).await.expect("no panic");
        assert_eq!(who, expected);
        guard.release().await.expect("it holds the mutex again");
    }
}

pub(super) async fn a_condition_wakes_everybody(bench: Bench) {
    let keeper = bench.keeper().await;
    let tasks = [waits(&bench, 0).await, waits(&bench, 1).await];
    let guard = soon_held(keeper.mutex("basket").lock()).await;
    assert_eq!(keeper.condition("not-empty").notify_all().await.expect("an answer"), 2);
    guard.release().await.expect("a release");
    // Together: the one that locks the mutex again first must let go before the other one can.
    let ends = tasks.map(|task| async {
        let (_, guard) = soon("a waiter", task).await.expect("no panic");
        guard.release().await.expect("it holds the mutex again");
    });
    futures_util::future::join_all(ends).await;
}

pub(super) async fn a_condition_gives_up_in_time(bench: Bench) {
    let keeper = bench.keeper().await;
    let mutex = keeper.mutex("basket");
    let (guard, notified) = bench
        .answer(async || {
            let guard = soon_held(mutex.lock()).await;
            keeper.condition("never").wait_within(&mutex, guard, Duration::from_millis(50)).await
        })
        .await;
    assert!(!notified);
    guard.release().await.expect("it holds the mutex again");
    bench
        .until("nothing is left", async || keeper.inspect("never").await.expect("an answer").is_empty())
        .await;
}

pub(super) async fn one_candidate_leads(bench: Bench) {
    let keeper =
        bench.connect(lockkeeper::DEFAULT_TTL).holder("candidate").connect().await.expect("a keeper");
    let election = keeper.election("chief");
    assert!(election.leader().await.expect("an answer").is_none());
    let leading = soon_held(election.campaign()).await;
    assert_eq!(election.leader().await.expect("an answer").expect("a leader").holder.text, "candidate");
    leading.release().await.expect("resigns");
    assert!(election.leader().await.expect("an answer").is_none());
}
