//! Connections by TLS: the server is verified unless the URL says aloud that it is not to be.

use crate::authorities::are_trusted;
use lockkeeper_testkit::{Proxy, Redis};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

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

/// In the process inside: the server's URL.
const INSIDE: &str = "LOCKKEEPER_TEST_REDIS_TLS";
const PATIENCE: Duration = Duration::from_secs(30);

/// A reconnect in the background must not wait for a disk, and who names an authority does not depend on the system's. The
/// environment of a process of its own names a file that is gone after the first connection.
#[test]
fn authorities_are_read_once_and_the_systems_only_if_none_is_named() {
    if let Ok(url) = std::env::var(INSIDE) {
        return tokio::runtime::Runtime::new().expect("a runtime").block_on(authorities_vanish(&url));
    }
    let server = Redis::start_tls_with(&[]);
    let system = std::env::temp_dir().join(format!("lockkeeper-authorities-{}.pem", std::process::id()));
    std::fs::copy(server.ca(), &system).expect("a copy");
    let test = "tls::authorities_are_read_once_and_the_systems_only_if_none_is_named";
    let mut inside = Command::new(std::env::current_exe().expect("this program"));
    inside.args(["--exact", "--nocapture", test]).env(INSIDE, server.url());
    inside.env("SSL_CERT_FILE", &system).env("LOCKKEEPER_TEST_CA", server.ca());
    let output = inside.output().expect("the test inside");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn authorities_vanish(url: &str) {
    let (begin, port) = url.rsplit_once(':').expect("a port");
    let begin = begin.strip_suffix("127.0.0.1").expect("the server is on this machine");
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("a number"))));
    let url = format!("{begin}{}", proxy.addr());
    let trusting = lockkeeper::connect(&url).await.expect("the system's authorities");
    let system = std::env::var("SSL_CERT_FILE").expect("a file");
    std::fs::remove_file(system).expect("the file is there");
    lockkeeper::connect(&url).await.expect_err("the system trusts nobody");
    let own = format!("{url}?ca={}", std::env::var("LOCKKEEPER_TEST_CA").expect("a file"));
    let own = lockkeeper::connect(own).await.expect("an authority of its own");
    proxy.reset();
    for (keeper, name) in [(trusting, "trusting"), (own, "own")] {
        let again = tokio::time::timeout(PATIENCE, keeper.mutex(name).lock()).await;
        again.expect("a reconnect in time").expect(name).release().await.expect(name);
    }
}
