//! Ways in: passwords that change and Unix sockets; and other programs that have a user lock.

use crate::passwords::a_hold_survives_a_new_password;
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

async fn admin(server: &MariaDb) -> Conn {
    Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_survives_a_change_of_the_password() {
    let server = MariaDb::start();
    let create = "CREATE USER keeper IDENTIFIED BY 'none'; GRANT ALL ON *.* TO keeper";
    admin(&server).await.query_drop(create).await.expect("a user");
    for style in lockkeeper_mysql::STYLES {
        let url = format!("{}?style={}", server.url().replace("root@", "keeper@"), style.style);
        let survives = ["queue", "row"].contains(&style.style);
        a_hold_survives_a_new_password(&url, survives, async |password: &str| {
            let change = format!("ALTER USER keeper IDENTIFIED BY '{password}'; KILL USER keeper");
            admin(&server).await.query_drop(change).await.expect("a new password");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_a_way_in_for_every_style() {
    let server = MariaDb::start();
    let socket = server.directory().join("home/socket").display().to_string();
    let mut admin = admin(&server).await;
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let url =
            format!("mysql://root@localhost/lockkeeper?socket={socket}&style={style}&ssl-mode=REQUIRED");
        let keeper = lockkeeper::connect(&url).await.expect(style);
        let guard = keeper.mutex("local").lock().await.expect(style);
        let count =
            "SELECT COUNT(*), CAST(SUM(host LIKE '%:%') AS SIGNED) FROM information_schema.processlist
            WHERE user = 'root' AND id <> CONNECTION_ID()";
        let (all, by_network): (u32, u32) = admin.query_first(count).await.expect("a reply").expect("a row");
        assert!(all > 0 && by_network == 0, "{style}: {all}, {by_network}");
        guard.release().await.expect(style);
        keeper.close().await;
    }
    let refused =
        lockkeeper::connect("mysql:///lockkeeper?socket=/nowhere/socket").await.expect_err("nothing there");
    assert!(refused.to_string().contains("/nowhere/socket"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_holder_is_shown() {
    let server = MariaDb::start();
    let keeper = lockkeeper::connect(format!("{}?style=advisory", server.url())).await.expect("a keeper");
    let mut other = admin(&server).await;
    let take = "SELECT GET_LOCK('lk:lockkeeper/lockkeeper/shared', 0)";
    assert_eq!(other.query_first::<u8, _>(take).await.expect("a reply"), Some(1));
    let seen = keeper.inspect("shared").await.expect("a list");
    let claim = seen.first().and_then(|lock| lock.holders().next()).expect("a holder");
    assert_eq!((seen[0].name.as_str(), claim.foreign, claim.token), ("shared", true, None));
    assert_eq!((claim.holder.text.as_str(), &*claim.id), ("root", &*format!("session-{}", other.id())));
    assert!(keeper.inspect("share").await.expect("a list").is_empty(), "only the name that was given");
    other.query_drop("DO RELEASE_ALL_LOCKS()").await.expect("no lock");
    assert!(keeper.inspect("shared").await.expect("a list").is_empty());
    let ours = keeper.mutex("shared").lock().await.expect("a grant");
    let others = lockkeeper::connect(format!("{}?style=advisory", server.url())).await.expect("a keeper");
    let seen = others.inspect("shared").await.expect("a list");
    assert!(seen[0].claims.len() == 1 && !seen[0].claims[0].foreign, "{seen:?}");
    ours.release().await.expect("a release");
}
