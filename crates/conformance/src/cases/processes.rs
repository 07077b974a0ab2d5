//! Processes that are killed or paused while they hold or wait.

use crate::bench::{Bench, soon, soon_held};
use crate::helper::Helper;
use lockkeeper::Token;
use lockkeeper::views::CrashFrees;
use std::time::Duration;

/// Where a crash frees at once, the TTL is made so long that its passing cannot be what frees.
fn crash_ttl(bench: &Bench) -> Duration {
    match bench.abilities().crash_frees {
        CrashFrees::AtOnce => bench.long_ttl(),
        _ => bench.short_ttl(),
    }
}

pub(super) async fn a_killed_holder_frees_the_lock(bench: Bench) {
    let keeper = bench.keeper_with(crash_ttl(&bench)).await;
    let mut helper = Helper::start(bench.url(), bench.namespace(), "killed", crash_ttl(&bench));
    helper.token();
    assert!(keeper.mutex("killed").try_lock().await.expect("an answer").is_none());
    let waiting = keeper.clone();
    let waiter = tokio::spawn(async move { soon_held(waiting.mutex("killed").lock()).await });
    if bench.abilities().fair {
        bench.until_waiting(&keeper, "killed", 1).await;
    }
    helper.kill();
    waiter.await.expect("the waiter").release().await.expect("a release");
    bench.until_idle(&keeper, "killed").await;
}

pub(super) async fn a_killed_waiter_does_not_stall_the_queue(bench: Bench) {
    let keeper = bench.keeper_with(crash_ttl(&bench)).await;
    let holder = soon_held(keeper.mutex("stalled").lock()).await;
    let mut helper = Helper::start(bench.url(), bench.namespace(), "stalled", crash_ttl(&bench));
    if bench.abilities().fair {
        bench.until_waiting(&keeper, "stalled", 1).await;
    }
    let waiting = keeper.clone();
    let waiter = tokio::spawn(async move { soon_held(waiting.mutex("stalled").lock()).await });
    if bench.abilities().fair {
        bench.until_waiting(&keeper, "stalled", 2).await;
    }
    helper.kill();
    holder.release().await.expect("a release");
    waiter.await.expect("the waiter").release().await.expect("a release");
    bench.until_idle(&keeper, "stalled").await;
}

pub(super) async fn a_paused_holder_finds_out_that_it_lost(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let mut helper = Helper::start(bench.url(), bench.namespace(), "paused", bench.short_ttl());
    let token = helper.token();
    helper.pause();
    let guard = soon_held(keeper.mutex("paused").lock()).await;
    assert!(guard.token().expect("a token") > Token(token));
    helper.resume();
    // The very first answer after waking up, whatever its background tasks have done by then.
    let state =
        soon("an answer", tokio::task::spawn_blocking(move || helper.state())).await.expect("no panic");
    assert_eq!(state, "Lost");
    guard.release().await.expect("the one who woke up has not touched it");
}
