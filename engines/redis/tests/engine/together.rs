//! Many tasks on locks of their own: they share a connection, and nothing else.

use crate::common::{calls, direct, soon, try_keeper, until};
use futures_util::future::join_all;
use lockkeeper_core::{Error, Keeper};
use lockkeeper_testkit::Redis;
use std::time::Duration;

const TASKS: usize = 64;
const STYLES: [&str; 4] = ["queue", "plain", "redisson", "redisson-rw"];

/// Its TTL is longer than the test, so that no expiry hides a fault.
async fn patient_keeper(redis: &Redis, style: &str) -> Keeper {
    try_keeper(&format!("{}?style={style}", redis.url()), Duration::from_secs(120)).await.unwrap()
}

fn name(number: usize) -> String {
    format!("own/{number}")
}

#[tokio::test]
async fn tasks_on_their_own_locks_cost_two_requests_each_and_every_token_grows() {
    let redis = Redis::start();
    let mut direct = direct(redis.port()).await;
    for style in STYLES {
        let keeper = patient_keeper(&redis, style).await;
        let mut last = [0; TASKS];
        for _ in 0..10 {
            let before = calls(&mut direct).await;
            let guards =
                join_all((0..TASKS).map(async |number| keeper.mutex(name(number)).lock().await.unwrap()));
            let guards = soon("all are granted", guards).await;
            for (last, guard) in last.iter_mut().zip(&guards) {
                let token = guard.token().unwrap().0;
                assert!(token > *last, "{style}: {token} after {last}");
                *last = token;
            }
            let released = join_all(guards.into_iter().map(|guard| guard.release()));
            assert!(soon("all are released", released).await.iter().all(Result::is_ok));
            let after = calls(&mut direct).await;
            let requests = after["evalsha"] - before.get("evalsha").copied().unwrap_or(0);
            assert_eq!(requests, 2 * TASKS as u64, "{style}: requests for {TASKS} pairs");
        }
        keeper.close().await;
    }
}

#[tokio::test]
async fn a_lock_that_is_held_or_broken_does_not_hold_up_the_others() {
    const HELD: usize = 20;
    const BROKEN: usize = 40;
    let redis = Redis::start();
    let mut direct = direct(redis.port()).await;
    for (style, broken) in STYLES.into_iter().zip(["{lockkeeper/own/40}:lock", "lockkeeper/own/40"]) {
        let (keeper, other) = (patient_keeper(&redis, style).await, patient_keeper(&redis, style).await);
        let held = other.mutex(name(HELD)).lock().await.unwrap();
        let () = redis::cmd("DEL").arg(broken).query_async(&mut direct).await.unwrap();
        let () = redis::cmd("LPUSH").arg(broken).arg("no lock").query_async(&mut direct).await.unwrap();
        for _ in 0..3 {
            let tried = join_all((0..TASKS).map(async |number| keeper.mutex(name(number)).try_lock().await));
            let mut guards = Vec::new();
            for (number, tried) in soon("all have a reply", tried).await.into_iter().enumerate() {
                match number {
                    HELD => assert!(tried.unwrap().is_none(), "{style}"),
                    BROKEN => assert!(matches!(tried, Err(Error::Engine { .. })), "{style}: {tried:?}"),
                    _ => guards.push(tried.unwrap().unwrap()),
                }
            }
            let released = join_all(guards.into_iter().map(|guard| guard.release()));
            assert!(soon("all are released", released).await.iter().all(Result::is_ok), "{style}");
        }
        held.release().await.unwrap();
        let () = redis::cmd("DEL").arg(broken).query_async(&mut direct).await.unwrap();
    }
}

#[tokio::test]
async fn each_task_gets_the_demand_that_it_requested() {
    let redis = Redis::start();
    let keeper = patient_keeper(&redis, "queue").await;
    for _ in 0..3 {
        let requested = join_all((0..TASKS).map(async |number| {
            let name = name(number);
            match number % 3 {
                0 => keeper.mutex(name).lock().await,
                1 => keeper.rwlock(name).read().await,
                _ => keeper.semaphore(name, 5).acquire(1).await,
            }
            .unwrap()
        }));
        let guards = soon("all are granted", requested).await;
        let all = keeper.inspect("own/").await.unwrap();
        for (number, guard) in guards.iter().enumerate() {
            let lock = all.iter().find(|lock| lock.name == name(number)).unwrap();
            assert_eq!(lock.claims.len(), 1);
            assert_eq!(lock.claims[0].token, guard.token().ok());
            let wanted = ["exclusive", "shared", "1/5"][number % 3];
            assert_eq!(lock.claims[0].demand.to_string(), wanted);
        }
        let released = join_all(guards.into_iter().map(|guard| guard.release()));
        assert!(soon("all are released", released).await.iter().all(Result::is_ok));
    }
}

/// However far a request has come when its task is dropped, the lock is free in the end, long before it could expire.
async fn dropped_at_any_moment(redis: &Redis, style: &str) {
    let keeper = patient_keeper(redis, style).await;
    for round in 0..60 {
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let mutex = keeper.mutex(name(number));
                tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
            })
            .collect();
        for _ in 0..round % 20 {
            tokio::task::yield_now().await;
        }
        tasks.iter().for_each(|task| task.abort());
        join_all(tasks).await;
    }
    until("all are free", async || keeper.inspect("own/").await.unwrap().is_empty()).await;
    let guards = join_all((0..TASKS).map(async |number| keeper.mutex(name(number)).lock().await.unwrap()));
    soon("all can be had", guards).await;
}

#[tokio::test]
async fn a_dropped_request_leaves_nothing_behind() {
    let redis = Redis::start();
    for style in STYLES {
        dropped_at_any_moment(&redis, style).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_request_leaves_nothing_behind_on_several_threads() {
    let redis = Redis::start();
    for style in STYLES {
        dropped_at_any_moment(&redis, style).await;
    }
}
