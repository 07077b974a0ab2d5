//! The tables: made by hand, made by an earlier release, made by a later one.

use crate::support::{File, LONG_TTL, keeper};
use lockkeeper_core::engine::Clock;
use std::time::Duration;

const VERSION_1: &str = include_str!("version_1.sql");
const ROW_VERSION_1: &str = include_str!("version_1_row.sql");

#[tokio::test]
async fn tables_made_by_hand_are_used() {
    for style in lockkeeper_sqlite::STYLES {
        let file = File::new(style.style);
        file.sql().execute_batch(lockkeeper_sqlite::schema(style.style)).unwrap();
        let keeper = file.keeper(Duration::from_secs(2)).await;
        keeper.mutex("job").lock().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn tables_of_a_later_release_are_refused() {
    for style in lockkeeper_sqlite::STYLES {
        let file = File::new(style.style);
        file.keeper(Duration::from_secs(2)).await.close().await;
        file.sql().execute("UPDATE lockkeeper_counter SET layout = 9", []).unwrap();
        let error = keeper(&file.url(), Duration::from_secs(2)).await.expect_err("must be refused");
        let text = error.to_string();
        assert!(text.contains("have version 9") && text.contains("use the later release"), "{text}");
        assert!(!error.is_temporary());
    }
}

/// A claim as the first release writes it.
fn join_as_version_1(file: &File, lock: &str, place: i64) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let sql = file.sql();
    sql.execute("UPDATE lockkeeper_counter SET boot = ?1 WHERE boot = ''", [boot.trim()]).unwrap();
    sql.execute(
        "INSERT INTO lockkeeper_claims (lock, place, id, demand, who, host, pid, wake, joined_at, expires_at) \
         VALUES (?1, ?2, ?3, 'exclusive', 'earlier', 'here', 1, 'nowhere', 1, ?4)",
        (lock, place, format!("{place:032x}"), (Clock::Boot.now().plus(LONG_TTL).as_nanos()) as i64),
    )
    .unwrap();
}

fn version(file: &File) -> i64 {
    file.sql().query_row("SELECT layout FROM lockkeeper_counter", [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_the_first_release_are_brought_forward_with_their_claims() {
    let file = File::new("queue");
    file.sql().execute_batch(VERSION_1).unwrap();
    join_as_version_1(&file, "lockkeeper/held", 7);
    assert_eq!(version(&file), 1);
    // Several at once: one does it, the others find it done.
    let opening: Vec<_> = (0..4)
        .map(|_| {
            let url = file.url();
            tokio::spawn(async move { keeper(&url, LONG_TTL).await.unwrap() })
        })
        .collect();
    let mut keepers = Vec::new();
    for opened in opening {
        keepers.push(opened.await.unwrap());
    }
    assert_eq!(version(&file), 3);
    assert!(keepers[0].mutex("held").try_lock().await.unwrap().is_none(), "the claim still holds");
    // A process of the first release goes on.
    join_as_version_1(&file, "lockkeeper/later", 8);
    assert!(keepers[1].mutex("later").try_lock().await.unwrap().is_none());
    let guard = keepers[2].mutex("free").try_lock().await.unwrap().expect("a free lock");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_the_first_release_are_brought_forward_with_their_claims() {
    let file = File::new("row");
    let sql = file.sql();
    sql.execute_batch(ROW_VERSION_1).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    sql.execute("UPDATE lockkeeper_counter SET boot = ?1", [boot.trim()]).unwrap();
    let hold_as_version_1 = |lock: &str| {
        sql.execute(
            "INSERT INTO lockkeeper_rows (lock, token, id, who, host, pid, thread, locked_at, expires_at) \
             VALUES (?1, 7, ?2, 'earlier', 'here', 1, '', 1, ?3)",
            (lock, "a".repeat(32), (Clock::Boot.now().plus(LONG_TTL).as_nanos()) as i64),
        )
        .unwrap();
    };
    hold_as_version_1("lockkeeper/held");
    assert_eq!(version(&file), 1);
    let keeper = file.keeper(LONG_TTL).await;
    assert_eq!(version(&file), 2);
    assert!(keeper.mutex("held").try_lock().await.unwrap().is_none(), "the claim still holds");
    // A process of the first release goes on.
    hold_as_version_1("lockkeeper/later");
    assert!(keeper.mutex("later").try_lock().await.unwrap().is_none());
    let claim = keeper.inspect("held").await.unwrap().remove(0).claims.remove(0);
    assert!(keeper.evict("held", &claim.id).await.unwrap());
    keeper.mutex("held").try_lock().await.unwrap().expect("a free lock").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_the_grant_is_stored() {
    let file = File::new("queue");
    let keeper = file.keeper(LONG_TTL).await;
    let grants = || -> Vec<Option<i64>> {
        let sql = file.sql();
        let mut read =
            sql.prepare("SELECT granted_at - joined_at FROM lockkeeper_claims ORDER BY place").unwrap();
        read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let first = keeper.mutex("job").lock().await.unwrap();
    let next = keeper.mutex("job");
    let waiting = tokio::spawn(async move { next.lock().await.unwrap() });
    crate::support::until(|| grants().len() == 2).await;
    assert_eq!(grants(), [Some(0), None]);
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    assert!(grants().len() == 1 && grants()[0] > Some(0), "{:?}", grants());
    second.release().await.unwrap();
}
