//! A server whose wall clock is set while locks are held: what holds, and how soon a holder knows that it does not hold.

use crate::common::{keeper, soon, try_keeper, until, waiters};
use lockkeeper_testkit::{Redis, WallClock};
use std::time::{Duration, Instant};

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_while_the_servers_clock_is_set_back_and_forth() {
    let clock = WallClock::new();
    let redis = clock.of(Redis::start);
    for style in ["queue", "plain", "redisson"] {
        let url = format!("{}?style={style}", redis.url());
        let (one, other) = (keeper(&url).await, keeper(&url).await);
        let mut last = 0;
        for turn in 0..60 {
            clock.set_ahead_ms([0, HOUR_MS, -HOUR_MS, HOUR_MS / 2][turn % 4]);
            let keeper = if turn % 3 == 0 { &one } else { &other };
            // A lock of its own each time, too: nothing is remembered of it.
            for name in ["same".to_owned(), format!("{turn}")] {
                let guard = soon("a grant", keeper.mutex(format!("{style}/{name}")).lock()).await.unwrap();
                let token = guard.token().unwrap().0;
                assert!(token > last, "{style}: {token} after {last} in turn {turn}");
                last = token;
                guard.release().await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_at_once_that_a_clock_set_forward_has_let_in_the_next_one() {
    let clock = WallClock::new();
    let redis = clock.of(Redis::start);
    let ttl = Duration::from_secs(45);
    let (first, second) =
        (try_keeper(&redis.url(), ttl).await.unwrap(), try_keeper(&redis.url(), ttl).await.unwrap());
    let held = first.mutex("jump").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = second.mutex("jump");
        async move { mutex.lock().await.map(|guard| (Instant::now(), guard)) }
    });
    until("the second waits", async || waiters(&first, "jump").await == 1).await;
    let lost = tokio::spawn({
        let lost = held.lost_signal();
        async move {
            lost.await;
            Instant::now()
        }
    });
    // The holder's claim and the waiter's expire together; a later one lets the server find that out.
    clock.set_ahead_ms(50_000);
    let start = Instant::now();
    let third = keeper(&redis.url()).await;
    let granted = soon("a grant", third.mutex("jump").lock()).await.unwrap();
    let (granted_at, lost_at) = (Instant::now(), soon("the lost signal", lost).await.unwrap());
    let overlap = lost_at.saturating_duration_since(granted_at);
    println!("{overlap:?} of belief beside the next holder, {:?} after the jump", start.elapsed());
    assert!(overlap < Duration::from_secs(5), "{overlap:?}");
    granted.release().await.unwrap();
    let (_, waited) = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    waited.release().await.unwrap();
}
