//! Connections by TLS: what each `ssl-mode` encrypts, verifies and refuses.

use crate::authorities::are_trusted;
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::path::Path;

async fn demand_tls(server: &MariaDb) {
    let mut admin = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    admin.query_drop("SET GLOBAL require_secure_transport = 1").await.expect("a setting");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_verified_and_every_connection_encrypted() {
    let server = MariaDb::start_tls();
    let unknown = format!("{}?ssl-mode=VERIFY_IDENTITY", server.url());
    let refused = lockkeeper::connect(unknown).await.expect_err("nobody vouches for it").to_string();
    assert!(refused.contains("certificate"), "{refused}");
    // From now on a connection without TLS is turned away.
    demand_tls(&server).await;
    let plain = format!("{}?ssl-mode=DISABLED", server.url());
    lockkeeper::connect(plain).await.expect_err("it does not speak TLS");
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let url = format!("{}&style={style}", server.tls_url());
        let keeper = lockkeeper::connect(url).await.expect(style);
        let guard = keeper.mutex("secret").lock().await.expect(style);
        guard.release().await.expect(style);
        keeper.close().await;
    }
}

/// The address 127.0.0.2 is not in the certificate.
#[tokio::test(flavor = "multi_thread")]
async fn each_mode_checks_what_the_mysql_program_checks() {
    let server = MariaDb::start_tls_with(&["--bind-address=0.0.0.0"]);
    let stranger = MariaDb::start_tls();
    demand_tls(&server).await;
    let (ca, other) = (server.ca(), stranger.ca());
    let other_name = server.url().replace("127.0.0.1", "127.0.0.2");
    let connect = async |mode: &str, ca: Option<&Path>| {
        let ca = ca.map_or(String::new(), |path| format!("&ssl-ca={}", path.display()));
        lockkeeper::connect(format!("{other_name}?style=row{mode}{ca}")).await
    };
    for (mode, ca) in [
        ("", None),
        ("&ssl-mode=PREFERRED", None),
        ("&ssl_mode=required", None),
        ("&ssl-mode=VERIFY_CA", Some(&*ca)),
        ("", Some(&*ca)),
    ] {
        let keeper = connect(mode, ca).await.unwrap_or_else(|error| panic!("{mode} {ca:?}: {error}"));
        keeper.mutex("mode").lock().await.expect(mode).release().await.expect(mode);
        keeper.close().await;
    }
    for (mode, ca) in [
        ("&ssl-mode=VERIFY_CA", Some(&*other)),
        ("&ssl-mode=VERIFY_CA", None),
        ("&ssl-mode=VERIFY_IDENTITY", Some(&*ca)),
        ("", Some(&*other)),
    ] {
        let refused = connect(mode, ca).await.expect_err(mode).to_string();
        assert!(refused.contains("certificate"), "{mode} {ca:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_at_the_server_only_those_connect_that_need_none() {
    let server = MariaDb::start();
    for mode in ["", "ssl-mode=PREFERRED", "ssl-mode=DISABLED"] {
        let keeper = lockkeeper::connect(format!("{}?{mode}", server.url())).await.expect(mode);
        keeper.mutex("plain").lock().await.expect(mode).release().await.expect(mode);
        keeper.close().await;
    }
    for mode in ["ssl-mode=REQUIRED", "ssl-mode=VERIFY_CA", "ssl-ca=system"] {
        lockkeeper::connect(format!("{}?{mode}", server.url())).await.expect_err(mode);
    }
}

/// The authorities of the system are those of every engine; here the environment names them.
#[test]
fn the_authorities_of_the_system_are_trusted() {
    are_trusted("tls::the_authorities_of_the_system_are_trusted", || {
        let server = MariaDb::start_tls();
        let urls = vec![format!("{}?ssl-mode=VERIFY_IDENTITY", server.url())];
        let authority = server.ca();
        (server, authority, urls)
    });
}
