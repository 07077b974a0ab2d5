//! The rights that the engine's page names are enough, once somebody else has created the tables.

use lockkeeper_testkit::Postgres;
use tokio_postgres::{Client, NoTls};

const PAGE: &str = include_str!("../../README.md");

/// What the page says, which names the table of the queue style and leaves the others to the reader.
fn grants(style: &str) -> String {
    let (_, rest) = PAGE.split_once("```sql\n").expect("the page has the statements");
    let (statements, _) = rest.split_once("```").expect("the statements end");
    let (on_table, others): (Vec<&str>, Vec<&str>) =
        statements.lines().partition(|line| line.contains("lockkeeper_claims"));
    assert_eq!(on_table.len(), 1);
    let table = match style {
        "queue" => "lockkeeper_claims",
        "row" => "lockkeeper_rows",
        "session" => "lockkeeper_sessions",
        _ => return others.join("\n"),
    };
    others.join("\n") + &on_table[0].replace("lockkeeper_claims", table)
}

async fn client(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute("CREATE ROLE tenant LOGIN").await.expect("a user");
    client
}

fn tenants(server: &Postgres, style: &str) -> String {
    format!("{}?style={style}", server.url().replace("postgres@", "tenant@"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_just_these_rights_has_every_style() {
    let server = Postgres::start();
    let admin = client(&server).await;
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        let url = tenants(&server, style);
        let refused = lockkeeper::connect(&url).await.expect_err("it may not create anything").to_string();
        assert!(refused.contains("lockkeeper schema postgres"), "{style}: {refused}");

        admin.batch_execute(lockkeeper_postgres::schema(style)).await.expect("the schema");
        admin.batch_execute(&grants(style)).await.expect("rights");
        let keepers =
            [lockkeeper::connect(&url).await.expect(style), lockkeeper::connect(&url).await.expect(style)];
        let guard = keepers[0].mutex("permitted").lock().await.expect(style);
        let other = keepers[1].mutex("permitted");
        assert!(other.try_lock().await.expect(style).is_none(), "{style}");
        let waiting = tokio::spawn(async move { other.lock().await });
        assert_eq!(keepers[1].inspect("permitted").await.expect(style).len(), 1, "{style}");
        guard.release().await.expect(style);
        drop(waiting.await.expect("no panic").expect(style));
    }
}
