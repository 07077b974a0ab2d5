//! One keeper, one lock: lock and release.

use super::pairs_sample;
use crate::Result;
use crate::floors::{Floor, Pairs, repeat};
use crate::measure::Pace;
use crate::scale::Limit;
use crate::summary::Sample;
use crate::target::{close, connect, fresh_name};
use futures_util::future::BoxFuture;
use lockkeeper::{Keeper, Mutex};
use std::time::Duration;

/// Connections, caches and branch predictors get this much before the clock starts.
const WARM_UP: Limit = Limit { turns: 200, time: Duration::from_millis(100) };

/// A keeper's mutexes, as many as there are tasks.
#[derive(Debug)]
pub(crate) struct Mutexes(Vec<Mutex>);

impl Mutexes {
    /// New locks.
    pub(crate) fn of(keeper: &Keeper, count: usize) -> Self {
        Self::named(keeper, &fresh_name("pairs"), count)
    }

    /// The locks under this name.
    pub(crate) fn named(keeper: &Keeper, name: &str, count: usize) -> Self {
        Self((0..count).map(|number| keeper.mutex(format!("{name}/{number}"))).collect())
    }
}

impl Pairs for Mutexes {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let guard = self.0[lock].lock().await?;
            Ok(guard.release().await?)
        })
    }
}

pub(crate) async fn on_engine(url: &str, limit: Limit) -> Result<Sample> {
    let keeper = connect(url, None).await?;
    let sample = measure(&Mutexes::of(&keeper, 1), limit).await;
    close(keeper).await;
    sample
}

pub(crate) async fn on_floor(floor: Floor, url: &str, limit: Limit) -> Result<Sample> {
    measure(&*floor.connect(url).await?, limit).await
}

async fn measure(pairs: &dyn Pairs, limit: Limit) -> Result<Sample> {
    repeat(pairs, 0, &Pace::start(WARM_UP)).await?;
    let pace = Pace::start(limit);
    let turns = repeat(pairs, 0, &pace).await?;
    Ok(pairs_sample(&turns.waits, turns.seconds, &[0.5, 0.99, 0.999]))
}
