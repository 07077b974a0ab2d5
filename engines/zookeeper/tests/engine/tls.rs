//! TLS: a server with a certificate of a private authority is trusted, another is not.

use crate::authorities::are_trusted;
use crate::common::{LIMIT, connect, unique};
use lockkeeper_testkit::ZooKeeper;
use std::process::Command;
use std::time::Duration;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(6);

/// The certificate of an authority that has nothing to do with the server.
fn strange_authority() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=stranger \
                     -keyout ca.key -out ca.crt";
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder.path())
        .output()
        .expect("openssl runs: scripts/install-engines zookeeper");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_work_over_tls_and_a_strange_authority_is_refused() {
    let server = ZooKeeper::start_tls();
    let secret = connect(&format!("{}&ca={}", server.url(), server.ca().display()), TTL).await.unwrap();
    let open = connect(&server.open_url(), TTL).await.unwrap();
    let name = unique("tls");
    let guard = secret.mutex(&name).lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = open.mutex(&name);
        async move { mutex.lock().await }
    });
    let other = unique("tls-waits");
    let held = open.mutex(&other).lock().await.unwrap();
    let behind = tokio::spawn({
        let mutex = secret.mutex(&other);
        async move { mutex.lock().await }
    });
    guard.release().await.unwrap();
    timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    timeout(LIMIT, behind).await.unwrap().unwrap().unwrap().release().await.unwrap();

    let strange = strange_authority();
    let url = format!("{}&ca={}", server.url(), strange.path().join("ca.crt").display());
    let refused = connect(&url, TTL).await.unwrap_err();
    assert!(refused.to_string().to_lowercase().contains("certificate"), "{refused}");
}

/// The authorities of the system are those of every engine; here the environment names them.
#[test]
fn the_authorities_of_the_system_are_trusted() {
    are_trusted("tls::the_authorities_of_the_system_are_trusted", || {
        let server = ZooKeeper::start_tls();
        let urls = vec![server.url()];
        let authority = server.ca();
        (server, authority, urls)
    });
}
