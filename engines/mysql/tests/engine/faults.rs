//! Connections on which nothing arrives any more, and what becomes of locks, waiters and renewals.

use lockkeeper::{Connect, Keeper, State};
use lockkeeper_core::engine::background;
use lockkeeper_testkit::{MariaDb, Proxy};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(2);
const HELD: [&str; 2] = ["session", "advisory"];
const TABLES: [&str; 2] = ["queue", "row"];

/// The server closes a connection that holds locks when it has been silent for this long.
const SERVER_LIMIT: Duration = Duration::from_secs(4);

fn proxy(server: &MariaDb) -> (Proxy, String) {
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let url = server.url().replace(&format!(":{}", server.port()), &format!(":{}", proxy.addr().port()));
    (proxy, url)
}

async fn keeper(url: &str, style: &str) -> Keeper {
    Connect::to(format!("{url}?style={style}")).ttl(TTL).connect().await.expect(style)
}

/// A wait in the server is granted the lock, and the connection that waits is half open.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_granted_to_a_half_open_waiter_frees_itself() {
    let server = MariaDb::start();
    for style in HELD {
        let (proxy, url) = proxy(&server);
        let (direct, far) = (keeper(&server.url(), style).await, keeper(&url, style).await);
        let held = direct.mutex("wedged").lock().await.expect(style);
        // Over its next connection it may be granted before the other one.
        let waiting = tokio::spawn(async move { far.mutex("wedged").lock().await?.release().await });
        tokio::time::sleep(TTL / 2).await;
        proxy.half_open();
        held.release().await.expect(style);
        let start = Instant::now();
        let next = tokio::time::timeout(Duration::from_secs(30), direct.mutex("wedged").lock()).await;
        let next = next.unwrap_or_else(|_| panic!("{style}: it stays locked")).expect(style);
        println!("{style}: free again after {:?}", start.elapsed());
        // The server's limit, and a slice of the wait before it.
        assert!(start.elapsed() < SERVER_LIMIT + TTL * 2, "{style}: {:?}", start.elapsed());
        next.release().await.expect(style);
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        let waited = waited.unwrap_or_else(|_| panic!("{style}: the waiter has not noticed"));
        waited.expect("no panic").expect(style);
    }
}

/// Every connection becomes half open while a lock is held: renewals go on over new ones.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_go_on_when_their_connection_is_half_open() {
    let server = MariaDb::start();
    for style in TABLES {
        for server_learns in [false, true] {
            let (proxy, url) = proxy(&server);
            let keeper = keeper(&url, style).await;
            let held = keeper.mutex("renewed").lock().await.expect(style);
            // Until the renewals have a connection.
            tokio::time::sleep(TTL).await;
            if server_learns {
                proxy.half_open_for_clients()
            } else {
                proxy.half_open()
            }
            let start = Instant::now();
            while start.elapsed() < TTL * 3 {
                assert_ne!(held.state(), State::Lost, "{style} after {:?}", start.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // The foreground is half open as well, so what became of the release may not be known; it is freed all the same.
            let _ = held.release().await;
            keeper.mutex("renewed").lock().await.expect(style).release().await.expect(style);
        }
    }
}

/// A holder whose connection is half open is told before another one can have the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_holder_knows_before_the_next_one_holds() {
    let server = MariaDb::start();
    for style in HELD {
        let (proxy, url) = proxy(&server);
        let (direct, far) = (keeper(&server.url(), style).await, keeper(&url, style).await);
        let held = far.mutex("silent").lock().await.expect(style);
        proxy.half_open();
        let next = tokio::time::timeout(Duration::from_secs(30), direct.mutex("silent").lock()).await;
        let state = held.state();
        let _next = next.unwrap_or_else(|_| panic!("{style}: it stays locked")).expect(style);
        assert_ne!(state, State::Held, "{style}");
        // It finds its way back.
        far.mutex("silent/other").lock().await.expect(style).release().await.expect(style);
    }
}

