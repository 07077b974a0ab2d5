//! Readers share, writers are alone.

use super::exclusion::a_moment;
use crate::bench::{Bench, soon_held};
use crate::history::Recorder;
use lockkeeper::views::Demand;

pub(super) async fn readers_share_and_exclude_writers(bench: Bench) {
    let (one, other) = (bench.keeper().await, bench.keeper().await);
    let first = soon_held(one.rwlock("book").read()).await;
    let second = soon_held(other.rwlock("book").read()).await;
    assert!(other.rwlock("book").try_write().await.expect("an answer").is_none());
    first.release().await.expect("a release");
    assert!(one.rwlock("book").try_write().await.expect("an answer").is_none(), "one reader is still there");
    second.release().await.expect("a release");
    let writer = one.rwlock("book").try_write().await.expect("an answer").expect("nobody else is there");
    assert!(other.rwlock("book").try_read().await.expect("an answer").is_none());
    assert!(other.mutex("book").try_lock().await.expect("an answer").is_none(), "a mutex is a writer");
    writer.release().await.expect("a release");
}

pub(super) async fn a_writer_waits_for_every_reader(bench: Bench) {
    let keeper = bench.keeper().await;
    let readers = [
        soon_held(keeper.rwlock("page").read()).await,
        soon_held(keeper.rwlock("page").read()).await,
        soon_held(keeper.rwlock("page").read()).await,
    ];
    let waiting = bench.keeper().await;
    let writer = tokio::spawn(async move { soon_held(waiting.rwlock("page").write()).await });
    for reader in readers {
        assert!(!writer.is_finished());
        reader.release().await.expect("a release");
    }
    writer.await.expect("the writer").release().await.expect("a release");
}

pub(super) async fn a_reader_behind_a_waiting_writer_waits(bench: Bench) {
    let keeper = bench.keeper().await;
    let reader = soon_held(keeper.rwlock("fair").read()).await;
    let writer = tokio::spawn({
        let keeper = keeper.clone();
        async move { soon_held(keeper.rwlock("fair").write()).await }
    });
    bench.until_waiting(&keeper, "fair", 1).await;
    assert!(keeper.rwlock("fair").try_read().await.expect("an answer").is_none(), "the writer would starve");
    reader.release().await.expect("a release");
    writer.await.expect("the writer").release().await.expect("a release");
}

pub(super) async fn readers_behind_a_writer_go_on_together(bench: Bench) {
    let keeper = bench.keeper().await;
    let writer = soon_held(keeper.rwlock("together").write()).await;
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let keeper = keeper.clone();
            tokio::spawn(async move { soon_held(keeper.rwlock("together").read()).await })
        })
        .collect();
    bench.until_waiting(&keeper, "together", 5).await;
    writer.release().await.expect("a release");
    let mut guards = Vec::new();
    for reader in readers {
        // All of them hold before any of them lets go.
        guards.push(reader.await.expect("a reader"));
    }
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

pub(super) async fn a_writer_becomes_a_reader_without_letting_go(bench: Bench) {
    let keeper = bench.keeper().await;
    let writer = soon_held(keeper.rwlock("downgrade").write()).await;
    let reader = tokio::spawn({
        let keeper = keeper.clone();
        async move { soon_held(keeper.rwlock("downgrade").read()).await }
    });
    if bench.abilities().fair {
        bench.until_waiting(&keeper, "downgrade", 1).await;
    }
    writer.downgrade().await.expect("a downgrade");
    let reader = reader.await.expect("the reader is let in");
    assert!(keeper.rwlock("downgrade").try_write().await.expect("an answer").is_none());
    reader.release().await.expect("a release");
    assert!(keeper.rwlock("downgrade").try_write().await.expect("an answer").is_none(), "one still reads");
    writer.release().await.expect("a release");
    assert!(keeper.rwlock("downgrade").try_write().await.expect("an answer").is_some());
}

pub(super) async fn readers_and_writers_under_contention(bench: Bench) {
    let recorder = Recorder::new();
    let mut clients = Vec::new();
    for client in 0..5 {
        let (keeper, recorder) = (bench.keeper().await, recorder.clone());
        clients.push(tokio::spawn(async move {
            for round in 0..12 {
                let writes = (round + client) % 3 == 0;
                let demand = if writes { Demand::Exclusive } else { Demand::Shared };
                let story = recorder.asks(client, 0, demand);
                let lock = keeper.rwlock("mixed");
                let guard = if writes { soon_held(lock.write()).await } else { soon_held(lock.read()).await };
                story.gets(Ok(Some(guard)), a_moment()).await;
            }
        }));
    }
    for client in clients {
        client.await.expect("a client");
    }
    recorder.judged();
}
