//! The process that holds is stopped beyond its TTL and resumed: what it knows, and when.

use super::hold::{Held, Lost};
use super::settle::{MOMENT, settle};
use crate::Result;
use crate::helper::{Helper, Task};
use crate::scale::Scale;
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use lockkeeper_core::engine::Clock;

pub(crate) async fn run(url: &str, scale: &Scale) -> Result<Sample> {
    let keeper = connect(url, None).await?;
    let ttl = scale.short_ttl.max(keeper.abilities().min_ttl);
    let name = fresh_name("pause");
    let holder = Helper::start(&Task::Hold { url: url.into(), name: name.clone(), ttl: Some(ttl) })?;
    let Held = holder.read(scale.patience)?;
    let mutex = keeper.mutex(&name);
    let waiter = tokio::spawn(async move { mutex.lock().await.map(|guard| (Clock::Boot.now(), guard)) });
    settle(&keeper, &name, 1, MOMENT, scale.patience).await?;
    let paused = Clock::Boot.now();
    holder.pause()?;
    // Where the lock belongs to a connection, which a stopped process keeps, it may not be free before that ends.
    let longest = scale.patience / 3;
    let granted = tokio::time::timeout(longest, waiter).await;
    let (granted, guard) =
        granted.map_err(|_| format!("kept its lock while it was stopped, for {longest:?} at least"))???;
    let resumed = Clock::Boot.now();
    holder.resume()?;
    let lost: Lost = holder.read(scale.patience)?;
    guard.release().await?;
    close(keeper).await;
    let seconds = |later: u64, earlier: u64| (later as f64 - earlier as f64) / 1e9;
    Ok(Sample::default()
        .with("stop to grant", Unit::Seconds, granted.since(paused).as_secs_f64())
        .with("distrust to grant", Unit::Seconds, seconds(granted.as_nanos(), lost.trusted_until_ns))
        .with("resume to lost signal", Unit::Seconds, seconds(lost.signal_ns, resumed.as_nanos()))
        .with("TTL", Unit::Seconds, ttl.as_secs_f64()))
}
