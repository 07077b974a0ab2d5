//! A long hold while the nodes restart one after the other, without their data.

use crate::common::{direct, keeper, soon};
use lockkeeper_core::{Keeper, State};
use lockkeeper_testkit::Redis;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(3);

async fn get(node: &Redis, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query_async(&mut direct(node).await).await.unwrap()
}

/// Whose claim the node has: its value but for the time since when, which is the node's own.
async fn claim(node: &Redis, name: &str) -> Option<String> {
    get(node, name).await.and_then(|value| Some(value.rsplit_once(' ')?.0.to_owned()))
}

/// Waits until the node has the claim; the lock must be nobody else's all the while.
async fn regained(node: &Redis, expected: &str, other: &Keeper, name: &str) {
    soon("the node has the claim again", async {
        while claim(node, name).await.as_deref() != Some(expected) {
            assert!(other.mutex(name).try_lock().await.unwrap().is_none(), "a second holder");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_the_restart_of_every_node_in_turn() {
    let nodes = Redis::start_many(5);
    let (ours, other) = (keeper(&nodes, TTL, "").await.unwrap(), keeper(&nodes, TTL, "").await.unwrap());
    let guard = soon("it is free", ours.mutex("long").lock()).await.unwrap();
    let token = guard.token().unwrap();
    let mut claims = Vec::new();
    for node in &nodes {
        claims.extend(claim(node, "long").await);
    }
    // A node that was not ready at the grant is taken by a renewal as well.
    for node in &nodes {
        regained(node, &claims[0], &other, "long").await;
    }
    for node in &nodes {
        node.kill();
        tokio::task::block_in_place(|| node.restart());
        regained(node, &claims[0], &other, "long").await;
        assert_eq!(guard.state(), State::Held);
        let fence = get(node, "{long}:fence").await.unwrap();
        let number: u64 = fence.split(' ').next().unwrap().parse().unwrap();
        assert!(number >= token.0, "the node knows the token again: {fence}");
    }
    assert_eq!(guard.token().unwrap(), token, "it is the same hold");
    guard.release().await.unwrap();
    let next = soon("it is free", other.mutex("long").lock()).await.unwrap();
    assert!(next.token().unwrap() > token);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_majority_has_lost_is_not_regained() {
    let nodes = Redis::start_many(3);
    let keeper = keeper(&nodes, TTL, "restart_delay=0s").await.unwrap();
    let guard = keeper.mutex("gone").lock().await.unwrap();
    for node in &nodes[..2] {
        let _: () = redis::cmd("DEL").arg("gone").query_async(&mut direct(node).await).await.unwrap();
    }
    soon("the hold is lost", guard.lost()).await;
    assert_eq!(guard.state(), State::Lost);
    let next = soon("another one gets it", keeper.mutex("gone").lock()).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_too_few_nodes_have_blocks_others_until_the_deadline_that_was_given() {
    let nodes = Redis::start_many(5);
    let (ours, other) = (keeper(&nodes, TTL, "").await.unwrap(), keeper(&nodes, TTL, "").await.unwrap());
    let mut busy = Vec::new();
    for node in &nodes[..2] {
        busy.push(direct(node).await);
    }
    for node in &mut busy {
        let _: () = redis::cmd("SET").arg("few").arg("of another client").query_async(node).await.unwrap();
    }
    // The three other nodes have it, and one of them restarts without its data.
    let guard = soon("three are enough", ours.mutex("few").lock()).await.unwrap();
    soon("all three have it", async { while claim(&nodes[4], "few").await.is_none() {} }).await;
    let promised = Instant::now() + guard.valid_for();
    nodes[4].kill();
    for node in &mut busy {
        let _: () = redis::cmd("DEL").arg("few").query_async(node).await.unwrap();
    }
    let lost = async {
        soon("the hold is lost", guard.lost()).await;
        Instant::now()
    };
    let next =
        async { (soon("another one gets it", other.mutex("few").lock()).await.unwrap(), Instant::now()) };
    let (lost, (next, granted)) = tokio::join!(lost, next);
    assert!(lost < promised, "it is lost as soon as a majority does not have it");
    assert!(granted >= promised, "granted {:?} before the deadline", promised - granted);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_regain_a_node_too() {
    let nodes = Redis::start_many(3);
    let keeper = keeper(&nodes, TTL, "restart_delay=0s").await.unwrap();
    let (one, two) =
        (keeper.rwlock("read").read().await.unwrap(), keeper.rwlock("read").read().await.unwrap());
    let both_are_inside = async |node: &Redis| {
        let mut direct = direct(node).await;
        soon("both are inside", async {
            while redis::cmd("ZCARD").arg("read").query_async::<u32>(&mut direct).await.unwrap() < 2 {}
        })
        .await;
    };
    // A node that was not ready at the grants is taken by a renewal as well.
    for node in &nodes {
        both_are_inside(node).await;
    }
    for node in &nodes {
        node.kill();
        tokio::task::block_in_place(|| node.restart());
        both_are_inside(node).await;
    }
    assert!(one.token().is_ok() && two.token().is_ok());
    assert!(keeper.rwlock("read").try_write().await.unwrap().is_none());
}
