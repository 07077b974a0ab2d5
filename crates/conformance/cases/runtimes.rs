//! Connections and the runtimes that use them: one that stands still or ends costs no lock and hides no loss, on every
//! server.

use lockkeeper::{Guard, Keeper, State};
use lockkeeper_testkit::wait_until;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

#[path = "bare_runtimes.rs"]
pub(crate) mod bare;

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

/// How the runtime that opened the connections fares while another one uses the keeper.
#[derive(Debug, Clone, Copy)]
enum First {
    Blocked,
    Idle,
    Ended,
}

/// Locks, releases and renewals of another runtime go on, whatever the one that connected does.
pub(crate) fn the_runtime_that_connected_holds_up_no_other(url: &str, styles: &[&str]) {
    for (style, first) in styles
        .iter()
        .flat_map(|style| [First::Blocked, First::Idle, First::Ended].map(|first| (style, first)))
    {
        let (here, elsewhere) = (runtime(), several_threads());
        let (keeper, early) = here.block_on(async {
            let keeper = keeper(url, style).await;
            let early = keeper.mutex("first/early").lock().await.expect("a grant");
            keeper.mutex("first/used").lock().await.expect("a grant").release().await.expect("a release");
            (keeper, early)
        });
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let first_one = match first {
            First::Ended => {
                drop(here);
                None
            }
            First::Idle => Some(std::thread::spawn(move || {
                let _ = stopped.recv();
                drop(here);
            })),
            First::Blocked => Some(std::thread::spawn(move || {
                here.block_on(async { stopped.recv().map_err(drop) }).ok();
            })),
        };
        let start = Instant::now();
        let held = elsewhere.block_on(async {
            let held = keeper.mutex("first/held").lock().await.expect("a grant");
            while start.elapsed() < TTL * 3 {
                let tasks: Vec<_> = (0..16).map(|task| tokio::spawn(pair(keeper.clone(), task))).collect();
                for task in tasks {
                    let pair = tokio::time::timeout(LONG, task).await;
                    pair.unwrap_or_else(|_| panic!("{style}, {first:?}: a task hangs")).expect("no panic");
                }
                tokio::time::sleep(TTL / 8).await;
            }
            held
        });
        assert_eq!((early.state(), held.state()), (State::Held, State::Held), "{style}, {first:?}");
        elsewhere.block_on(async {
            let other = self::keeper(url, style).await;
            for (name, guard) in [("first/early", early), ("first/held", held)] {
                assert!(
                    other.mutex(name).try_lock().await.expect("an answer").is_none(),
                    "{style}, {first:?}"
                );
                guard.release().await.expect("a release");
                assert!(
                    other.mutex(name).try_lock().await.expect("an answer").is_some(),
                    "{style}, {first:?}"
                );
            }
        });
        drop(stop);
        first_one.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

fn several_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn pair(keeper: Keeper, task: u32) {
    let guard = keeper.mutex(format!("first/own/{task}")).lock().await.expect("a grant");
    guard.release().await.expect("a release");
}

/// A hold that the engine has given up is not called Held, although the runtime it was taken on is not polled.
pub(crate) fn an_eviction_is_told_while_the_runtime_stands_still(url: &str, styles: &[&str]) {
    let (here, elsewhere) = (runtime(), runtime());
    for style in styles {
        let guard = here.block_on(lock(url, style, "evicted"));
        elsewhere.block_on(async {
            let operator = keeper(url, style).await;
            let start = Instant::now();
            let claim = loop {
                let locks = operator.inspect("evicted").await.expect("a list");
                match locks.first().and_then(|lock| lock.claims.first()) {
                    Some(claim) => break claim.clone(),
                    // A style may list a hold a moment after the grant.
                    None => assert!(start.elapsed() < TTL, "{style}: the hold is not listed"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            assert!(operator.evict("evicted", &claim.id.to_string()).await.expect("an answer"), "{style}");
        });
        wait_until("the loss is told", TTL * 2, || guard.state() == State::Lost);
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
        // Polled once, it is on its way; nobody polls it again for a while. If this thread is held up in that poll the reply may be
        // there already: then once more.
        let mutex = keeper.mutex("stalled");
        let stalled = loop {
            let mut request = Box::pin(mutex.lock());
            match here.block_on(poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx)))) {
                Poll::Pending => break request,
                Poll::Ready(guard) => here.block_on(guard.expect(style).release()).expect(style),
            }
        };
        let other = elsewhere.block_on(async {
            tokio::time::timeout(LONG, keeper.mutex("other").lock()).await.expect(style).expect(style)
        });
        std::thread::sleep(TTL * 2);
        assert_eq!((held.state(), other.state()), (State::Held, State::Held), "{style}");
        // A wait that is given up leaves nothing behind.
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
        fn a_runtime_without_io_or_timers_gets_an_error_that_says_so() {
            cases::bare::a_runtime_without_io_or_timers_gets_an_error_that_says_so(&$server.url(), $styles);
        }

        #[test]
        fn the_runtime_that_connected_holds_up_no_other() {
            cases::the_runtime_that_connected_holds_up_no_other(&$server.url(), $styles);
        }

        #[test]
        fn an_eviction_is_told_while_the_runtime_stands_still() {
            cases::an_eviction_is_told_while_the_runtime_stands_still(&$server.url(), $styles);
        }
    };
}
pub(crate) use on_every_server;
