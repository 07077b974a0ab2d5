//! What the tests of this engine share: one server, keepers on it, and limits for what must happen soon.

use lockkeeper::views::LockView;
use lockkeeper::{Connect, Keeper};
use lockkeeper_testkit::Etcd;
use std::sync::LazyLock;
use std::time::Duration;

static SERVER: LazyLock<Etcd> = LazyLock::new(Etcd::start);

/// The server of this test process.
pub(crate) fn server() -> &'static Etcd {
    &SERVER
}

/// `127.0.0.1:PORT` of a server.
pub(crate) fn address(server: &Etcd) -> String {
    server.url().trim_start_matches("etcd://").to_owned()
}

/// A keeper on the server of this test process, with bare names.
pub(crate) async fn keeper() -> Keeper {
    keeper_at(&server().url(), Duration::from_secs(10)).await
}

/// A keeper with bare names.
pub(crate) async fn keeper_at(url: &str, ttl: Duration) -> Keeper {
    Connect::to(url).namespace("").ttl(ttl).connect().await.expect("a keeper")
}

/// What must happen, but not at a certain time.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// The same for many tasks.
pub(crate) async fn all_done(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(120), task)
            .await
            .expect("everybody's turn")
            .expect("no panic");
    }
}

/// Looks again and again until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The lock as it stands.
pub(crate) async fn look(keeper: &Keeper, name: &str) -> Option<LockView> {
    keeper.inspect(name).await.expect("a reply").into_iter().find(|lock| lock.name == name)
}

/// Until this number of claims waits for the lock.
pub(crate) async fn until_waiting(keeper: &Keeper, name: &str, count: usize) {
    until("the waiters are there", async || {
        look(keeper, name).await.is_some_and(|lock| lock.waiters().count() == count)
    })
    .await;
}