/// A request that was dropped in the middle leaves a connection that no other request waits for.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_were_given_up_hold_up_nobody() {
    let server = MariaDb::start();
    for style in TABLES {
        let (proxy, url) = proxy(&server);
        let keeper = keeper(&url, style).await;
        keeper.mutex("first").lock().await.expect(style).release().await.expect(style);
        proxy.half_open();
        let start = Instant::now();
        for turn in 0..20 {
            let mutex = keeper.mutex(format!("given-up/{turn}"));
            let _ = tokio::time::timeout(Duration::from_millis(5), mutex.lock()).await;
        }
        let pair = async { keeper.mutex("after").lock().await?.release().await };
        tokio::time::timeout(Duration::from_secs(20), pair).await.expect(style).expect(style);
        println!("{style}: {:?}", start.elapsed());
        keeper.close().await;
    }
}

/// A holder that cannot probe, such as a stopped process, does not say Held when the server has freed its lock. What cannot
/// probe is the background of a process of its own, since other tests need theirs.
#[test]
fn trust_ends_before_the_server_frees_the_lock() {
    let this = std::env::current_exe().expect("the path of this program");
    let arguments = ["--ignored", "--exact", "faults::trust_ends_while_the_background_is_blocked"];
    let status = std::process::Command::new(this).args(arguments).status().expect("a process");
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "blocks the background of the process; the test above runs it"]
async fn trust_ends_while_the_background_is_blocked() {
    let server = MariaDb::start();
    let takes = [
        "SELECT token FROM lockkeeper_sessions WHERE name = 'lockkeeper/paused' FOR UPDATE",
        "SELECT GET_LOCK('lk:lockkeeper/lockkeeper/paused', 30)",
    ];
    for (style, take) in HELD.into_iter().zip(takes) {
        let keeper = keeper(&server.url(), style).await;
        let held = keeper.mutex("paused").lock().await.expect(style);
        let mut next = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
        next.query_drop("START TRANSACTION").await.expect("a transaction");
        tokio::time::sleep(TTL / 4).await;
        let blocked = background::handle().spawn(async { std::thread::sleep(SERVER_LIMIT * 2) });
        let start = Instant::now();
        let taken: Option<u64> = next.query_first(take).await.expect(style);
        assert_eq!(
            (held.state(), taken.is_some()),
            (State::Lost, true),
            "{style} after {:?}",
            start.elapsed()
        );
        println!("{style}: freed after {:?}", start.elapsed());
        assert!(start.elapsed() < SERVER_LIMIT + TTL, "{style}: {:?}", start.elapsed());
        drop(next);
        blocked.await.expect("no panic");
    }
}

/// The sessions of a half-open connection keep the user locks by which the keeper is woken, until the server closes them.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_can_be_woken_again_after_its_connections_were_half_open() {
    let server = MariaDb::start();
    let (proxy, url) = proxy(&server);
    let (direct, far) = (keeper(&server.url(), "queue").await, keeper(&url, "queue").await);
    let held = direct.mutex("woken").lock().await.expect("a lock");
    let waiting = tokio::spawn(async move { far.mutex("woken").lock().await?.release().await });
    let mut watcher = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    let lock = "SELECT bell FROM lockkeeper_claims ORDER BY place DESC LIMIT 1";
    let lock: String = until(async || watcher.query_first(lock).await.expect("a look")).await;
    let session = format!("SELECT IS_USED_LOCK('{lock}')");
    let mut session =
        async || watcher.query_first::<Option<u64>, _>(&session).await.expect("a look").flatten();
    let before = until(&mut session).await;
    proxy.half_open();
    let start = Instant::now();
    let after = until(async || session().await.filter(|it| *it != before)).await;
    println!("woken by {after} instead of {before} after {:?}", start.elapsed());
    held.release().await.expect("a release");
    waiting.await.expect("no panic").expect("its turn");
}

async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found).await.expect("in time")
}
