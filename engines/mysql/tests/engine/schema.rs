//! Upgrades: tables of an older release are migrated, those of a newer one refused. And servers that are too old.

use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

async fn client(server: &MariaDb) -> Conn {
    Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection")
}

/// One procedure of each style, which an older release had otherwise.
const PROCEDURES: [(&str, &str); 4] = [
    ("queue", "lockkeeper_join"),
    ("row", "lockkeeper_row_clean"),
    ("session", "lockkeeper_session_take"),
    ("advisory", "lockkeeper_advisory_key"),
];

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_a_version_are_migrated_and_locks_stay() {
    let server = MariaDb::start();
    let mut admin = client(&server).await;
    for (style, procedure) in PROCEDURES {
        let url = format!("{}?style={style}", server.url());
        let keeper = lockkeeper::connect(&url).await.expect(style);
        let held = keeper.mutex("kept").lock().await.expect(style);
        // As it was before there were versions: the same tables, other procedures.
        admin.query_drop("DROP TABLE lockkeeper_schema").await.expect("a table");
        admin.query_drop(format!("DROP PROCEDURE {procedure}")).await.expect("a procedure");
        admin.query_drop(format!("CREATE PROCEDURE {procedure}() SELECT 1")).await.expect("an older one");

        // Many that come at once migrate once, and none finds a procedure missing.
        let connects: Vec<_> = (0..4)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { lockkeeper::connect(url).await })
            })
            .collect();
        for connect in connects {
            let other = connect.await.expect("no panic").expect(style);
            assert!(other.mutex("kept").try_lock().await.expect(style).is_none(), "{style}");
            other.mutex("new").lock().await.expect(style).release().await.expect(style);
        }
        held.release().await.expect(style);
        let parameters = "SELECT COUNT(*) FROM information_schema.parameters \
            WHERE specific_schema = DATABASE() AND specific_name = ?";
        let count: Option<u64> = admin.exec_first(parameters, (procedure,)).await.expect("a count");
        assert!(count > Some(0), "{procedure} was replaced");
        let found = "SELECT version FROM lockkeeper_schema WHERE style = ?";
        let version: Option<u32> = admin.exec_first(found, (style,)).await.expect("a version");
        assert_eq!(version, Some(3), "{style}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_newer_release_are_refused() {
    let server = MariaDb::start();
    let mut admin = client(&server).await;
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let url = format!("{}?style={style}", server.url());
        lockkeeper::connect(&url).await.expect(style).close().await;
        let newer = "UPDATE lockkeeper_schema SET version = 99 WHERE style = ?";
        admin.exec_drop(newer, (style,)).await.expect("a version");
        let refused = lockkeeper::connect(&url).await.expect_err("it is newer").to_string();
        assert!(refused.contains("version 99") && refused.contains("newer release"), "{style}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_sessions_have_one_user_lock_is_refused() {
    let server = MariaDb::start_with(&["--version=5.6.51-log"]);
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let refused = lockkeeper::connect(format!("{}?style={style}", server.url())).await;
        let refused = refused.expect_err("it is too old").to_string();
        assert!(refused.contains("5.6.51") && refused.contains("5.7.5"), "{style}: {refused}");
    }
}
