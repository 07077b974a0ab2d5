//! A keeper's session and the runtimes of its callers: one that stands still or ends costs no lock and hides no loss.

use crate::common::{LIMIT, connect, server, unique};
use lockkeeper_core::{Guard, Keeper, State};
use lockkeeper_testkit::{ZooKeeper, wait_until};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

#[path = "../../../../crates/conformance/cases/runtimes.rs"]
#[allow(dead_code)]
mod cases;

/// The cases of every server, on both styles.
mod every {
    use super::cases;
    use crate::common::server;

    cases::on_every_server!(server(), &["queue", "plain"]);

    /// The session's connection is the background's, and so are the timers.
    #[test]
    fn a_runtime_without_io_and_timers_can_lock() {
        let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for style in ["queue", "plain"] {
            let keeper = cases::runtime().block_on(cases::keeper(&server().url(), style));
            let pair = async { keeper.mutex("bare").lock().await?.release().await };
            bare.block_on(pair).expect("a grant and a release");
        }
    }
}

const TTL: Duration = Duration::from_secs(6);

/// A runtime that does something only inside `block_on`.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn keeper(server: &ZooKeeper) -> Keeper {
    connect(&server.url(), TTL).await.expect("a keeper")
}

/// Locks and releases several times, then locks.
async fn lock(keeper: &Keeper, name: &str) -> Guard {
    for _ in 0..20 {
        keeper.mutex(name).lock().await.expect("a grant").release().await.expect("a release");
    }
    keeper.mutex(name).lock().await.expect("a grant")
}

#[test]
fn a_loss_is_told_while_the_runtime_stands_still() {
    // A server of its own, since it is stopped.
    let (here, server) = (runtime(), ZooKeeper::start());
    let guard = here.block_on(async { lock(&keeper(&server).await, &unique("told")).await });
    drop(server);
    wait_until("the doubt is told", LIMIT, || guard.state() != State::Held);
    wait_until("the loss is told", LIMIT, || guard.state() == State::Lost);
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_other_runtime() {
    let (here, elsewhere, name) = (runtime(), runtime(), unique("shared"));
    let keeper = here.block_on(keeper(server()));
    let guard = here.block_on(lock(&keeper, &name));
    elsewhere.block_on(async {
        let waits = tokio::spawn({
            let mutex = keeper.mutex(&name);
            async move { mutex.lock().await.expect("a grant") }
        });
        let others = tokio::time::timeout(LIMIT, lock(&keeper, &unique("others"))).await;
        others.expect("replies").release().await.expect("a release");
        // The release goes on in the background.
        drop(guard);
        let guard = tokio::time::timeout(LIMIT, waits).await.expect("a grant in time").expect("no panic");
        assert_eq!(guard.state(), State::Held);
    });
}

#[test]
fn many_runtimes_take_turns_with_one_session() {
    let first = runtime();
    let keeper = first.block_on(keeper(server()));
    let name = unique("turns");
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (keeper, name) = (keeper.clone(), format!("{name}/{number}"));
            std::thread::spawn(move || {
                for _ in 0..10 {
                    // Each time another one, which ends right after its grant.
                    let guard = runtime().block_on(lock(&keeper, &name));
                    assert_eq!(guard.state(), State::Held);
                    drop(guard);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}
