//! Locks held by a connection and the runtimes that drive it: see the cases, which are those of every server.

#[path = "../../../crates/conformance/cases/runtimes.rs"]
mod cases;

use cases::{HELD, LONG, TTL, keeper, runtime};
use futures_util::FutureExt as _;
use lockkeeper::State;
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::sync::LazyLock;

static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start_with(&["--max-connections=300"]));

cases::on_every_server!(SERVER, &HELD);

#[test]
fn a_loss_is_told_while_the_runtime_stands_still() {
    let server = MariaDb::start();
    cases::a_loss_is_told_while_the_runtime_stands_still(&server.url(), async || {
        let mut killer = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a server");
        let all =
            "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
        for number in killer.query::<u64, _>(all).await.expect("a list") {
            // It may have ended by itself.
            let _ = killer.query_drop(format!("KILL {number}")).await;
        }
    });
}

/// A request that was begun by a runtime which then stands still must not keep the others from their locks.
#[test]
fn who_stands_still_in_the_middle_of_a_request_holds_up_nobody() {
    let (here, elsewhere) = (runtime(), runtime());
    for style in HELD {
        let (keeper, held) = elsewhere.block_on(async {
            let keeper = keeper(&SERVER.url(), style).await;
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
