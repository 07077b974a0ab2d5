//! Processes on one lock: each should get its turn.

use super::contended::{self, Turns};
use crate::helper::{self, Helper, Task};
use crate::measure::Pace;
use crate::runtime::{self, Threads};
use crate::scale::{Limit, Scale};
use crate::summary::Sample;
use crate::target::{close, fresh_name};
use crate::{Result, counters::Count};
use std::time::Duration;

/// A helper's word that it is connected.
#[derive(serde::Serialize, serde::Deserialize)]
struct Ready;

pub(crate) fn run(url: &str, count: usize, scale: &Scale) -> Result<Sample> {
    // The turns of one process end with its share, so that one that is always quicker does not take all.
    let turns = (scale.limit.turns / count as u64).max(1);
    let limit = Limit { turns, time: scale.limit.time.max(Duration::from_millis(500)) };
    let task = Task::Contend { url: url.into(), name: fresh_name("processes"), limit };
    let mut helpers = (0..count).map(|_| Helper::start(&task)).collect::<Result<Vec<_>>>()?;
    for helper in &helpers {
        let Ready = helper.read(scale.patience)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let requests = runtime.block_on(Count::start(url))?;
    helpers.iter_mut().try_for_each(Helper::go)?;
    let contenders: Vec<Turns> =
        helpers.iter().map(|helper| helper.read(scale.patience)).collect::<Result<_>>()?;
    let requests = runtime.block_on(requests.so_far())?;
    let all: u64 = contenders.iter().map(|turns| turns.all).sum();
    let each = requests.map(|requests| requests / all.max(1) as f64);
    Ok(contended::sample(&contenders, contended::WAIT).with_some(
        "requests/hand-over",
        crate::summary::Unit::Ratio,
        each,
    ))
}

/// The helper's part.
pub(crate) fn contend(url: &str, name: &str, limit: Limit) -> Result<()> {
    let hung = limit.time + Duration::from_secs(60);
    runtime::run(Threads::One, hung, async {
        let keeper = contended::connect_and_warm_up(url, name).await?;
        helper::say(&Ready)?;
        helper::wait_for_go()?;
        let turns = contended::contend(&keeper.mutex(name), &Pace::start(limit)).await;
        close(keeper).await;
        helper::say(&turns?)
    })
}
