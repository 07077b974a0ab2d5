//! The advisory style beside other programs: each lock is the one that psql names, until it is freed.

use lockkeeper_testkit::Postgres;
use tokio_postgres::{Client, NoTls};

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Whether another program could take the lock now. It does not keep it.
async fn is_free(other: &Client, name: &str) -> bool {
    let text = "SELECT CASE WHEN pg_try_advisory_lock(hashtextextended($1, 0))
        THEN pg_advisory_unlock(hashtextextended($1, 0)) ELSE false END";
    other.query_one(text, &[&name]).await.expect("an answer").get(0)
}

/// We reckon a name's key ourselves to free its lock, but the server is the one that says what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_any_name_is_freed_by_its_release() {
    let server = Postgres::start();
    let create = "CREATE DATABASE western ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    client(&server.url()).await.batch_execute(create).await.expect("a database");
    let western = server.url().rsplit_once('/').map(|(url, _)| format!("{url}/western")).expect("a URL");
    for url in [server.url(), western] {
        let other = client(&url).await;
        let keeper = lockkeeper::connect(format!("{url}?style=advisory")).await.expect("a keeper");
        let names = (1..=40).map(|length| "x".repeat(length)).chain(["größe", "ÄÖÜ äöü ß"].map(String::from));
        for name in names {
            let full = format!("lockkeeper/{name}");
            assert!(is_free(&other, &full).await, "{name} on {url}, before");
            let guard = keeper.mutex(name.as_str()).lock().await.expect("a grant");
            assert!(!is_free(&other, &full).await, "{name} on {url}, held");
            guard.release().await.expect("a release");
            assert!(is_free(&other, &full).await, "{name} on {url}, released");
        }
        keeper.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_the_server_refuses_is_told_and_ends_nothing() {
    let server = Postgres::start();
    let keeper = lockkeeper::connect(format!("{}?style=advisory", server.url())).await.expect("a keeper");
    let held = keeper.mutex("held").lock().await.expect("a grant");
    let other = client(&server.url()).await;
    other.batch_execute("ALTER SEQUENCE lockkeeper_token RENAME TO hidden").await.expect("a new name");
    let refused = keeper.mutex("refused").try_lock().await.expect_err("there are no tokens").to_string();
    assert!(refused.contains("lockkeeper_token"), "{refused}");
    other.batch_execute("ALTER SEQUENCE hidden RENAME TO lockkeeper_token").await.expect("the old name");
    assert!(is_free(&other, "lockkeeper/refused").await);
    keeper.mutex("refused").lock().await.expect("a grant").release().await.expect("a release");
    assert!(held.token().is_ok(), "the connection is still there");
    held.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_holder_is_shown() {
    let server = Postgres::start();
    let keeper = lockkeeper::connect(format!("{}?style=advisory", server.url())).await.expect("a keeper");
    let other = client(&format!("{}?application_name=backup", server.url())).await;
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.expect("a number").get(0);
    let take = "SELECT pg_advisory_lock(hashtextextended('lockkeeper/shared', 0))";
    other.batch_execute(take).await.expect("a lock");
    let seen = keeper.inspect("shared").await.expect("a list");
    let claim = seen.first().and_then(|lock| lock.holders().next()).expect("a holder");
    assert_eq!((seen[0].name.as_str(), claim.foreign, claim.token), ("shared", true, None));
    assert_eq!((claim.holder.text.as_str(), claim.holder.pid), ("backup", pid.unsigned_abs()));
    assert!(keeper.inspect("share").await.expect("a list").is_empty(), "only the name that was given");
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.expect("no lock");
    assert!(keeper.inspect("shared").await.expect("a list").is_empty());
    let ours = keeper.mutex("shared").lock().await.expect("a grant");
    let seen = keeper.inspect("shared").await.expect("a list");
    assert!(seen[0].claims.len() == 1 && !seen[0].claims[0].foreign, "{seen:?}");
    ours.release().await.expect("a release");
}
