//! Our claims and those of Curator and kazoo exclude each other, in order, either of them first.

use crate::common::{LIMIT, keeper_with, server, unique};
use crate::foreign::Foreign;
use lockkeeper_core::{Guard, Keeper, LockView, Result};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn servers() -> String {
    server().url().trim_start_matches("zookeeper://").to_owned()
}

async fn look(keeper: &Keeper, name: &str) -> LockView {
    let none = LockView::new(name.to_owned(), Vec::new());
    keeper.inspect(name).await.unwrap().into_iter().next().unwrap_or(none)
}

/// Waits until this number of claims is in the queue.
async fn until_claims(keeper: &Keeper, name: &str, count: usize) {
    let all_there = async {
        while look(keeper, name).await.claims.len() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT * 2, all_there).await.expect("the claims stand in the queue");
}

fn in_background(lock: impl Future<Output = Result<Guard>> + Send + 'static) -> JoinHandle<Result<Guard>> {
    tokio::spawn(lock)
}

async fn granted(waiter: JoinHandle<Result<Guard>>) -> Guard {
    timeout(LIMIT, waiter).await.expect("a grant").unwrap().unwrap()
}

/// They, we, they, we: each holds in its turn, and not before.
async fn take_turns(keeper: &Keeper, name: &str, mut one: Foreign, mut two: Foreign) {
    assert_eq!(one.request("acquire").await, "acquired");
    assert!(keeper.mutex(name).try_lock().await.unwrap().is_none(), "they hold");
    let mutex = keeper.mutex(name);
    let ours = in_background(async move { mutex.lock().await });
    until_claims(keeper, name, 2).await;
    two.send("acquire").await;
    until_claims(keeper, name, 3).await;
    let mutex = keeper.mutex(name);
    let last = in_background(async move { mutex.lock().await });
    until_claims(keeper, name, 4).await;

    let foreign: Vec<bool> = look(keeper, name).await.claims.iter().map(|claim| claim.foreign).collect();
    assert_eq!(foreign, [true, false, true, false]);
    assert!(!ours.is_finished() && !last.is_finished());
    assert_eq!(one.request("release").await, "released");
    let ours = granted(ours).await;
    assert!(!last.is_finished());
    ours.release().await.unwrap();
    assert_eq!(two.reply().await, "acquired");
    assert!(keeper.mutex(name).try_lock().await.unwrap().is_none(), "they hold");
    assert!(!last.is_finished());
    assert_eq!(two.request("release").await, "released");
    granted(last).await.release().await.unwrap();
}

