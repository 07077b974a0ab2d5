//! Runtimes that lack I/O or timers, on every engine.

use lockkeeper::{Error, Keeper};
use lockkeeper_core::engine::Clock;
use std::time::Duration;
use tokio::runtime::Builder;

const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);

/// It may work, too: where the lock's connection is the background's, the caller's runtime needs neither. In no case is there a
/// panic in the caller's task.
pub(crate) fn a_runtime_without_io_or_timers_gets_an_error_that_says_so(url: &str, styles: &[&str]) {
    let home = Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (style, has) in styles.iter().flat_map(|style| ["timers", "I/O", "nothing"].map(|has| (style, has))) {
        let mut bare = Builder::new_current_thread();
        match has {
            "timers" => drop(bare.enable_time()),
            "I/O" => drop(bare.enable_io()),
            _ => {}
        }
        let bare = bare.build().expect("a runtime");
        let says_so = |error: Error| {
            assert!(error.to_string().contains("enable_all"), "{style} with {has}: {error}");
        };
        let _ = bare.block_on(within(connect(url, style))).map_err(says_so);
        let keeper = home.block_on(connect(url, style)).expect("a keeper");
        let mutex = keeper.mutex("bare");
        for mutex in [&mutex, &mutex, &keeper.mutex("bare").lease(TTL / 2)] {
            let pair = async { mutex.lock().await?.release().await };
            let _ = bare.block_on(within(pair)).map_err(says_so);
        }
        let held = home.block_on(mutex.lock()).expect("it left nothing behind");
        match bare.block_on(within(mutex.lock_within(TTL / 4))) {
            Ok(guard) => assert!(guard.is_none(), "{style} with {has}"),
            Err(error) => says_so(error),
        }
        home.block_on(held.release()).expect("a release");
        home.block_on(async { mutex.lock().await?.release().await }).expect("it left nothing behind");
    }
}

async fn connect(url: &str, style: &str) -> Result<Keeper, Error> {
    lockkeeper::connect(format!("{url}?style={style}&ttl={}ms", TTL.as_millis())).await
}

/// The limit on a runtime that may have no timers.
async fn within<T>(outcome: impl Future<Output = T>) -> T {
    Clock::Boot.timeout(LONG, outcome).await.expect("an answer in time")
}
