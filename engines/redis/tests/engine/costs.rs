//! What locks cost the server, counted by the server itself.

use crate::common::{calls, direct, keeper, soon, try_keeper, until, waiters};
use lockkeeper_testkit::Redis;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Sixteen keepers contend: however many wait, a hand-over costs two requests and everybody gets the same share.
async fn contend(keepers: usize, tasks_each: usize, rounds: usize) {
    let redis = Redis::start();
    let mut direct = direct(redis.port()).await;
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..keepers).map(|_| AtomicU64::new(0)).collect());
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let changes = Arc::new(AtomicU64::new(0));
    let mut all = Vec::new();
    for _ in 0..keepers {
        all.push(keeper(&redis.url()).await);
    }
    let gate = all[0].mutex("contended").lock().await.unwrap();
    let mut tasks = Vec::new();
    for (number, keeper) in all.iter().enumerate() {
        for _ in 0..tasks_each {
            let (mutex, counts) = (keeper.mutex("contended"), Arc::clone(&counts));
            let (last, changes) = (Arc::clone(&last), Arc::clone(&changes));
            tasks.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = mutex.lock().await.unwrap();
                    if last.swap(number, SeqCst) != number {
                        changes.fetch_add(1, SeqCst);
                    }
                    counts[number].fetch_add(1, SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    let everybody = keepers * tasks_each;
    until("everybody waits", async || waiters(&all[0], "contended").await == everybody).await;
    let before = calls(&mut direct).await;
    gate.release().await.unwrap();
    for task in tasks {
        soon("everybody is served", task).await.unwrap();
    }
    let after = calls(&mut direct).await;
    let grants: u64 = counts.iter().map(|count| count.load(SeqCst)).sum();
    let requests = after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"];
    let each = requests as f64 / grants as f64;
    println!("{everybody} waiters: {each:.2} requests per hand-over, {} hand-overs", changes.load(SeqCst));
    assert_eq!(grants, (everybody * rounds) as u64);
    assert!(each <= 2.5, "{each} requests per hand-over");
    // Nobody is woken who does not hold: one message for each grant that was waited for.
    let messages = after["publish"] - before.get("publish").copied().unwrap_or(0);
    assert!(messages <= grants, "{messages} messages for {grants} grants");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_between_sixteen_keepers_costs_two_requests() {
    contend(16, 1, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_among_a_thousand_waiters_costs_two_requests() {
    contend(16, 63, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_gets_the_same_share() {
    const KEEPERS: usize = 16;
    let redis = Redis::start();
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..KEEPERS).map(|_| AtomicU64::new(0)).collect());
    let together = Arc::new(tokio::sync::Barrier::new(KEEPERS));
    let mut tasks = Vec::new();
    for number in 0..KEEPERS {
        let (keeper, counts) = (keeper(&redis.url()).await, Arc::clone(&counts));
        let together = Arc::clone(&together);
        tasks.push(tokio::spawn(async move {
            together.wait().await;
            loop {
                let guard = keeper.mutex("shared out").lock().await.unwrap();
                let before = counts[number].fetch_add(1, SeqCst);
                guard.release().await.unwrap();
                if before >= 100 {
                    return;
                }
            }
        }));
    }
    soon("one has had a hundred turns", futures_util::future::select_all(tasks.iter_mut())).await.0.unwrap();
    tasks.iter().for_each(|task| task.abort());
    let counts: Vec<u64> = counts.iter().map(|count| count.load(SeqCst)).collect();
    assert!(counts.iter().all(|count| *count >= 90), "within 10 %: {counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_holders_and_a_thousand_waiters_are_renewed_once_each_third_of_the_ttl() {
    const LOCKS: usize = 1_000;
    let redis = Redis::start();
    // A third of it is long enough for a busy machine to renew all of them.
    let ttl = Duration::from_secs(12);
    let keeper = try_keeper(&redis.url(), ttl).await.unwrap();
    let mut guards = Vec::new();
    let mut tasks = Vec::new();
    for number in 0..LOCKS {
        guards.push(keeper.mutex(format!("many/{number}")).lock().await.unwrap());
        let mutex = keeper.mutex(format!("many/{number}"));
        tasks.push(tokio::spawn(async move { mutex.lock().await }));
    }
    until("all wait", async || {
        let locks = keeper.inspect("many/").await.unwrap();
        locks.iter().map(|lock| lock.waiters().count()).sum::<usize>() == LOCKS
    })
    .await;
    let mut direct = direct(redis.port()).await;
    let before = calls(&mut direct).await;
    tokio::time::sleep(ttl).await;
    let after = calls(&mut direct).await;
    let requests = after["evalsha"] - before["evalsha"];
    // Three rounds, or four if the time that was measured was longer; each is one pipeline of scripts for 64 locks.
    let scripts = LOCKS.div_ceil(64) as u64;
    assert!(requests >= 2 * scripts && requests <= 4 * scripts, "{requests} requests");
    let other: Vec<&String> = after
        .keys()
        .filter(|name| ["subscribe", "scan", "ping"].contains(&name.as_str()))
        .filter(|name| after[*name] != before.get(*name).copied().unwrap_or(0))
        .collect();
    assert!(other.is_empty(), "nothing but renewals: {other:?}");
    assert!(guards.iter().all(|guard| guard.token().is_ok()));
    tasks.iter().for_each(|task| task.abort());
}

/// However many wait, for however long: while one of us holds, one of them looks, about each third of the TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_for_a_plain_lock_cost_next_to_nothing() {
    const WAITERS: usize = 200;
    let redis = Redis::start();
    let ttl = Duration::from_secs(6);
    let keeper = try_keeper(&format!("{}?style=plain", redis.url()), ttl).await.unwrap();
    let mut direct = direct(redis.port()).await;
    let guard = keeper.mutex("idle").lock().await.unwrap();
    let waiting = |_| {
        let mutex = keeper.mutex("idle");
        tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
    };
    let before = calls(&mut direct).await;
    let tasks: Vec<_> = (0..WAITERS).map(waiting).collect();
    let attempts = WAITERS as u64 + 1;
    until("everybody has tried", async || {
        calls(&mut direct.clone()).await["evalsha"] - before["evalsha"] >= attempts
    })
    .await;
    let before = calls(&mut direct).await;
    tokio::time::sleep(ttl).await;
    let after = calls(&mut direct).await;
    // A renewal and at most two looks in each third of the TTL, and one third to spare.
    let requests = after["evalsha"] - before["evalsha"];
    assert!(requests <= 12, "{requests} requests");
    guard.release().await.unwrap();
    for task in tasks {
        soon("everybody has its turn", task).await.unwrap();
    }
}