/// A number in a file that nothing but the lock protects.
async fn count_together(keeper: &Keeper, name: &str, mut others: Vec<Foreign>) {
    const EACH: usize = 60;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0").unwrap();
    for other in &mut others {
        other.send(&format!("count {} {EACH}", file.path().display())).await;
    }
    let mut ours = Vec::new();
    for _ in 0..2 {
        let (mutex, path) = (keeper.mutex(name), file.path().to_owned());
        ours.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let guard = mutex.lock().await.unwrap();
                let number: usize = std::fs::read_to_string(&path).unwrap().parse().unwrap();
                tokio::task::yield_now().await;
                std::fs::write(&path, (number + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    for other in &mut others {
        assert_eq!(other.reply().await, "counted");
    }
    for task in ours {
        task.await.unwrap();
    }
    let expected = EACH * (2 + others.len());
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), expected.to_string());
}

/// Readers share, ours and theirs; a writer waits for them and keeps them out.
async fn read_and_write(keeper: &Keeper, name: &str, reader: &mut Foreign, writer: &mut Foreign) {
    let lock = keeper.rwlock(name);
    let ours = lock.read().await.unwrap();
    assert_eq!(reader.request("acquire").await, "acquired", "readers share");
    writer.send("acquire").await;
    until_claims(keeper, name, 3).await;
    let behind = in_background({
        let lock = lock.clone();
        async move { lock.read().await }
    });
    until_claims(keeper, name, 4).await;
    ours.release().await.unwrap();
    assert!(!behind.is_finished(), "a reader behind a writer waits");
    assert_eq!(reader.request("release").await, "released");
    assert_eq!(writer.reply().await, "acquired");
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(!behind.is_finished());
    assert_eq!(writer.request("release").await, "released");
    granted(behind).await.release().await.unwrap();

    let ours = lock.write().await.unwrap();
    reader.send("acquire").await;
    until_claims(keeper, name, 2).await;
    ours.downgrade().await.unwrap();
    assert_eq!(reader.reply().await, "acquired", "a downgraded writer shares with readers");
    let mine = in_background({
        let lock = lock.clone();
        async move { lock.write().await }
    });
    until_claims(keeper, name, 3).await;
    ours.release().await.unwrap();
    assert!(!mine.is_finished());
    assert_eq!(reader.request("release").await, "released");
    let ours = granted(mine).await;
    writer.send("acquire").await;
    until_claims(keeper, name, 2).await;
    ours.release().await.unwrap();
    assert_eq!(writer.reply().await, "acquired");
    assert_eq!(writer.request("release").await, "released");
}

/// A reader of theirs between two writers of ours goes on before the second one.
async fn read_between_writers(keeper: &Keeper, name: &str, reader: &mut Foreign) {
    let lock = keeper.rwlock(name);
    let first = lock.write().await.unwrap();
    reader.send("acquire").await;
    until_claims(keeper, name, 2).await;
    let second = in_background({
        let lock = lock.clone();
        async move { lock.write().await }
    });
    until_claims(keeper, name, 3).await;
    first.release().await.unwrap();
    assert_eq!(reader.reply().await, "acquired");
    assert!(!second.is_finished());
    assert_eq!(reader.request("release").await, "released");
    granted(second).await.release().await.unwrap();
}

#[tokio::test]
async fn curators_mutex_takes_turns_with_ours() {
    let (keeper, name) = (keeper_with("").await, unique("curator"));
    let curator = || Foreign::curator(&servers(), &format!("/{name}"), "mutex");
    take_turns(&keeper, &name, curator(), curator()).await;
    count_together(&keeper, &name, vec![curator(), curator()]).await;
}

#[tokio::test]
async fn curators_read_write_lock_takes_turns_with_ours() {
    let (keeper, name) = (keeper_with("?names=curator-rw").await, unique("curator-rw"));
    let curator = |kind| Foreign::curator(&servers(), &format!("/{name}"), kind);
    take_turns(&keeper, &name, curator("write"), curator("write")).await;
    let (mut reader, mut writer) = (curator("read"), curator("write"));
    read_and_write(&keeper, &name, &mut reader, &mut writer).await;
    read_between_writers(&keeper, &name, &mut reader).await;
    count_together(&keeper, &name, vec![curator("write"), curator("write")]).await;
}

#[tokio::test]
async fn kazoos_lock_takes_turns_with_ours() {
    let (keeper, name) = (keeper_with("?names=kazoo").await, unique("kazoo"));
    let kazoo = || Foreign::kazoo(&servers(), &format!("/{name}"), "lock", &[]);
    take_turns(&keeper, &name, kazoo(), kazoo()).await;
    count_together(&keeper, &name, vec![kazoo(), kazoo()]).await;
}

/// Without a writer behind a waiting reader: kazoo 2.8's reader then waits for that writer, and the writer for
/// the reader, also when both are kazoo's.
#[tokio::test]
async fn kazoos_read_and_write_locks_take_turns_with_ours() {
    let (keeper, name) = (keeper_with("?names=kazoo").await, unique("kazoo-rw"));
    let kazoo = |kind| Foreign::kazoo(&servers(), &format!("/{name}"), kind, &[]);
    take_turns(&keeper, &name, kazoo("write"), kazoo("write")).await;
    read_and_write(&keeper, &name, &mut kazoo("read"), &mut kazoo("write")).await;
    count_together(&keeper, &name, vec![kazoo("write"), kazoo("write")]).await;
}

#[tokio::test]
async fn kazoo_told_of_curators_names_takes_turns_with_our_default() {
    let (keeper, name) = (keeper_with("").await, unique("kazoo-told"));
    let path = format!("/{name}");
    let told = |kind, patterns: &[&str]| Foreign::kazoo(&servers(), &path, kind, patterns);
    let lock = || told("lock", &["-lock-"]);
    take_turns(&keeper, &name, lock(), lock()).await;
    count_together(&keeper, &name, vec![lock(), lock()]).await;
    let (mut reader, mut writer) = (told("read", &["-lock-"]), told("write", &["-lock-", "__READ__"]));
    read_and_write(&keeper, &name, &mut reader, &mut writer).await;
}

#[tokio::test]
async fn a_holder_of_theirs_is_shown_as_foreign_and_can_be_evicted() {
    let (keeper, name) = (keeper_with("").await, unique("shown"));
    let mut kazoo = Foreign::kazoo(&servers(), &format!("/{name}"), "lock", &[]);
    assert_eq!(kazoo.request("acquire").await, "acquired");
    let view = look(&keeper, &name).await;
    let holder = view.holders().next().expect("it holds");
    assert!(holder.foreign);
    assert_eq!(holder.holder.text, "a kazoo client");
    let refused = keeper.semaphore(&name, 2).try_acquire(1).await.unwrap_err();
    assert!(matches!(refused, lockkeeper_core::Error::Mismatch { .. }), "{refused}");
    assert_eq!(look(&keeper, &name).await.claims.len(), 1, "the refused claim left nothing behind");
    assert!(keeper.evict(&name, &holder.id).await.unwrap());
    keeper.mutex(&name).lock().await.unwrap().release().await.unwrap();
}
