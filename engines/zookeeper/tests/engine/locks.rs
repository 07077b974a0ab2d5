//! The ZooKeeper engine's locks on one real server.

use crate::common::{LIMIT, keeper, keeper_with, unique};
use lockkeeper_core::{Error, Standing, State};
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test]
async fn a_mutex_excludes_and_hands_over_in_order() {
    let (one, two) = (keeper().await, keeper().await);
    let name = unique("order");
    let first = one.mutex(&name).lock().await.unwrap();
    assert!(two.mutex(&name).try_lock().await.unwrap().is_none());
    let mut waiters = Vec::new();
    for number in 0..5 {
        let mutex = if number % 2 == 0 { one.mutex(&name) } else { two.mutex(&name) };
        let before = one.inspect(&name).await.unwrap()[0].claims.len();
        waiters.push(tokio::spawn(async move { mutex.lock().await }));
        while one.inspect(&name).await.unwrap()[0].claims.len() == before {
            tokio::task::yield_now().await;
        }
    }
    let mut last = first.token().unwrap();
    let mut guard = first;
    for waiter in waiters {
        assert!(!waiter.is_finished());
        guard.release().await.unwrap();
        guard = timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
        assert!(guard.token().unwrap() > last);
        last = guard.token().unwrap();
    }
    guard.release().await.unwrap();
    assert!(one.inspect(&name).await.unwrap().is_empty());
}

#[tokio::test]
async fn readers_share_a_writer_excludes_and_may_become_a_reader() {
    let (one, two) = (keeper().await, keeper().await);
    let name = unique("stock");
    let reader = one.rwlock(&name).read().await.unwrap();
    let other = two.rwlock(&name).read().await.unwrap();
    assert!(one.rwlock(&name).try_write().await.unwrap().is_none());
    reader.release().await.unwrap();
    other.release().await.unwrap();
    let writer = one.rwlock(&name).write().await.unwrap();
    let token = writer.token().unwrap();
    let waiting = tokio::spawn({
        let lock = two.rwlock(&name);
        async move { lock.read().await }
    });
    while one.inspect(&name).await.unwrap()[0].claims.len() < 2 {
        tokio::task::yield_now().await;
    }
    writer.downgrade().await.unwrap();
    let reader = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
    let view = &one.inspect(&name).await.unwrap()[0];
    assert!(view.claims.iter().all(|claim| claim.standing == Standing::Holds), "{view:?}");
    assert_eq!(view.claims[0].token, Some(token));
    assert!(two.rwlock(&name).try_write().await.unwrap().is_none());
    writer.release().await.unwrap();
    reader.release().await.unwrap();
    drop(two.rwlock(&name).try_write().await.unwrap().expect("everybody has left"));
}

