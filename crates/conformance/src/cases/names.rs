//! Names: one rule on every engine.

use crate::bench::{Bench, soon_held};
use lockkeeper::Error;

pub(super) async fn bad_names_are_refused_before_anything_is_sent(bench: Bench) {
    let (keeper, engine) = bench.faulty(lockkeeper::DEFAULT_TTL).await;
    let overlong = "x".repeat(513);
    for bad in ["", "/a", "a/", "a//b", ".", "a/../b", "a\nb", "a\0b", &overlong] {
        let answer = keeper.mutex(bad).lock().await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{bad:?}: {answer:?}");
    }
    assert_eq!(engine.calls(), (0, 0, 0));
}

pub(super) async fn names_that_look_alike_are_different_locks(bench: Bench) {
    let keeper = bench.keeper().await;
    let longest = "y".repeat(512);
    let names = [
        "a",
        "a/b",
        "a/b/c",
        "ab",
        "A",
        "a ",
        " a",
        "a%2Fb",
        "a_b",
        "a.b",
        "a:b",
        "{a}",
        "a*",
        "a?",
        "a'b",
        "a\"b",
        "a\\b",
        "a;b",
        "größe",
        "grosse",
        "漢字",
        "lock-0000000001",
        &longest,
    ];
    let mut guards = Vec::new();
    for name in names {
        let guard = keeper.mutex(name).try_lock().await.expect("an answer");
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is taken for another name")));
    }
    let shown: Vec<_> =
        keeper.inspect("").await.expect("an answer").into_iter().map(|lock| lock.name).collect();
    for name in names {
        assert!(shown.iter().any(|shown| shown == name), "{name:?} is not among {shown:?}");
    }
    for guard in guards {
        guard.release().await.expect("a release");
    }
    soon_held(keeper.mutex("a").lock()).await.release().await.expect("a release");
}

/// Law 6.
pub(super) async fn mutex_and_semaphore_of_one_name_are_refused(bench: Bench) {
    let keeper = bench.keeper().await;
    let guard = soon_held(keeper.mutex("kind").lock()).await;
    let other = keeper.semaphore("kind", 2).acquire(1).await;
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
    let other = keeper.semaphore("kind", 2).try_acquire(1).await;
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
    guard.release().await.expect("a release");
    bench.until_idle(&keeper, "kind").await;
    let guard = soon_held(keeper.semaphore("kind", 2).acquire(1)).await;
    let other = keeper.mutex("kind").lock().await;
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
    guard.release().await.expect("a release");
}
