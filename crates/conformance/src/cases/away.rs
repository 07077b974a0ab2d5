//! A server that goes away while a wait is under way: silence has a limit, and says what it is.

use crate::bench::{Bench, PATIENCE, soon, soon_held};
use lockkeeper::{Connect, Error, Guard, Keeper, Result, State};
use lockkeeper_testkit::Proxy;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const OUTAGE_LIMIT: Duration = Duration::from_secs(2);
const LOOPBACK: &str = "127.0.0.1:";

/// Proxies in front of every server of the engine, and the URL by which a keeper goes through them.
struct Network {
    url: String,
    proxies: Vec<Proxy>,
}

impl Network {
    fn in_front_of(url: &str) -> Self {
        let (mut through, mut proxies, mut rest) = (String::new(), Vec::new(), url);
        while let Some(at) = rest.find(LOOPBACK) {
            let (before, after) = (&rest[..at], &rest[at + LOOPBACK.len()..]);
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let port = after[..digits].parse().expect("a port");
            let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            through += before;
            through += &proxy.addr().to_string();
            proxies.push(proxy);
            rest = &after[digits..];
        }
        assert!(
            !proxies.is_empty(),
            "no server at {LOOPBACK}PORT in {url}: leave the case out with a reason"
        );
        Self { url: through + rest, proxies }
    }

    fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    fn reset(&self) {
        self.proxies.iter().for_each(Proxy::reset);
    }

    /// A keeper that reaches its server through these proxies.
    async fn keeper(&self, bench: &Bench, outage_limit: Duration) -> Keeper {
        let connect = Connect::to(&self.url).namespace(bench.namespace()).ttl(bench.short_ttl());
        connect.outage_limit(outage_limit).connect().await.expect("a keeper")
    }
}

/// Waits until the waiters stand in the queue, if there is one. Waits cannot be seen in a race; a case also holds for one that
/// has not begun yet.
async fn until_waiting(bench: &Bench, keeper: &Keeper, name: &str, waiters: usize) {
    match bench.abilities().fair {
        true => bench.until_waiting(keeper, name, waiters).await,
        false => tokio::time::sleep(bench.short_ttl() / 10).await,
    }
}

fn is_outage<T: std::fmt::Debug>(ended: &Result<T>) {
    assert!(ended.as_ref().is_err_and(Error::is_temporary), "{ended:?}");
}

pub(super) async fn a_wait_learns_that_the_server_is_away_and_outlives_a_short_absence(bench: Bench) {
    let holder = bench.keeper_with(bench.long_ttl()).await;
    let held = soon_held(holder.mutex("away").lock()).await;
    let network = Network::in_front_of(bench.url());
    let ttl = bench.short_ttl();
    let mut keepers = Vec::new();
    for limit in [OUTAGE_LIMIT, PATIENCE, PATIENCE] {
        let keeper = network.keeper(&bench, limit).await;
        assert!(bench.answer(async || keeper.mutex("away").try_lock().await).await.is_none(), "it is held");
        keepers.push(keeper);
    }
    let [unlimited, limited, outliving]: [Keeper; 3] = keepers.try_into().expect("three");
    let unlimited = tokio::spawn(async move { unlimited.mutex("away").lock().await });
    let limited = tokio::spawn(async move { limited.mutex("away").lock_within(ttl * 3).await });
    let outliving = tokio::spawn(async move { outliving.mutex("away").lock().await });
    until_waiting(&bench, &holder, "away", 3).await;
    network.cut();
    is_outage(&soon("the end of a wait without a limit", unlimited).await.expect("no panic"));
    is_outage(&soon("the end of a limited wait", limited).await.expect("no panic"));
    assert!(!outliving.is_finished(), "its outage limit is longer");
    network.heal();
    held.release().await.expect("a release");
    let granted: Guard = soon_held(async { outliving.await.expect("no panic") }).await;
    granted.release().await.expect("a release");
}

/// A hold with a TTL is renewed over new connections; one that is a connection's ends with it. Either way the wait is none the
/// worse: only a holder can lose.
pub(super) async fn a_wait_outlives_the_reset_of_every_connection(bench: Bench) {
    let network = Network::in_front_of(bench.url());
    let holder = network.keeper(&bench, PATIENCE).await;
    let held = soon_held(holder.mutex("reset").lock()).await;
    let token = held.token().expect("it is held");
    let waiting = network.keeper(&bench, PATIENCE).await;
    let waiter = tokio::spawn(async move { waiting.mutex("reset").lock().await });
    until_waiting(&bench, &bench.keeper().await, "reset", 1).await;
    network.reset();
    // Claims that nobody renews would end.
    tokio::time::sleep(bench.short_ttl() * 2).await;
    if bench.abilities().detach {
        assert_ne!(held.state(), State::Lost, "it outlives connections");
        assert!(!waiter.is_finished(), "the holder has not let go");
    }
    match held.release().await {
        Err(Error::Lost { .. }) if !bench.abilities().detach => {}
        released => released.expect("a release"),
    }
    let granted = soon_held(async { waiter.await.expect("no panic") }).await;
    assert!(granted.token().expect("it is held") > token);
    granted.release().await.expect("a release");
}
