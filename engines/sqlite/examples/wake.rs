//! What a wake-up and an idle waiter cost: hand-overs between two engines, and 200 waiters that wait.
//!
//! `cargo run --release -p lockkeeper-sqlite --example wake`

use lockkeeper_core::engine::Address;
use lockkeeper_core::{Keeper, Result};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HANDOVERS: usize = 500;
const WAITERS: usize = 200;
const IDLE: Duration = Duration::from_secs(20);

async fn keeper(url: &str) -> Result<Keeper> {
    let ttl = Duration::from_secs(10);
    Keeper::builder().ttl(ttl).build(lockkeeper_sqlite::connect(Address::parse(url)?, ttl).await?)
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// From just before one engine's release to the other engine's grant.
async fn hand_over(keepers: &[Keeper; 2]) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for number in 0..HANDOVERS {
        let guard = keepers[number % 2].mutex("ball").lock().await?;
        let next = keepers[(number + 1) % 2].mutex("ball");
        let waiting = tokio::spawn(async move {
            let guard = next.lock().await?;
            let granted = Instant::now();
            guard.release().await?;
            Ok::<_, lockkeeper_core::Error>(granted)
        });
        while keepers[0].inspect("ball").await?[0].claims.len() < 2 {
            tokio::task::yield_now().await;
        }
        let start = Instant::now();
        guard.release().await?;
        times.push(waiting.await.expect("no panic")?.duration_since(start));
    }
    times.sort();
    Ok(times)
}

#[tokio::main]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let keepers = [keeper(&url).await?, keeper(&url).await?];
    let times = hand_over(&keepers).await?;
    println!("hand-over: p50 {:?}, p99 {:?}", times[HANDOVERS / 2], times[HANDOVERS * 99 / 100]);

    let guard = keepers[0].mutex("long").lock().await?;
    let woken = Arc::new(Mutex::new(0));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|number| {
            let (lock, woken) = (keepers[number % 2].mutex("long"), Arc::clone(&woken));
            tokio::spawn(async move {
                lock.lock().await.expect("a turn").release().await.expect("it is ours");
                *woken.lock().expect("no panic") += 1;
            })
        })
        .collect();
    while keepers[0].inspect("long").await?[0].claims.len() <= WAITERS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let cpu = cpu_time();
    tokio::time::sleep(IDLE).await;
    let used = (cpu_time() - cpu).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    println!("{WAITERS} idle waiters of 2 engines, renewals included: {used:.2} % of a processor");
    let start = Instant::now();
    guard.release().await?;
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    println!("then {WAITERS} hand-overs, one after the other: {:?} each", start.elapsed() / WAITERS as u32);
    Ok(())
}
