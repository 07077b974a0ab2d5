//! What the engine promises beyond the suite: commit order, cheap waits, tokens after cleaning, refused servers.

use lockkeeper_testkit::Postgres;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start_with(&["max_connections=300"]));

async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&SERVER.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Makes the tables.
async fn keeper(style: &str) -> lockkeeper::Keeper {
    lockkeeper::connect(format!("{}?style={style}", SERVER.url())).await.expect("a keeper")
}

const JOIN: &str = "SELECT o_place, o_ahead FROM lockkeeper_join($1, $2, 'exclusive', 1000000000, 1000000000, 0, '', 'none', 60000)";

/// Law 1, hammered: while many join, transactions are kept open for random times. A claim that finds that nothing stands
/// ahead must have the smallest place of all that are in the queue at that moment, and nobody may appear before it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_appears_ahead_of_a_place_already_handed_out() {
    keeper("queue").await.close().await;
    let mut joiners = Vec::new();
    for joiner in 0..8 {
        joiners.push(tokio::spawn(async move {
            let mut client = client().await;
            let mut seen = Vec::new();
            for turn in 0..60 {
                let id = format!("{joiner:016x}{turn:016x}");
                let transaction = client.transaction().await.expect("a transaction");
                let row = transaction.query_one(JOIN, &[&"order", &id]).await.expect("a place");
                // The commit comes late, and at another time for everybody.
                tokio::time::sleep(Duration::from_micros((joiner * 131 + turn * 37) % 900)).await;
                transaction.commit().await.expect("a commit");
                seen.push((row.get::<_, i64>(0), row.get::<_, i64>(1)));
            }
            seen
        }));
    }
    let mut by_place = BTreeMap::new();
    for joiner in joiners {
        by_place.extend(joiner.await.expect("a joiner"));
    }
    assert_eq!(by_place.len(), 480, "each place once");
    // Nobody left, so the one with n claims ahead by place must have been told of all n.
    for (index, (place, ahead)) in by_place.iter().enumerate() {
        assert_eq!(*ahead, index as i64 * 1_000_000_000, "place {place} did not see all that stand ahead");
    }
}

/// Queries and transactions of the whole server so far.
async fn transactions(client: &Client) -> i64 {
    let text = "SELECT pg_stat_clear_snapshot(), (SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database)";
    client.query_one(text, &[]).await.expect("the statistics").get(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_idle_waiters_cost_few_queries() {
    for style in ["queue", "row"] {
        // A server of its own, since everything that happens there is counted.
        let server = Postgres::start();
        let url = format!("{}?style={style}", server.url());
        let [holder, waiters] = [lockkeeper::connect(&url).await, lockkeeper::connect(&url).await]
            .map(|it| it.expect("a keeper"));
        let mut guards = Vec::new();
        for number in 0..100 {
            guards.push(holder.mutex(format!("idle/{number}")).lock().await.expect("a grant"));
        }
        let waiting: Vec<_> = (0..200)
            .map(|number| {
                let lock = waiters.mutex(format!("idle/{}", number % 100));
                tokio::spawn(async move { lock.lock().await })
            })
            .collect();
        let (watcher, connection) =
            tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        // Until all have joined and the server has published its counters, which it does now and then.
        let mut rate = f64::INFINITY;
        for _ in 0..6 {
            let before = transactions(&watcher).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            rate = (transactions(&watcher).await - before) as f64 / 5.0;
            println!("{style}: 200 idle waiters: {rate:.1} transactions a second in all");
            if rate <= 20.0 {
                break;
            }
        }
        assert!(rate <= 20.0, "{style}: {rate} transactions a second");
        waiting.iter().for_each(|wait| wait.abort());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_standby_is_refused() {
    let server = Postgres::start();
    let standby = server.standby();
    for style in lockkeeper_postgres::STYLES {
        let url = format!("{}?style={}", standby.url(), style.style);
        let refused = lockkeeper::connect(url).await.expect_err("it cannot give locks").to_string();
        assert!(refused.contains("hot standby"), "{}: {refused}", style.style);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_is_a_loss_at_once() {
    let server = Postgres::start();
    for style in ["session", "advisory"] {
        let keeper = lockkeeper::connect(format!("{}?style={style}", server.url())).await.expect("a keeper");
        let guard = keeper.mutex("killed").lock().await.expect("a grant");
        let (killer, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let held =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockkeeper'";
        killer.query(held, &[]).await.expect("an end");
        // Far below the third of the TTL at which a renewal would tell.
        let lost = tokio::time::timeout(Duration::from_secs(2), guard.lost()).await;
        assert!(lost.is_ok(), "{style}: nobody told us");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_after_idle_state_was_removed() {
    let keeper = keeper("queue").await;
    let before = keeper.mutex("cleaned").lock().await.expect("a grant").token().expect("a token");
    client().await.batch_execute("SELECT lockkeeper_clean(interval '0')").await.expect("a cleaning");
    let after = keeper.mutex("cleaned").lock().await.expect("a grant").token().expect("a token");
    assert!(after > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_pooler_is_refused_and_a_session_pooler_is_not() {
    let server = Postgres::start();
    let (by_transaction, by_session) = (server.pooler("transaction"), server.pooler("session"));
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        let url = format!("{}?style={style}", by_transaction.url());
        let refused = lockkeeper::connect(url).await.expect_err("locks would be anybody's").to_string();
        assert!(refused.contains("transaction pooler"), "{style}: {refused}");
        let keeper = lockkeeper::connect(format!("{}?style={style}", by_session.url())).await.expect(style);
        keeper.mutex("pooled").lock().await.expect(style).release().await.expect(style);
        keeper.close().await;
    }
}
