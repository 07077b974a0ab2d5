//! A server whose wall clock is set forward while a lock is held: the holder learns at once that it has let in the next one.

use lockkeeper::Connect;
use lockkeeper_testkit::{Postgres, WallClock};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_when_a_clock_set_forward_lets_in_the_next_one() {
    let clock = WallClock::new();
    let server = clock.of(Postgres::start);
    let ttl = Duration::from_secs(60);
    let keeper = async || Connect::to(server.url()).ttl(ttl).connect().await.expect("a keeper");
    let (first, second) = (keeper().await, keeper().await);
    let held = first.mutex("jump").lock().await.expect("a grant");
    let lost = tokio::spawn({
        let lost = held.lost_signal();
        async move {
            lost.await;
            Instant::now()
        }
    });
    clock.set_ahead_ms(3_600_000);
    let granted =
        tokio::time::timeout(SOON, second.mutex("jump").lock()).await.expect("soon").expect("a grant");
    let granted_at = Instant::now();
    let lost_at = tokio::time::timeout(SOON, lost).await.expect("the lost signal").expect("no panic");
    let overlap = lost_at.saturating_duration_since(granted_at);
    println!("{overlap:?} of belief beside the next holder");
    assert!(overlap < Duration::from_secs(5), "{overlap:?}");
    granted.release().await.expect("a release");
}
