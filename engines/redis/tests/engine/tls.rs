//! Connections by TLS: the server is verified unless the URL says aloud that it is not to be.

use crate::authorities::are_trusted;
use lockkeeper_testkit::Redis;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_verified_unless_the_url_says_insecure() {
    let server = Redis::start_tls_with(&[]);
    let refused = lockkeeper::connect(server.url()).await.expect_err("nobody vouches for it").to_string();
    assert!(refused.contains("certificate"), "{refused}");
    let ca = server.ca().display().to_string();
    for query in
        [&*format!("?ca={ca}"), "?insecure", "?ssl_cert_reqs=none", "?skip_verify=true", "/0#insecure"]
    {
        let keeper = lockkeeper::connect(format!("{}{query}", server.url())).await.expect(query);
        keeper.mutex("secret").lock().await.expect(query).release().await.expect(query);
        keeper.close().await;
    }
}

/// The authorities of the system are those of every engine; here the environment names them.
#[test]
fn the_authorities_of_the_system_are_trusted() {
    are_trusted("tls::the_authorities_of_the_system_are_trusted", || {
        let server = Redis::start_tls_with(&[]);
        let urls = vec![server.url()];
        let authority = server.ca();
        (server, authority, urls)
    });
}
