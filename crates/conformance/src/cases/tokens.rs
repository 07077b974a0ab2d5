//! Fencing tokens only grow (Law 8).

use super::loss::evict_holder;
use crate::bench::{Bench, soon_held};
use crate::helper::Helper;
use lockkeeper::{Keeper, Token};

async fn next_token(keeper: &Keeper, name: &str) -> Token {
    let guard = soon_held(keeper.mutex(name).lock()).await;
    let token = guard.token().expect("a token");
    guard.release().await.expect("a release");
    token
}

pub(super) async fn grow_with_every_grant(bench: Bench) {
    let keeper = bench.keeper().await;
    let mut last = Token(0);
    for _ in 0..20 {
        let token = next_token(&keeper, "grants").await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

pub(super) async fn grow_from_keeper_to_keeper_and_after_idle_times(bench: Bench) {
    let mut last = Token(0);
    for _ in 0..5 {
        let keeper = bench.keeper().await;
        let token = next_token(&keeper, "idle").await;
        assert!(token > last, "{token} after {last}");
        last = token;
        bench.until_idle(&keeper, "idle").await;
        keeper.close().await;
    }
}

pub(super) async fn grow_after_an_eviction(bench: Bench) {
    let keeper = bench.keeper().await;
    let guard = soon_held(keeper.mutex("evicted").lock()).await;
    let token = guard.token().expect("a token");
    evict_holder(&bench, &keeper, "evicted").await;
    assert!(next_token(&keeper, "evicted").await > token);
}

pub(super) async fn grow_after_an_expiry(bench: Bench) {
    let (keeper, engine) = bench.faulty(bench.short_ttl()).await;
    let guard = soon_held(keeper.mutex("expired").lock()).await;
    let token = guard.token().expect("a token");
    engine.cut(true);
    let other = bench.keeper_with(bench.long_ttl()).await;
    assert!(next_token(&other, "expired").await > token);
    engine.cut(false);
}

pub(super) async fn grow_after_a_kill(bench: Bench) {
    let keeper = bench.keeper_with(bench.short_ttl()).await;
    let mut helper = Helper::start(bench.url(), bench.namespace(), "killed", bench.short_ttl());
    let token = helper.token();
    helper.kill();
    assert!(next_token(&keeper, "killed").await > Token(token));
}

pub(super) async fn grow_after_a_restart(bench: Bench) {
    assert!(bench.can_restart(), "tokens are said to survive a restart: give the suite a way to restart");
    let keeper = bench.keeper().await;
    let token = next_token(&keeper, "restarted").await;
    keeper.close().await;
    bench.restart();
    let keeper = bench.keeper().await;
    assert!(next_token(&keeper, "restarted").await > token);
}
