//! To ask a holder before force: it is told, and it decides.

use crate::bench::{Bench, PATIENCE, soon, soon_held};
use lockkeeper::State;
use lockkeeper::views::{Abilities, ClaimView};
use std::time::Duration;

/// How long an operator waits for one request.
const PAUSE: Duration = Duration::from_secs(2);

async fn holder(bench: &Bench, name: &str) -> ClaimView {
    let keeper = bench.keeper().await;
    let lock = bench.look(&keeper, name).await.expect("the lock is in use");
    lock.holders().next().expect("a holder").clone()
}

pub(super) async fn an_asked_holder_is_told_and_lets_go(bench: Bench) {
    let (owner, operator) = (bench.keeper_with(bench.short_ttl()).await, bench.keeper().await);
    let (asked, other) =
        (soon_held(owner.mutex("asked").lock()).await, soon_held(owner.mutex("other").lock()).await);
    assert!(!asked.is_release_requested());
    let claim = holder(&bench, "asked").await.id;
    let request = tokio::spawn(async move { operator.ask("asked", &claim, PATIENCE).await });
    soon("the holder is told", asked.release_requested()).await;
    assert!(asked.is_release_requested() && asked.state() == State::Held, "it holds until it lets go");
    assert!(!other.is_release_requested(), "the other lock of the same keeper is not asked for");
    assert!(!request.is_finished(), "the claim is there");
    asked.release().await.expect("a release");
    assert!(request.await.expect("the operator").expect("an answer"), "the claim is gone");
    let again = soon_held(owner.mutex("asked").lock()).await;
    soon("two renewals", tokio::time::sleep(bench.short_ttl())).await;
    assert!(!again.is_release_requested(), "a later hold is not asked for");
    again.release().await.expect("a release");
    other.release().await.expect("a release");
}

/// The styles in which a request to release is a message to the keeper that holds.
const BY_MESSAGE: &[(&str, &str)] =
    &[("redis", "queue"), ("postgres", "queue"), ("postgres", "session"), ("postgres", "advisory")];

/// Behind a pooler the same style has no messages.
pub(super) fn is_a_message(abilities: &Abilities) -> bool {
    abilities.push && BY_MESSAGE.contains(&(abilities.engine, abilities.style))
}

pub(super) async fn a_message_tells_the_holder_long_before_it_renews(bench: Bench) {
    let (owner, operator) = (bench.keeper_with(bench.long_ttl()).await, bench.keeper().await);
    let guard = soon_held(owner.mutex("soon").lock()).await;
    let claim = holder(&bench, "soon").await.id;
    let renews_in = owner.ttl() / 3;
    // Each request is a message: where servers fail, one may get lost.
    let asking = async {
        while !guard.is_release_requested() {
            operator.ask("soon", &claim, PAUSE).await.expect("an answer");
        }
    };
    let told = async {
        tokio::select! {
            () = guard.release_requested() => {}
            () = asking => {}
        }
    };
    assert!(tokio::time::timeout(renews_in / 2, told).await.is_ok(), "the holder heard nothing of it");
    assert_eq!(guard.state(), State::Held, "it holds until it lets go");
    guard.release().await.expect("a release");
}

pub(super) async fn a_holder_that_goes_on_keeps_its_lock(bench: Bench) {
    let (owner, operator) = (bench.keeper_with(bench.short_ttl()).await, bench.keeper().await);
    let guard = soon_held(owner.mutex("busy").lock()).await;
    let before = holder(&bench, "busy").await;
    assert!(!operator.ask("busy", &before.id, Duration::ZERO).await.expect("an answer"), "it is still there");
    soon("the holder is told", guard.release_requested()).await;
    soon("more renewals", tokio::time::sleep(bench.short_ttl() * 2)).await;
    assert_ne!(guard.state(), State::Lost, "in doubt perhaps, where servers fail, but ours");
    let after = holder(&bench, "busy").await;
    assert_eq!(
        (&after.id, &after.holder, after.token, after.foreign),
        (&before.id, &before.holder, before.token, false)
    );
    assert!(operator.mutex("busy").try_lock().await.expect("an answer").is_none());
    assert!(operator.evict("busy", &after.id).await.expect("an eviction"), "force is the next step");
    soon("the loss", guard.lost()).await;
    let nobody = format!("{:032x}", 7);
    assert!(operator.ask("busy", &nobody, PATIENCE).await.expect("an answer"), "who is not there has left");
    let foreign = operator.ask("busy", "somebody-else", PATIENCE).await;
    assert!(foreign.is_err_and(|error| error.to_string().contains("another client")));
}
