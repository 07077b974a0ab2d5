//! Connections that are lost without a sign: locks stay exclusive, renewals and waits recover within known bounds.

use lockkeeper::{Guard, Keeper, State};
use lockkeeper_testkit::{Postgres, Proxy};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const TTL: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(20);

fn proxy(server: &Postgres) -> Proxy {
    Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())))
}

async fn keeper(server: &Postgres, port: u16, style: &str, ttl: Duration) -> Keeper {
    let url = server.url().replace(&server.port().to_string(), &port.to_string());
    let url = format!("{url}?style={style}&ttl={}s", ttl.as_secs());
    lockkeeper::connect(url).await.expect("a keeper")
}

/// Finding 3: a keeper that only holds gets no other sign that its background connection is gone.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_recover_from_a_half_open_connection() {
    // A third of it is long enough for a busy machine to renew.
    const TTL: Duration = Duration::from_secs(5);
    let server = Postgres::start();
    let recovers = async |style: &str| {
        let proxy = proxy(&server);
        let keeper = keeper(&server, proxy.addr().port(), style, TTL).await;
        let guard = keeper.mutex("renewed").lock().await.expect("a grant");
        for turn in 0..2 {
            proxy.half_open();
            tokio::time::sleep(TTL * 2).await;
            assert_eq!(guard.state(), State::Held, "{style}, turn {turn}");
        }
        // The caller's own connection is half open as well; the next one that leaves or joins opens a new one.
        drop(guard);
        let other = self::keeper(&server, server.port(), style, TTL).await;
        let next = tokio::time::timeout(TTL * 2, other.mutex("renewed").lock()).await;
        next.expect("it was left").expect("a grant").release().await.expect("a release");
    };
    tokio::join!(recovers("queue"), recovers("row"));
}

/// Finding 3, for one that waits: its notification would come over the half-open connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_although_its_connections_are_half_open() {
    let server = Postgres::start();
    let proxy = proxy(&server);
    let holder = keeper(&server, server.port(), "queue", TTL).await;
    let waiter = keeper(&server, proxy.addr().port(), "queue", TTL).await;
    let held = holder.mutex("woken").lock().await.expect("a grant");
    let lock = waiter.mutex("woken");
    let waiting = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.half_open();
    held.release().await.expect("a release");
    let granted = tokio::time::timeout(TTL * 2, waiting).await.expect("a grant in time");
    drop(granted.expect("no panic").expect("a grant"));
}

