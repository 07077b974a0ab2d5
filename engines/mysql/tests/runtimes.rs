//! Locks held by a connection and the runtimes that drive it: one that stands still or ends costs no lock and hides no loss.

use futures_util::FutureExt as _;
use lockkeeper::{Guard, Keeper, State};
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start_with(&["--max-connections=300"]));

const STYLES: [&str; 2] = ["session", "advisory"];
const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);

/// A runtime that does something only while it is told to.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn keeper(style: &str) -> Keeper {
    let url = format!("{}?style={style}&ttl={}s", SERVER.url(), TTL.as_secs());
    lockkeeper::connect(url).await.expect("a keeper")
}

async fn lock(style: &str, name: &str) -> Guard {
    keeper(style).await.mutex(name).lock().await.expect("a grant")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_lock_outlives_the_runtime_it_was_taken_on() {
    let elsewhere = runtime();
    for style in STYLES {
        let here = runtime();
        let guard = here.block_on(lock(style, "outlives"));
        let stays = |while_it: &str| {
            std::thread::sleep(TTL * 2);
            assert_eq!(guard.state(), State::Held, "{style}, while the runtime {while_it}");
        };
        stays("stands still");
        drop(here);
        stays("is gone");
        elsewhere.block_on(async {
            let other = keeper(style).await;
            assert!(other.mutex("outlives").try_lock().await.expect("an answer").is_none(), "{style}");
            guard.release().await.expect("a release");
            assert!(other.mutex("outlives").try_lock().await.expect("an answer").is_some(), "{style}");
        });
    }
}

#[test]
fn a_loss_is_told_while_the_runtime_stands_still() {
    // A server of its own, since every connection of lockkeeper is ended there.
    let (here, elsewhere, server) = (runtime(), runtime(), MariaDb::start());
    for style in STYLES {
        let guard = here.block_on(async {
            let keeper = lockkeeper::connect(format!("{}?style={style}", server.url())).await;
            keeper.expect("a keeper").mutex("told").lock().await.expect("a grant")
        });
        elsewhere.block_on(async {
            let mut killer =
                Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a server");
            let all =
                "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
            for number in killer.query::<u64, _>(all).await.expect("a list") {
                // It may have ended by itself.
                let _ = killer.query_drop(format!("KILL {number}")).await;
            }
        });
        let start = Instant::now();
        wait_until("the loss is told", || guard.state() == State::Lost);
        // A third of the TTL is when a renewal would tell.
        assert!(start.elapsed() < Duration::from_secs(3), "{style}: only after {:?}", start.elapsed());
    }
}

#[test]
fn a_guard_dropped_while_its_runtime_stands_still_frees_the_lock() {
    let (here, elsewhere) = (runtime(), runtime());
    for style in STYLES {
        let guard = here.block_on(lock(style, "dropped"));
        drop(guard);
        let next = elsewhere.block_on(async { tokio::time::timeout(LONG, lock(style, "dropped")).await });
        assert!(next.is_ok(), "{style}: it stays locked");
    }
}

/// A request that was begun by a runtime which then stands still must not keep the others from their locks.
#[test]
fn who_stands_still_in_the_middle_of_a_request_holds_up_nobody() {
    let (here, elsewhere) = (runtime(), runtime());
    for style in STYLES {
        let (keeper, held) = elsewhere.block_on(async {
            let keeper = keeper(style).await;
            let held = keeper.mutex("held").lock().await.expect("a grant");
            (keeper, held)
        });
        // Polled once, it is on its way; nobody polls it again for a while.
        let mutex = keeper.mutex("stalled");
        let mut stalled = Box::pin(mutex.lock());
        here.block_on(async { assert!(stalled.as_mut().now_or_never().is_none(), "{style}") });
        let other = elsewhere.block_on(async {
            tokio::time::timeout(LONG, keeper.mutex("other").lock()).await.expect(style).expect(style)
        });
        std::thread::sleep(TTL * 2);
        assert_eq!((held.state(), other.state()), (State::Held, State::Held), "{style}");
        // Whoever gives up leaves nothing behind.
        drop(stalled);
        let next = elsewhere.block_on(async { tokio::time::timeout(LONG, mutex.lock()).await });
        assert!(next.expect(style).is_ok(), "{style}");
    }
}

#[test]
fn a_runtime_without_io_can_lock_as_well() {
    let (home, bare) = (runtime(), Builder::new_current_thread().enable_time().build().expect("a runtime"));
    for style in STYLES {
        let keeper = home.block_on(keeper(style));
        // More than once: what it cannot do it must not try again and fail.
        for _ in 0..2 {
            let pair = async { keeper.mutex("bare").lock().await?.release().await };
            let pair = bare.block_on(async { tokio::time::timeout(LONG, pair).await });
            pair.expect("an answer in time").expect("a grant and a release");
        }
    }
}
