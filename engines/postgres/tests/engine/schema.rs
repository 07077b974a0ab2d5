//! The schema's version: an older layout is migrated, a newer one is refused, and a missing right is named.

use futures_util::future::join_all;
use lockkeeper_postgres::STYLES;
use lockkeeper_testkit::Postgres;
use tokio_postgres::{Client, NoTls};

/// The layout of 0.1.0, which had no version.
const FIRST: &str = include_str!("../sql/schema_0_1_0.sql");
/// The layout of version 3, without the functions that take many claims at once.
const THIRD: &str = include_str!("../sql/schema_version_3.sql");

async fn client(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_layout_is_migrated_and_keeps_its_claims() {
    let held_row = "INSERT INTO lockkeeper_rows VALUES
        ('lockkeeper/old', repeat('a', 32), 1, '', '', 1, '', now(), now() + interval '1 h')";
    let held_claim = "SELECT lockkeeper_join('lockkeeper/old', repeat('a', 32), 'exclusive', 1000000000, 1000000000, 0, '',
        'none', 3600000)";
    for layout in [FIRST, THIRD] {
        let server = Postgres::start();
        let admin = client(&server).await;
        admin.batch_execute(layout).await.expect("the older layout");
        admin.batch_execute(held_row).await.expect("a hold of the older release");
        admin.batch_execute(held_claim).await.expect("a claim of the older release");
        for style in STYLES.iter().map(|style| style.style) {
            is_migrated(&server, &admin, style).await;
        }
    }
}

async fn is_migrated(server: &Postgres, admin: &Client, style: &str) {
    let url = format!("{}?style={style}", server.url());
    let keeper = lockkeeper::connect(&url).await.expect(style);
    let found = "SELECT version FROM lockkeeper_schema WHERE style = $1";
    assert_eq!(admin.query_one(found, &[&style]).await.expect(style).get::<_, i64>(0), 4, "{style}");
    let is_old_held = ["queue", "row"].contains(&style);
    let old = keeper.mutex("old").try_lock().await.expect(style);
    assert_eq!(old.is_none(), is_old_held, "{style}");
    // Several at once, which take what came with the last version.
    let names: Vec<String> = (0..20).map(|number| format!("new-{number}")).collect();
    let at_once = &keeper;
    let locks = names.iter().map(|name| async move {
        at_once.mutex(name).lock().await.expect(style).release().await.expect(style);
    });
    join_all(locks).await;
    // A second one finds nothing to do, which needs no rights.
    lockkeeper::connect(&url).await.expect(style).close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_layout_is_refused() {
    let server = Postgres::start();
    let admin = client(&server).await;
    for style in STYLES.iter().map(|style| style.style) {
        let url = format!("{}?style={style}", server.url());
        lockkeeper::connect(&url).await.expect(style).close().await;
        admin.execute("UPDATE lockkeeper_schema SET version = 99", &[]).await.expect("a newer version");
        let refused = lockkeeper::connect(&url).await.expect_err("it is not known").to_string();
        assert!(refused.contains("version 99") && refused.contains("newer release"), "{style}: {refused}");
        // What the command prints does not make it older.
        admin.batch_execute(lockkeeper_postgres::schema(style)).await.expect("the schema");
        lockkeeper::connect(&url).await.expect_err("it is not known");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_not_migrate_is_told_the_command() {
    let server = Postgres::start();
    let admin = client(&server).await;
    let rights = "CREATE ROLE tenant LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO tenant;
        GRANT ALL ON SEQUENCE lockkeeper_token TO tenant";
    admin.batch_execute(FIRST).await.expect("the first layout");
    admin.batch_execute(rights).await.expect("rights");
    for style in STYLES.iter().map(|style| style.style) {
        let url = format!("{}?style={style}", server.url().replace("postgres@", "tenant@"));
        let refused = lockkeeper::connect(&url).await.expect_err("it may not").to_string();
        assert!(refused.contains(&format!("lockkeeper schema postgres --style {style}")), "{refused}");
        admin.batch_execute(lockkeeper_postgres::schema(style)).await.expect("the schema");
        admin.batch_execute("GRANT SELECT ON lockkeeper_schema TO tenant").await.expect("rights");
        lockkeeper::connect(&url).await.expect(style).close().await;
    }
}

/// Not every encoding has every letter, and what is sent must be in all of them.
#[tokio::test(flavor = "multi_thread")]
async fn every_style_works_in_databases_of_other_encodings() {
    let server = Postgres::start();
    let admin = client(&server).await;
    for encoding in ["LATIN2", "EUC_JP", "SQL_ASCII"] {
        let name = encoding.to_lowercase();
        let create = format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        admin.batch_execute(&create).await.expect("a database");
        let (url, _) =
            server.url().rsplit_once('/').map(|(url, end)| (url.to_owned(), end.len())).expect("a URL");
        for style in STYLES.iter().map(|style| style.style) {
            let keeper = lockkeeper::connect(format!("{url}/{name}?style={style}")).await;
            let keeper = keeper.unwrap_or_else(|error| panic!("{encoding}, {style}: {error}"));
            keeper.mutex("plain").lock().await.expect(style).release().await.expect(style);
        }
    }
}
