//! Upgrades: tables of an older release are migrated, those of a newer one refused. And servers that are too old.

use crate::permissions::{administer, let_tenant_create, tenant_url};
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

async fn client(server: &MariaDb) -> Conn {
    Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection")
}

/// What the previous release made, and claims that it left there.
const PREVIOUS: [(&str, &str, &str); 4] = [
    (
        "queue",
        include_str!("version_2_queue.sql"),
        "INSERT INTO lockkeeper_locks (name, last_place, queued, place, id, demand, weight, expires_at)
         VALUES ('lockkeeper/old', 7, FALSE, 7, REPEAT('a', 32), 'exclusive', 1000000000, SYSDATE(6) + INTERVAL 1 HOUR);
         INSERT INTO lockkeeper_locks (name, last_place, queued) VALUES ('lockkeeper/queued', 8, TRUE);
         INSERT INTO lockkeeper_claims VALUES ('lockkeeper/queued', 8, REPEAT('b', 32), 'exclusive', 1000000000, 0, 0, '', '',
             SYSDATE(6), SYSDATE(6) + INTERVAL 1 HOUR);",
    ),
    (
        "row",
        include_str!("version_2_row.sql"),
        "INSERT INTO lockkeeper_rows VALUES ('lockkeeper/old', REPEAT('a', 32), 7, '', '', 1, '', SYSDATE(6),
             SYSDATE(6) + INTERVAL 1 HOUR);",
    ),
    ("session", include_str!("version_2_session.sql"), ""),
    ("advisory", include_str!("version_2_advisory.sql"), ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_previous_tables_are_migrated_and_keep_their_claims() {
    for has_version in [true, false] {
        let server = MariaDb::start();
        let mut admin = client(&server).await;
        let_tenant_create(&server);
        for (style, tables, claims) in PREVIOUS {
            administer(&server, tables);
            administer(&server, claims);
            if !has_version {
                admin.query_drop("DROP TABLE lockkeeper_schema").await.expect("a table");
            }
            // Many that come at once migrate once, and none finds a procedure missing.
            let connects: Vec<_> = (0..4)
                .map(|_| {
                    let url = tenant_url(&server, style);
                    tokio::spawn(async move { lockkeeper::connect(url).await })
                })
                .collect();
            for connect in connects {
                let keeper = connect.await.expect("no panic").expect(style);
                for old in ["old", "queued"].into_iter().filter(|name| claims.contains(name)) {
                    assert!(keeper.mutex(old).try_lock().await.expect(style).is_none(), "{style}: {old}");
                    assert_eq!(keeper.inspect(old).await.expect(style).len(), 1, "{style}: {old}");
                }
                keeper.mutex("new").lock().await.expect(style).release().await.expect(style);
            }
            let found = "SELECT version FROM lockkeeper_schema WHERE style = ?";
            let version: Option<u32> = admin.exec_first(found, (style,)).await.expect("a version");
            assert_eq!(version, Some(3), "{style}");
        }
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
        let oldest =
            if matches!(style, "queue" | "session") { "needs MySQL 8.0 " } else { "needs MySQL 5.7.5 " };
        assert!(refused.contains("5.6.51") && refused.contains(oldest), "{style}: {refused}");
    }
}
