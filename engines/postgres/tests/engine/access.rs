//! Ways in: passwords that change, Unix sockets, and servers that only look like PostgreSQL.

use crate::passwords::a_hold_survives_a_new_password;
use lockkeeper_testkit::Postgres;
use std::fs;
use tokio_postgres::{Client, NoTls};

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_survives_a_change_of_the_password() {
    let server = Postgres::start();
    let admin = client(&server.url()).await;
    admin.batch_execute("CREATE ROLE keeper SUPERUSER LOGIN").await.expect("a user");
    let rules = "host all keeper all scram-sha-256\nhost all all all trust\n";
    fs::write(server.directory().join("data/pg_hba.conf"), rules).expect("a file");
    admin.batch_execute("SELECT pg_reload_conf()").await.expect("a reload");
    let url = server.url().replace("postgres@", "keeper@");
    while client_is_let_in(&url).await {}
    for style in lockkeeper_postgres::STYLES {
        let url = format!("{url}?style={}", style.style);
        let survives = ["queue", "row"].contains(&style.style);
        a_hold_survives_a_new_password(&url, survives, async |password: &str| {
            let change = format!(
                "ALTER ROLE keeper PASSWORD '{password}';
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'"
            );
            admin.batch_execute(&change).await.expect("a new password");
        })
        .await;
    }
}

async fn client_is_let_in(url: &str) -> bool {
    tokio_postgres::connect(url, NoTls).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_a_way_in_for_every_style() {
    let server = Postgres::start_with(&["unix_socket_directories=/tmp"]);
    let (admin, port) = (client(&server.url()).await, server.port());
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        for url in [
            format!("postgres:///postgres?host=/tmp&port={port}&style={style}&application_name=by-socket"),
            format!(
                "postgres://%2Ftmp:{port}/postgres?style={style}&sslmode=require&application_name=by-socket"
            ),
        ] {
            let keeper = lockkeeper::connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
            let guard = keeper.mutex("local").lock().await.expect(style);
            let text = "SELECT count(*), count(client_addr) FROM pg_stat_activity WHERE application_name = 'by-socket'";
            let row = admin.query_one(text, &[]).await.expect("a count");
            let (all, by_network): (i64, i64) = (row.get(0), row.get(1));
            assert!(all > 0 && by_network == 0, "{style}: {all}, {by_network}");
            guard.release().await.expect(style);
            keeper.close().await;
        }
    }
    let refused = lockkeeper::connect("postgres:///postgres?host=/nowhere").await.expect_err("nothing there");
    assert!(refused.to_string().contains("/nowhere/.s.PGSQL.5432"), "{refused}");
}

/// CockroachDB says yes to everybody who asks for an advisory lock. Another `version()` in front of the server's own is
/// how it looks from here.
#[tokio::test(flavor = "multi_thread")]
async fn cockroachdb_is_refused() {
    let server = Postgres::start();
    let fake = "CREATE SCHEMA fake; CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS
        $$ SELECT 'CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)' $$";
    client(&server.url()).await.batch_execute(fake).await.expect("a function");
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        let options = "-csearch_path%3Dfake,pg_catalog,public";
        let url = format!("{}?style={style}&options={options}", server.url());
        let refused = lockkeeper::connect(&url).await.expect_err("no locks there");
        assert!(!refused.is_temporary() && refused.to_string().contains("CockroachDB"), "{refused}");
    }
}

/// Behind a transaction pooler: what is set there by others does not matter, and nothing of ours stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_session_is_left_as_it_was() {
    let server = Postgres::start();
    let pooler = server.pooler("transaction");
    let admin = client(&server.url()).await;
    let hostile = "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
        ALTER DATABASE postgres SET default_transaction_read_only = on";
    admin.batch_execute(hostile).await.expect("settings");
    for style in ["session", "advisory"] {
        let url = format!("{}?pooler=transaction&style={style}", pooler.url());
        let refused = lockkeeper::connect(url).await.expect_err(style).to_string();
        assert!(refused.contains("style=queue"), "{refused}");
    }
    let without = lockkeeper::connect(pooler.url()).await.expect_err("it is noticed").to_string();
    assert!(without.contains("pooler=transaction"), "{without}");
    let keeper = lockkeeper::connect(format!("{}?pooler=transaction", pooler.url())).await.expect("a keeper");
    let guard = keeper.mutex("pooled").lock().await.expect("a grant");
    let waiting = keeper.mutex("pooled");
    let waiting = tokio::spawn(async move { waiting.lock().await });
    guard.release().await.expect("a release");
    waiting.await.expect("no panic").expect("a grant").release().await.expect("a release");
    let (other, connection) = tokio_postgres::connect(&pooler.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let left =
        "SELECT (SELECT count(*) FROM pg_prepared_statements)::text || current_setting('enable_seqscan')
        || current_setting('statement_timeout')";
    for message in other.simple_query(left).await.expect("a reply") {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            assert_eq!(row.get(0), Some("0on0"));
        }
    }
}
