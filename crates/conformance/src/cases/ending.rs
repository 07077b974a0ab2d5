//! Programs that end with a guard in a variable.

use crate::bench::{Bench, soon};
use crate::helper::{Helper, Runs};

/// How often each kind of program ends; more often with this variable.
const TIMES: &str = "LOCKKEEPER_ENDINGS";

pub(super) async fn a_guard_dropped_at_the_end_of_main_frees_the_lock(bench: Bench) {
    let times = std::env::var(TIMES).map_or(2, |times| times.parse().expect("a number"));
    let keeper = bench.keeper_with(bench.long_ttl()).await;
    let mut held = Vec::new();
    for turn in 0..times {
        for runs in [Runs::Outside, Runs::OnOneThread, Runs::InATask] {
            let case = bench.clone();
            let program = tokio::task::spawn_blocking(move || {
                let mut helper =
                    Helper::start_as(runs, case.url(), case.namespace(), "main", case.long_ttl());
                helper.token();
                helper.end();
            });
            soon("the program's end", program).await.expect("no panic");
            match keeper.mutex("main").try_lock().await.expect("an answer") {
                Some(guard) => guard.release().await.expect("a release"),
                None => {
                    held.push((turn, runs));
                    bench.until_idle(&keeper, "main").await;
                }
            }
        }
    }
    assert!(held.is_empty(), "still held after {} of {} ends: {held:?}", held.len(), 3 * times);
}
