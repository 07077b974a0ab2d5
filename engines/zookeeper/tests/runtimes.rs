//! A keeper's session and the runtimes that read its answers: one that stands still or ends costs no lock and hides no loss.

mod common;

use common::{PATIENCE, connect, server, unique};
use lockkeeper_core::{Guard, Keeper, State};
use lockkeeper_testkit::{ZooKeeper, wait_until};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(6);

/// A runtime that does something only while it is told to.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn keeper(server: &ZooKeeper) -> Keeper {
    connect(&server.url(), TTL).await.expect("a keeper")
}

/// Locks so often that this runtime reads the answers itself, and once more.
async fn lock(keeper: &Keeper, name: &str) -> Guard {
    for _ in 0..20 {
        keeper.mutex(name).lock().await.expect("a grant").release().await.expect("a release");
    }
    keeper.mutex(name).lock().await.expect("a grant")
}

#[test]
fn a_lock_outlives_the_runtime_it_was_taken_on() {
    let (here, elsewhere, name) = (runtime(), runtime(), unique("outlives"));
    let guard = here.block_on(async { lock(&keeper(server()).await, &name).await });
    let stays = |while_it: &str| {
        std::thread::sleep(TTL + TTL / 4);
        assert_eq!(guard.state(), State::Held, "while the runtime {while_it}");
    };
    stays("stands still");
    drop(here);
    stays("is gone");
    elsewhere.block_on(async {
        let other = keeper(server()).await;
        assert!(other.mutex(&name).try_lock().await.expect("an answer").is_none());
        guard.release().await.expect("a release");
        assert!(other.mutex(&name).try_lock().await.expect("an answer").is_some());
    });
}

#[test]
fn a_loss_is_told_while_the_runtime_stands_still() {
    // A server of its own, since it is stopped.
    let (here, server) = (runtime(), ZooKeeper::start());
    let guard = here.block_on(async { lock(&keeper(&server).await, &unique("told")).await });
    drop(server);
    wait_until("the doubt is told", PATIENCE, || guard.state() != State::Held);
    wait_until("the loss is told", PATIENCE, || guard.state() == State::Lost);
}

#[test]
fn a_runtime_that_stands_still_holds_up_nobody_elses_answers() {
    let (here, elsewhere, name) = (runtime(), runtime(), unique("shared"));
    let keeper = here.block_on(keeper(server()));
    let guard = here.block_on(lock(&keeper, &name));
    elsewhere.block_on(async {
        let waits = tokio::spawn({
            let mutex = keeper.mutex(&name);
            async move { mutex.lock().await.expect("a grant") }
        });
        let others = tokio::time::timeout(PATIENCE, lock(&keeper, &unique("others"))).await;
        others.expect("answers").release().await.expect("a release");
        // The release goes on in the background.
        drop(guard);
        let guard = tokio::time::timeout(PATIENCE, waits).await.expect("a grant in time").expect("no panic");
        assert_eq!(guard.state(), State::Held);
    });
}

#[test]
fn many_runtimes_take_turns_with_one_session() {
    let home = runtime();
    let keeper = home.block_on(keeper(server()));
    let name = unique("turns");
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (keeper, name) = (keeper.clone(), format!("{name}/{number}"));
            std::thread::spawn(move || {
                for _ in 0..10 {
                    // Each time another one, which ends while it may be the one that reads.
                    let guard = runtime().block_on(lock(&keeper, &name));
                    assert_eq!(guard.state(), State::Held);
                    drop(guard);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn a_runtime_without_io_can_lock_as_well() {
    let (home, bare) = (runtime(), Builder::new_current_thread().enable_time().build().expect("a runtime"));
    let keeper = home.block_on(keeper(server()));
    let guard = bare.block_on(async { tokio::time::timeout(PATIENCE, lock(&keeper, &unique("bare"))).await });
    assert_eq!(guard.expect("a grant in time").state(), State::Held);
}
