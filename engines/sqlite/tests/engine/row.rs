//! The style 'row' on a real file: one holder, owners that can be read, crashes, boots, and what is left behind.

use crate::support::{File, LONG_TTL, soon, until};
use lockkeeper_core::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_holds_and_tokens_grow() {
    let file = File::new("row");
    let keepers = [file.keeper(LONG_TTL).await, file.keeper(LONG_TTL).await];
    let holding = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let lock = keepers[number % 2].mutex("job");
            let (holding, tokens) = (Arc::clone(&holding), Arc::clone(&tokens));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.lock().await.unwrap();
                    assert_eq!(holding.fetch_add(1, SeqCst), 0);
                    tokens.lock().unwrap().push(guard.token().unwrap());
                    tokio::task::yield_now().await;
                    holding.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    assert_eq!(file.count("lockkeeper_rows"), 0, "a free lock leaves no row");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_can_be_read_with_sql() {
    let file = File::new("row");
    let _process = file.holder(LONG_TTL);
    // As the engine's page shows it.
    let (_, rest) = include_str!("../../README.md").split_once("sqlite3 locks.db '").unwrap();
    let (statement, _) = rest.split_once('\'').unwrap();
    let (lock, owner): (String, (String, i64, String, i64)) = file
        .sql()
        .query_row(statement, [], |row| {
            Ok((row.get("lock")?, (row.get("host")?, row.get("pid")?, row.get("thread")?, row.get("token")?)))
        })
        .unwrap();
    assert_eq!(lock, "lockkeeper/job");
    assert!(!owner.0.is_empty() && !owner.2.is_empty());
    assert_ne!(owner.1, i64::from(std::process::id()));
    let keeper = file.keeper(LONG_TTL).await;
    let view = &keeper.inspect("job").await.unwrap()[0].claims[0];
    assert_eq!((i64::from(view.holder.pid), view.token.unwrap().0 as i64), (owner.1, owner.3));
    assert!(keeper.mutex("job").try_lock().await.unwrap().is_none());
    assert!(keeper.evict("job", &view.id).await.unwrap());
    assert!(keeper.mutex("job").try_lock().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_frees_its_lock_within_the_ttl_and_the_cleaner_removes_its_row() {
    let file = File::new("row");
    let ttl = Duration::from_millis(700);
    let mut process = file.holder(ttl);
    let keeper = file.keeper(ttl).await;
    process.kill();
    // Renewals of any lock bring the cleaner.
    let other = keeper.mutex("other").lock().await.unwrap();
    let guard = soon(keeper.mutex("job").lock()).await.unwrap();
    guard.release().await.unwrap();
    let mut process = file.holder(ttl);
    process.kill();
    tokio::time::sleep(ttl).await;
    drop(other);
    let fresh = file.keeper(ttl).await;
    let _other = fresh.mutex("other").lock().await.unwrap();
    until(|| file.count("lockkeeper_rows WHERE lock = 'lockkeeper/job'") == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_hold_is_lost_and_its_release_frees_nobody_elses() {
    let file = File::new("row");
    let ttl = Duration::from_secs(2);
    let (keeper, other) = (file.keeper(ttl).await, file.keeper(ttl).await);
    let guard = keeper.mutex("job").lock().await.unwrap();
    let token = guard.token().unwrap();
    file.sql().execute("UPDATE lockkeeper_rows SET expires_at = 1", []).unwrap();
    let next = soon(other.mutex("job").lock()).await.unwrap();
    assert!(next.token().unwrap() > token);
    assert!(guard.release().await.is_err());
    assert_eq!(next.state(), State::Held);
    assert!(keeper.mutex("job").try_lock().await.unwrap().is_none());
    next.release().await.unwrap();
}

#[tokio::test]
async fn another_boot_buries_every_row_and_tokens_still_grow() {
    let file = File::new("row");
    let guard = file.keeper(LONG_TTL).await.mutex("job").lock().await.unwrap();
    let token = guard.token().unwrap();
    file.sql().execute("UPDATE lockkeeper_counter SET boot = 'an earlier one'", []).unwrap();
    let after = file.keeper(LONG_TTL).await;
    let next = after.mutex("job").try_lock().await.unwrap().expect("the row of the earlier boot is dead");
    assert!(next.token().unwrap() > token);
    next.release().await.unwrap();
    file.sql().execute("UPDATE lockkeeper_counter SET horizon = 0", []).unwrap();
    assert!(after.mutex("job").lock().await.unwrap().token().unwrap() > token);
}

#[tokio::test]
async fn readers_and_permits_are_refused_with_advice() {
    let file = File::new("row");
    let keeper = file.keeper(LONG_TTL).await;
    let error = keeper.rwlock("stock").read().await.unwrap_err().to_string();
    assert!(error.contains("style 'queue' can"), "{error}");
    assert!(keeper.semaphore("gpu", 2).acquire(1).await.is_err());
}
