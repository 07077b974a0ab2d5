//! RedLock with nodes that die, are cut off or forget.

use crate::common::{direct, keeper, soon};
use lockkeeper_core::{Error, State};
use lockkeeper_testkit::Redis;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_minority_may_be_dead_and_is_not_waited_for() {
    let nodes = Redis::start_many(5);
    let ttl = Duration::from_secs(20); // so a node may be silent for a second
    let keeper = keeper(&nodes, ttl, "restart_delay=0s").await.unwrap();
    nodes[0].kill();
    nodes[1].pause();
    let mut quickest = Duration::MAX;
    let mut last = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let guard = soon("three are enough", keeper.mutex("minority").lock()).await.unwrap();
        quickest = quickest.min(start.elapsed());
        assert!(guard.token().unwrap().0 > last);
        last = guard.token().unwrap().0;
        guard.release().await.unwrap();
    }
    assert!(quickest < Duration::from_millis(500), "nobody waits for the silent: {quickest:?}");
    nodes[1].resume();
}

#[tokio::test]
async fn without_a_majority_nothing_is_granted_and_a_hold_is_lost() {
    let nodes = Redis::start_many(3);
    let ttl = Duration::from_secs(2);
    let keeper = keeper(&nodes, ttl, "restart_delay=0s").await.unwrap();
    let guard = keeper.mutex("majority").lock().await.unwrap();
    nodes[0].kill();
    nodes[1].kill();
    soon("the hold is lost", guard.lost()).await;
    let error = soon("it gives up", keeper.mutex("other").try_lock()).await.unwrap_err();
    assert!(matches!(error, Error::Engine { temporary: true, .. }), "{error}");
}

#[tokio::test]
async fn a_refused_vote_leaves_nothing_behind_anywhere() {
    let nodes = Redis::start_many(5);
    let ttl = Duration::from_secs(10);
    let (one, other) = (
        keeper(&nodes, ttl, "restart_delay=0s").await.unwrap(),
        keeper(&nodes, ttl, "restart_delay=0s").await.unwrap(),
    );
    // Another client has three of five.
    for node in &nodes[..3] {
        let mut direct = direct(node).await;
        let _: () = redis::cmd("SET").arg("refused").arg("theirs").query_async(&mut direct).await.unwrap();
    }
    assert!(one.mutex("refused").try_lock().await.unwrap().is_none());
    assert_eq!(one.look("refused").await.unwrap().unwrap().claims[0].id, "theirs");
    for node in &nodes[3..] {
        let mut direct = direct(node).await;
        // A node whose vote was not waited for gets a leave, too, and that is not waited for, either.
        soon("nothing is left at the node", async {
            let mut there = true;
            while there {
                there = redis::cmd("EXISTS").arg("refused").query_async(&mut direct).await.unwrap();
            }
        })
        .await;
    }
    assert!(one.evict("refused", "theirs").await.unwrap(), "as it is shown");
    soon("it is free", other.mutex("refused").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn permits_are_refused_with_the_reason() {
    let nodes = Redis::start_many(3);
    let keeper = keeper(&nodes, Duration::from_secs(10), "restart_delay=0s").await.unwrap();
    let error = keeper.semaphore("permits", 2).acquire(1).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn readers_share_a_majority() {
    let nodes = Redis::start_many(3);
    let keeper = keeper(&nodes, Duration::from_secs(10), "restart_delay=0s").await.unwrap();
    let lock = keeper.rwlock("shared");
    let (one, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert_ne!(one.token().unwrap(), other.token().unwrap());
    assert!(lock.try_write().await.unwrap().is_none());
    one.release().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    other.release().await.unwrap();
    soon("the writer comes in", lock.write()).await.unwrap().release().await.unwrap();
}

/// One holds at nodes 1 and 2 while 3 is away; then 3 comes back, and 2 restarts without its data.
async fn forget(parameters: &str, ttl: Duration) -> (State, bool) {
    let nodes = Redis::start_many(3);
    let one = keeper(&nodes, ttl, parameters).await.unwrap();
    let other = keeper(&nodes, ttl, parameters).await.unwrap();
    nodes[2].pause();
    let guard = soon("two of three are enough", one.mutex("forgotten").lock()).await.unwrap();
    let token = guard.token().unwrap();
    // What was meant for node 3 must not arrive after all.
    nodes[2].kill();
    nodes[2].restart();
    nodes[1].kill();
    nodes[1].restart();
    let next = soon("the other one gets it", async {
        loop {
            if let Ok(guard) = other.mutex("forgotten").lock().await {
                return guard;
            }
        }
    })
    .await;
    (guard.state(), next.token().is_ok_and(|next| next > token))
}

#[tokio::test]
async fn a_node_that_forgot_is_not_used_until_what_it_forgot_has_expired() {
    let (state, token_grew) = forget("restart_delay=3s", Duration::from_secs(3)).await;
    assert_eq!(state, State::Lost, "the first knows that it is over before the second holds");
    assert!(token_grew);
}

/// The known danger without the delay: this must break.
#[tokio::test]
async fn without_the_delay_a_node_that_forgot_lets_in_a_second_one() {
    let (state, _) = forget("restart_delay=0s", Duration::from_secs(20)).await;
    assert_eq!(state, State::Held, "two holders: the danger is real");
}
