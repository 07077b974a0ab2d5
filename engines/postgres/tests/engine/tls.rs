//! Connections by TLS, with the authority that the URL names and with none that knows the server.

use lockkeeper_testkit::Postgres;
use tokio_postgres::NoTls;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_verified_and_every_connection_encrypted() {
    let server = Postgres::start_tls();
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let unknown = format!("{}?sslmode=verify-full", server.url());
    let refused = lockkeeper::connect(unknown).await.expect_err("nobody vouches for it").to_string();
    assert!(refused.contains("certificate"), "{refused}");
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        let url = format!(
            "{}?style={style}&sslmode=verify-full&sslrootcert={}",
            server.url(),
            server.ca().display()
        );
        let keeper = lockkeeper::connect(url).await.expect(style);
        let guard = keeper.mutex("secret").lock().await.expect(style);
        let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name = 'lockkeeper' AND NOT ssl";
        assert_eq!(client.query_one(plain, &[]).await.expect("a count").get::<_, i64>(0), 0, "{style}");
        guard.release().await.expect(style);
        keeper.close().await;
    }
}
