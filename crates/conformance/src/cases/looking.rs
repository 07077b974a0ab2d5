//! What `inspect` shows is the truth.

use crate::bench::{Bench, soon_held};
use lockkeeper::Keeper;
use lockkeeper::views::{Demand, Standing};
use lockkeeper_core::engine::Clock;
use std::time::Duration;

async fn named(bench: &Bench, holder: &str) -> Keeper {
    bench.connect(lockkeeper::DEFAULT_TTL).holder(holder).connect().await.expect("a keeper")
}

pub(super) async fn the_queue_is_shown_in_order(bench: Bench) {
    let first = named(&bench, "first").await;
    let guard = soon_held(first.mutex("line").lock()).await;
    let mut waiters = Vec::new();
    for (number, who) in ["second", "third", "fourth"].into_iter().enumerate() {
        let keeper = named(&bench, who).await;
        waiters
            .push(tokio::spawn(async move { soon_held(keeper.mutex("line").lock()).await.release().await }));
        bench.until_waiting(&first, "line", number + 1).await;
    }
    let lock = bench.look(&first, "line").await.expect("the lock is in use");
    let shown: Vec<_> =
        lock.claims.iter().map(|claim| (claim.holder.text.as_str(), claim.standing)).collect();
    assert_eq!(
        shown,
        [
            ("first", Standing::Holds),
            ("second", Standing::Waits),
            ("third", Standing::Waits),
            ("fourth", Standing::Waits)
        ]
    );
    assert!(lock.waiters().all(|claim| claim.token.is_none()), "a waiter has no token yet");
    guard.release().await.expect("a release");
    for waiter in waiters {
        waiter.await.expect("a waiter").expect("a release");
    }
}

pub(super) async fn a_holder_is_shown_with_its_token(bench: Bench) {
    let keeper = named(&bench, "shown").await;
    let guard = soon_held(keeper.mutex("held").lock()).await;
    let lock = bench.look(&keeper, "held").await.expect("the lock is in use");
    let claim = lock.holders().next().expect("a holder");
    assert_eq!(claim.id, guard.claim());
    assert_eq!(claim.demand, Demand::Exclusive);
    assert_eq!(claim.token, Some(guard.token().expect("a token")));
    assert_eq!((claim.holder.text.as_str(), claim.holder.pid), ("shown", std::process::id()));
    assert!(!claim.holder.host.is_empty());
    assert!(!claim.foreign);
    assert!(claim.ttl_left.is_none_or(|left| left <= keeper.ttl()));
    guard.release().await.expect("a release");
}

/// What clocks and rounded times may differ by, and what a busy server may take to note a time.
const ROUNDING: Duration = Duration::from_millis(500);
/// How long the first hold lasts: much longer than that.
const FIRST_HOLD: Duration = Duration::from_secs(2);

pub(super) async fn a_hold_is_shown_since_its_grant_and_a_wait_since_its_join(bench: Bench) {
    let (first, second) = (bench.keeper().await, bench.keeper_with(bench.short_ttl()).await);
    let before_the_first = Clock::Boot.now();
    let guard = soon_held(first.mutex("since").lock()).await;
    let waiter = tokio::spawn({
        let second = second.clone();
        async move { soon_held(second.mutex("since").lock()).await }
    });
    if bench.abilities().fair {
        bench.until_waiting(&first, "since", 1).await;
    }
    let waits_since = Clock::Boot.now();
    tokio::time::sleep(FIRST_HOLD).await;
    let look = async || bench.look(&first, "since").await.expect("the lock is in use");
    let lock = look().await;
    assert!(lock.waiters().all(|claim| claim.held_for.is_none() && claim.age >= Some(FIRST_HOLD - ROUNDING)));
    // It may be shown only after its first renewal.
    if let Some(held_for) = lock.holders().next().expect("a holder").held_for {
        assert!(
            held_for + ROUNDING >= FIRST_HOLD
                && held_for <= Clock::Boot.now().since(before_the_first) + ROUNDING
        );
    }
    let before_the_grant = Clock::Boot.now();
    guard.release().await.expect("a release");
    let guard = waiter.await.expect("the waiter");
    let granted_by = Clock::Boot.now();
    let mut shown = None;
    bench
        .until("the time since the grant is shown", async || {
            let lock = look().await;
            let claim = lock.holders().next().expect("a holder");
            assert_eq!(claim.id, guard.claim());
            shown = claim.held_for.map(|held_for| (held_for, claim.age));
            let most = Clock::Boot.now().since(before_the_grant) + ROUNDING;
            assert!(claim.held_for.is_none_or(|held_for| held_for <= most), "{:?}, {most:?}", claim.held_for);
            shown.is_some()
        })
        .await;
    if bench.abilities().fair {
        let waited = before_the_grant.since(waits_since);
        assert!(shown.is_some_and(|(_, age)| age.is_some_and(|age| age + ROUNDING >= waited)), "{shown:?}");
    }
    let looked_at = Clock::Boot.now();
    let held_for = look().await.holders().next().and_then(|claim| claim.held_for).expect("as before");
    assert!(held_for + ROUNDING * 5 >= looked_at.since(granted_by), "{held_for:?}");
    guard.release().await.expect("a release");
}

pub(super) async fn only_the_asked_prefix_is_shown(bench: Bench) {
    let keeper = bench.keeper().await;
    let guards = [
        soon_held(keeper.mutex("shop/a").lock()).await,
        soon_held(keeper.mutex("shop/b").lock()).await,
        soon_held(keeper.mutex("other").lock()).await,
    ];
    let names = async |prefix: &str| -> Vec<String> {
        keeper.inspect(prefix).await.expect("an answer").into_iter().map(|lock| lock.name).collect()
    };
    assert_eq!(names("shop/").await, ["shop/a", "shop/b"]);
    assert_eq!(names("").await, ["other", "shop/a", "shop/b"]);
    assert_eq!(names("shop/b").await, ["shop/b"]);
    assert_eq!(names("none").await, [""; 0]);
    assert_eq!(keeper.inspect_at_most("", 2).await.expect("an answer").len(), 2);
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

pub(super) async fn nothing_is_left_after_release(bench: Bench) {
    let keeper = bench.keeper().await;
    for _ in 0..3 {
        soon_held(keeper.mutex("gone").lock()).await.release().await.expect("a release");
        assert!(bench.look(&keeper, "gone").await.is_none(), "a released lock is not shown any more");
    }
}
