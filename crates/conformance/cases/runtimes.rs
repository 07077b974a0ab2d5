//! Connections and the runtimes that drive them: one that stands still or ends costs no lock and hides no loss. What is so
//! on every server.

use lockkeeper::{Guard, Keeper, State};
use lockkeeper_testkit::wait_until;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// The styles whose locks a connection holds.
pub(crate) const HELD: [&str; 2] = ["session", "advisory"];
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A runtime that does something only while it is told to.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) async fn keeper(url: &str, style: &str) -> Keeper {
    let url = format!("{url}?style={style}&ttl={}s", TTL.as_secs());
    lockkeeper::connect(url).await.expect("a keeper")
}

async fn lock(url: &str, style: &str, name: &str) -> Guard {
    keeper(url, style).await.mutex(name).lock().await.expect("a grant")
}

pub(crate) fn a_lock_outlives_the_runtime_it_was_taken_on(url: &str, styles: &[&str]) {
    let elsewhere = runtime();
    for style in styles {
        let here = runtime();
        let guard = here.block_on(lock(url, style, "outlives"));
        let stays = |while_it: &str| {
            std::thread::sleep(TTL * 2);
            assert_eq!(guard.state(), State::Held, "{style}, while the runtime {while_it}");
        };
        stays("stands still");
        drop(here);
        stays("is gone");
        elsewhere.block_on(async {
            let other = keeper(url, style).await;
            assert!(other.mutex("outlives").try_lock().await.expect("an answer").is_none(), "{style}");
            guard.release().await.expect("a release");
            assert!(other.mutex("outlives").try_lock().await.expect("an answer").is_some(), "{style}");
        });
    }
}

/// On a server of its own, since every connection of lockkeeper is ended there.
pub(crate) fn a_loss_is_told_while_the_runtime_stands_still(url: &str, end_all: impl AsyncFn()) {
    let (here, elsewhere) = (runtime(), runtime());
    for style in HELD {
        let guard = here.block_on(async {
            let keeper = lockkeeper::connect(format!("{url}?style={style}")).await;
            keeper.expect("a keeper").mutex("told").lock().await.expect("a grant")
        });
        elsewhere.block_on(end_all());
        let start = Instant::now();
        wait_until("the loss is told", LONG, || guard.state() == State::Lost);
        // A third of the TTL is when a renewal would tell.
        assert!(start.elapsed() < Duration::from_secs(3), "{style}: only after {:?}", start.elapsed());
    }
}

pub(crate) fn a_guard_dropped_while_its_runtime_stands_still_frees_the_lock(url: &str, styles: &[&str]) {
    let (here, elsewhere) = (runtime(), runtime());
    for style in styles {
        let guard = here.block_on(lock(url, style, "dropped"));
        drop(guard);
        let next =
            elsewhere.block_on(async { tokio::time::timeout(LONG, lock(url, style, "dropped")).await });
        assert!(next.is_ok(), "{style}: it stays locked");
    }
}

pub(crate) fn a_runtime_without_io_can_lock_as_well(url: &str, styles: &[&str]) {
    let (home, bare) = (runtime(), Builder::new_current_thread().enable_time().build().expect("a runtime"));
    for style in styles {
        let keeper = home.block_on(keeper(url, style));
        // More than once: what it cannot do it must not try again and fail.
        for _ in 0..2 {
            let pair = async { keeper.mutex("bare").lock().await?.release().await };
            let pair = bare.block_on(async { tokio::time::timeout(LONG, pair).await });
            pair.expect("an answer in time").expect("a grant and a release");
        }
    }
}

/// A request that was begun by a runtime which then stands still must not keep the others from their locks, nor cost them theirs.
pub(crate) fn who_stands_still_in_the_middle_of_a_request_holds_up_nobody(url: &str, styles: &[&str]) {
    let (here, elsewhere) = (runtime(), runtime());
    for style in styles {
        let (keeper, held) = elsewhere.block_on(async {
            let keeper = keeper(url, style).await;
            let held = keeper.mutex("held").lock().await.expect("a grant");
            (keeper, held)
        });
        // Polled once, it is on its way; nobody polls it again for a while.
        let mutex = keeper.mutex("stalled");
        let mut stalled = Box::pin(mutex.lock());
        here.block_on(poll_fn(|cx| {
            assert!(stalled.as_mut().poll(cx).is_pending(), "{style}");
            Poll::Ready(())
        }));
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

/// The cases of every server as tests, in the file that has this one as its module `cases`.
macro_rules! on_every_server {
    ($server:expr, $styles:expr) => {
        #[test]
        fn a_lock_outlives_the_runtime_it_was_taken_on() {
            cases::a_lock_outlives_the_runtime_it_was_taken_on(&$server.url(), $styles);
        }

        #[test]
        fn a_guard_dropped_while_its_runtime_stands_still_frees_the_lock() {
            cases::a_guard_dropped_while_its_runtime_stands_still_frees_the_lock(&$server.url(), $styles);
        }

        #[test]
        fn who_stands_still_in_the_middle_of_a_request_holds_up_nobody() {
            cases::who_stands_still_in_the_middle_of_a_request_holds_up_nobody(&$server.url(), $styles);
        }

        #[test]
        fn a_runtime_without_io_can_lock_as_well() {
            cases::a_runtime_without_io_can_lock_as_well(&$server.url(), $styles);
        }
    };
}
pub(crate) use on_every_server;
