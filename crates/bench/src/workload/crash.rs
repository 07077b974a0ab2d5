//! The process that holds is killed: how long until the next one holds.

use super::hold::Held;
use super::settle::{MOMENT, settle};
use crate::Result;
use crate::helper::{Helper, Task};
use crate::measure::Latencies;
use crate::scale::Scale;
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use lockkeeper::Keeper;
use lockkeeper::views::{Abilities, CrashFrees};
use std::time::{Duration, Instant};

/// How often a holder is killed, and with which TTL: the engine's usual one where a crash frees at once, so
/// that no expiry can help.
fn plan(abilities: &Abilities, scale: &Scale) -> (usize, Option<Duration>) {
    match abilities.crash_frees {
        CrashFrees::AtOnce => (scale.kills, None),
        _ => (scale.slow_kills, Some(scale.short_ttl.max(abilities.min_ttl))),
    }
}

pub(crate) async fn run(url: &str, scale: &Scale) -> Result<Sample> {
    let keeper = connect(url, None).await?;
    let (kills, ttl) = plan(&keeper.abilities(), scale);
    let mut latencies = Latencies::default();
    for _ in 0..kills {
        latencies.record(one_kill(&keeper, url, ttl, scale.patience).await?);
    }
    let ttl = ttl.unwrap_or(keeper.ttl());
    close(keeper).await;
    Ok(Sample::default()
        .with_latencies("hand-over ", &latencies, &[0.5, 1.0])
        .with("kills", Unit::Count, latencies.count() as f64)
        .with("TTL", Unit::Seconds, ttl.as_secs_f64()))
}

async fn one_kill(keeper: &Keeper, url: &str, ttl: Option<Duration>, patience: Duration) -> Result<Duration> {
    let name = fresh_name("crash");
    let mut holder = Helper::start(&Task::Hold { url: url.into(), name: name.clone(), ttl })?;
    let Held = holder.read(patience)?;
    let mutex = keeper.mutex(&name);
    let waiter = tokio::spawn(async move { mutex.lock().await.map(|guard| (Instant::now(), guard)) });
    settle(keeper, &name, 1, MOMENT, patience).await?;
    let killed = Instant::now();
    holder.kill()?;
    let (granted, guard) = waiter.await??;
    guard.release().await?;
    Ok(granted.duration_since(killed))
}