#[tokio::test]
async fn permits_are_counted_and_another_shape_is_refused() {
    let keeper = keeper().await;
    let name = unique("gpu");
    let three = keeper.semaphore(&name, 4).acquire(3).await.unwrap();
    let one = keeper.semaphore(&name, 4).acquire(1).await.unwrap();
    assert!(keeper.semaphore(&name, 4).try_acquire(1).await.unwrap().is_none());
    let refused = keeper.semaphore(&name, 5).try_acquire(1).await.unwrap_err();
    assert!(matches!(refused, Error::Mismatch { .. }), "{refused}");
    let refused = keeper.mutex(&name).try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Mismatch { .. }), "{refused}");
    assert_eq!(keeper.inspect(&name).await.unwrap()[0].claims.len(), 2);
    three.release().await.unwrap();
    let two = keeper.semaphore(&name, 4).acquire(2).await.unwrap();
    two.release().await.unwrap();
    one.release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_wait_leaves_nothing_behind() {
    let keeper = keeper().await;
    let name = unique("dropped");
    let guard = keeper.mutex(&name).lock().await.unwrap();
    let mutex = keeper.mutex(&name);
    for step in 0..200u64 {
        let wait = mutex.lock_within(Duration::from_micros(step * 20));
        // Both ways to be dropped: by its own limit, and from outside at any point.
        let _ = timeout(Duration::from_micros(step * 15), wait).await;
    }
    guard.release().await.unwrap();
    let guard = timeout(LIMIT, keeper.mutex(&name).lock()).await.unwrap().unwrap();
    let claims = |views: &[lockkeeper_core::LockView]| views.first().map_or(0, |view| view.claims.len());
    while claims(&keeper.inspect(&name).await.unwrap()) > 1 {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    assert!(keeper.inspect(&name).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_evicted_holder_learns_it_and_does_not_free_its_successor() {
    for query in ["", "?style=plain"] {
        let (one, two) = (keeper_with(query).await, keeper_with(query).await);
        let name = unique("evicted");
        let guard = one.mutex(&name).lock().await.unwrap();
        let id = two.inspect(&name).await.unwrap()[0].claims[0].id.clone();
        assert!(two.evict(&name, &id).await.unwrap());
        assert!(!two.evict(&name, &id).await.unwrap());
        let successor = timeout(LIMIT, two.mutex(&name).lock()).await.unwrap().unwrap();
        timeout(LIMIT, guard.lost()).await.unwrap();
        assert_eq!(guard.state(), State::Lost);
        drop(guard);
        assert!(one.mutex(&name).try_lock().await.unwrap().is_none());
        successor.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_late_release_of_an_evicted_claim_frees_nobody_else() {
    for query in ["", "?style=plain"] {
        let (one, two) = (keeper_with(query).await, keeper_with(query).await);
        let name = unique("late");
        let guard = one.mutex(&name).lock().await.unwrap();
        let id = two.inspect(&name).await.unwrap()[0].claims[0].id.clone();
        assert!(two.evict(&name, &id).await.unwrap());
        let successor = two.mutex(&name).lock().await.unwrap();
        // At once, before any renewal has found out.
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        assert!(one.mutex(&name).try_lock().await.unwrap().is_none());
        successor.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_plain_style_hands_over_too() {
    let (one, two) = (keeper_with("?style=plain").await, keeper_with("?style=plain").await);
    let name = unique("plain");
    let first = one.mutex(&name).lock().await.unwrap();
    let token = first.token().unwrap();
    assert!(two.mutex(&name).try_lock().await.unwrap().is_none());
    let view = &two.inspect(&name).await.unwrap()[0];
    assert_eq!((view.claims.len(), view.claims[0].token), (1, Some(token)));
    let waiting = tokio::spawn({
        let mutex = two.mutex(&name);
        async move { mutex.lock().await }
    });
    first.release().await.unwrap();
    let second = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
    assert!(second.token().unwrap() > token);
    assert!(matches!(one.rwlock(&name).read().await, Err(Error::Unsupported { .. })));
    second.release().await.unwrap();
}

#[tokio::test]
async fn nested_names_a_chroot_and_a_prefix_are_told_apart() {
    let keeper = keeper_with("/team/one").await;
    let stem = unique("tree");
    let mut guards = Vec::new();
    for name in ["a", "a/b", "a/b/c", "ab", "b"] {
        guards.push(keeper.mutex(format!("{stem}/{name}")).lock().await.unwrap());
    }
    let names = |views: Vec<lockkeeper_core::LockView>| -> Vec<String> {
        views.into_iter().map(|view| view.name[stem.len() + 1..].to_owned()).collect()
    };
    let all = keeper.inspect(&format!("{stem}/")).await.unwrap();
    assert_eq!(names(all), ["a", "a/b", "a/b/c", "ab", "b"]);
    let below = keeper.inspect(&format!("{stem}/a/")).await.unwrap();
    assert_eq!(names(below), ["a/b", "a/b/c"]);
    let two = keeper.inspect_at_most(&format!("{stem}/a"), 2).await.unwrap();
    assert_eq!(names(two), ["a", "a/b"]);
    assert!(keeper_with("/team/two").await.inspect("").await.unwrap().is_empty());
    let odd = keeper.mutex(format!("{stem}/a/x-lock-0000000000")).lock().await.unwrap();
    assert_eq!(names(keeper.inspect(&format!("{stem}/a/x")).await.unwrap()), ["a/x-lock-0000000000"]);
    assert_eq!(keeper.inspect(&format!("{stem}/a")).await.unwrap()[0].claims.len(), 1);
    odd.release().await.unwrap();
}