/// Finding 5: the server grants the lock to a wait whose connection is half open.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_wait_does_not_keep_the_lock() {
    let server = Postgres::start();
    for style in ["session", "advisory"] {
        let proxy = proxy(&server);
        let holder = keeper(&server, server.port(), style, TTL).await;
        let waiter = keeper(&server, proxy.addr().port(), style, TTL).await;
        let held = holder.mutex("wedged").lock().await.expect("a grant");
        let lock = waiter.mutex("wedged");
        let waiting = tokio::spawn(async move { lock.lock().await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.half_open();
        held.release().await.expect("a release");
        let granted = tokio::time::timeout(TTL * 4, waiting).await;
        let granted = granted.unwrap_or_else(|_| panic!("{style}: nobody noticed"));
        granted.expect("no panic").expect("a grant").release().await.expect("a release");
        // The waiter may be gone as well, together with its connection: then the server's own limit ends it.
        let held = holder.mutex("wedged").lock().await.expect("a grant");
        let lock = waiter.mutex("wedged");
        let waiting = tokio::spawn(async move { lock.lock().await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.cut();
        held.release().await.expect("a release");
        let next = tokio::time::timeout(TTL * 2, holder.mutex("wedged").lock()).await;
        drop(next.unwrap_or_else(|_| panic!("{style}: it stays locked")).expect("a grant"));
        waiting.abort();
    }
}

/// One who is cut off, as another program sees it: the lock is taken as long as the client trusts it, and not much longer.
async fn freed_after_the_loss(guard: &Guard, other: &Client, free: &str, bound: Duration, what: &str) {
    let start = Instant::now();
    loop {
        let trusted = guard.state() != State::Lost;
        let free: bool = other.query_one(free, &[]).await.expect("a reply").get(0);
        if free {
            assert!(!trusted, "{what}: two holders {:?} after the cut", start.elapsed());
            println!("{what}: free {:?} after the cut", start.elapsed());
            return;
        }
        assert!(start.elapsed() < bound, "{what}: still locked");
        tokio::time::sleep(STEP).await;
    }
}

fn is_free(style: &str) -> &'static str {
    match style {
        "advisory" => {
            "SELECT CASE WHEN pg_try_advisory_lock(hashtextextended('lockkeeper/cut', 0))
            THEN pg_advisory_unlock(hashtextextended('lockkeeper/cut', 0)) ELSE false END"
        }
        _ => {
            "SELECT EXISTS (SELECT FROM lockkeeper_sessions WHERE name = 'lockkeeper/cut' FOR UPDATE SKIP LOCKED)"
        }
    }
}

async fn client(config: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(config, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The peer's system still acknowledges everything, so that TCP notices nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_client_loses_its_lock_first_and_the_server_frees_it_then() {
    let server = Postgres::start();
    for style in ["session", "advisory"] {
        let proxy = proxy(&server);
        let keeper = keeper(&server, proxy.addr().port(), style, TTL).await;
        let guard = keeper.mutex("cut").lock().await.expect("a grant");
        let other = client(&server.url()).await;
        // Some renewals.
        tokio::time::sleep(TTL).await;
        proxy.cut();
        freed_after_the_loss(&guard, &other, is_free(style), TTL * 3 / 2 + Duration::from_secs(1), style)
            .await;
    }
}

const INSIDE: &str = "LOCKKEEPER_TEST_INSIDE";

/// Finding 1: all packets are dropped, both ways, in a network namespace of the test's own.
#[test]
fn packet_loss_makes_no_second_holder() {
    if std::env::var_os(INSIDE).is_some() {
        return tokio::runtime::Runtime::new().expect("a runtime").block_on(packet_loss());
    }
    let may = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        return eprintln!("left out: this user may not make a network namespace");
    }
    let program = std::env::current_exe().expect("this program");
    let mut inside = Command::new("unshare");
    inside.arg("--net").arg(program).args([
        "--exact",
        "--nocapture",
        "faults::packet_loss_makes_no_second_holder",
    ]);
    let outcome = inside.env(INSIDE, "1").status().expect("the test inside");
    assert!(outcome.success(), "{outcome}");
}

fn loopback(state: &str) {
    let set = Command::new("ip").args(["link", "set", "lo", state]).status().expect("ip");
    assert!(set.success());
}

async fn packet_loss() {
    // Long enough to tell the TTL from fixed times of the server.
    let ttl = Duration::from_secs(12);
    loopback("up");
    // Another way in, for the observer.
    let server = Postgres::start_with(&["unix_socket_directories=/tmp"]);
    let mut guards = Vec::new();
    for style in ["session", "advisory"] {
        let keeper = keeper(&server, server.port(), style, ttl).await;
        let guard = keeper.mutex("cut").lock().await.expect("a grant");
        guards.push((style, guard, keeper));
    }
    tokio::time::sleep(ttl / 2).await;
    loopback("down");
    let config = format!("host=/tmp port={} user=postgres dbname=postgres", server.port());
    let others = [client(&config).await, client(&config).await];
    let looks = guards.iter().zip(&others).map(|((style, guard, _), other)| {
        freed_after_the_loss(guard, other, is_free(style), ttl * 3 / 2 + Duration::from_secs(1), style)
    });
    futures_util::future::join_all(looks).await;
    loopback("up");
}
