//! More tasks on one lock than an engine can serve, and how soon it is as quick as before when they have gone.

use super::PAIRS;
use super::spread::measure;
use super::uncontended::Mutexes;
use crate::Result;
use crate::scale::{Limit, Scale};
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use lockkeeper::Keeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Keepers of the tasks that overload the engine.
const KEEPERS: usize = 4;
/// Locks that are measured before and after.
const LOCKS: usize = 64;
/// The share of the former rate that counts as recovered.
const RECOVERED: f64 = 0.8;
/// How long the overload lasts.
const OVERLOAD: Duration = Duration::from_secs(5);
/// How long recovery may take before it is given up.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);
/// One look at the rate.
const WINDOW: Limit = Limit { turns: u64::MAX, time: Duration::from_millis(500) };

pub(crate) async fn run(url: &str, tasks: usize, _scale: &Scale) -> Result<Sample> {
    let keeper = connect(url, None).await?;
    let locks = Arc::new(Mutexes::of(&keeper, LOCKS));
    let rate = async |limit| -> Result<f64> {
        let sample = measure(Arc::clone(&locks) as _, LOCKS, limit).await?;
        Ok(sample.get(PAIRS).unwrap_or_default())
    };
    // The first look opens what an engine opens at its first lock.
    rate(WINDOW).await?;
    let before = rate(Limit { time: WINDOW.time * 4, ..WINDOW }).await?;

    let mut keepers = Vec::new();
    for _ in 0..KEEPERS {
        keepers.push(connect(url, None).await?);
    }
    let turns = overload(&keepers, tasks).await;

    let ended = Instant::now();
    let mut after = 0.0;
    while after < before * RECOVERED && ended.elapsed() < LONGEST {
        after = rate(WINDOW).await?;
    }
    let recovered = ended.elapsed();
    for keeper in keepers.into_iter().chain([keeper]) {
        close(keeper).await;
    }
    Ok(Sample::default()
        .with("pairs/s before", Unit::PerSecond, before)
        .with("turns/s in overload", Unit::PerSecond, turns as f64 / OVERLOAD.as_secs_f64())
        .with("pairs/s after", Unit::PerSecond, after)
        .with("recovered after", Unit::Seconds, recovered.as_secs_f64()))
}

/// Lets the tasks fight for one lock, and ends them in the middle of it; the turns that they had.
async fn overload(keepers: &[Keeper], tasks: usize) -> u64 {
    let (name, turns) = (fresh_name("recovery"), Arc::new(AtomicU64::new(0)));
    let mut all = JoinSet::new();
    for task in 0..tasks {
        let (mutex, turns) = (keepers[task % keepers.len()].mutex(&name), Arc::clone(&turns));
        all.spawn(async move {
            // What fails in an overload is asked for again, as callers do.
            loop {
                if let Ok(guard) = mutex.lock().await {
                    turns.fetch_add(1, Relaxed);
                    let _ = guard.release().await;
                }
            }
        });
    }
    tokio::time::sleep(OVERLOAD).await;
    all.shutdown().await;
    turns.load(Relaxed)
}
