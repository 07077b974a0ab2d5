//! Connections by TLS, with the authority that the URL names and with none that knows the server.

use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_verified_and_every_connection_encrypted() {
    let server = MariaDb::start_tls();
    let unknown = format!("{}?ssl-mode=verify", server.url());
    let refused = lockkeeper::connect(unknown).await.expect_err("nobody vouches for it").to_string();
    assert!(refused.contains("certificate"), "{refused}");
    // From now on a connection without TLS is turned away.
    let mut admin = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    admin.query_drop("SET GLOBAL require_secure_transport = 1").await.expect("a setting");
    lockkeeper::connect(server.url()).await.expect_err("it does not speak TLS");
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let url = format!("{}?style={style}&ssl-mode=verify&ssl-ca={}", server.url(), server.ca().display());
        let keeper = lockkeeper::connect(url).await.expect(style);
        let guard = keeper.mutex("secret").lock().await.expect(style);
        guard.release().await.expect(style);
        keeper.close().await;
    }
}
