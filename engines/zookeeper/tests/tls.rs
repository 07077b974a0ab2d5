//! TLS: a server with a certificate of a private authority is trusted, another is not.

mod common;

use common::{PATIENCE, connect, keeper, server, unique};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("openssl runs: scripts/install-engines zookeeper");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An authority (`ca.crt`) and its certificate for 127.0.0.1 (`server.crt`, `server.key`).
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(folder.path(), &format!("req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.crt"));
    let server =
        "-subj /CN=server -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    openssl(
        folder.path(),
        &format!("req -x509 {key} {server} -CA ca.crt -CAkey ca.key -keyout server.key -out server.crt"),
    );
    folder
}

/// A door to the shared server that speaks TLS; returns its port.
async fn tls_door(folder: &Path) -> u16 {
    let chain =
        CertificateDer::pem_file_iter(folder.join("server.crt")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = server().servers()[0].port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut inside) = acceptor.accept(stream).await else { return };
                let mut outside = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_work_over_tls_and_a_strange_authority_is_refused() {
    let (ours, strange) = (certificates(), certificates());
    let port = tls_door(ours.path()).await;
    let url = |folder: &TempDir| {
        format!("zookeeper://127.0.0.1:{port}?tls&ca={}", folder.path().join("ca.crt").display())
    };
    let secret = connect(&url(&ours), Duration::from_secs(4)).await.unwrap();
    let open = keeper().await;
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
    timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    timeout(PATIENCE, behind).await.unwrap().unwrap().unwrap().release().await.unwrap();

    let refused = connect(&url(&strange), Duration::from_secs(4)).await.unwrap_err();
    assert!(refused.to_string().to_lowercase().contains("certificate"), "{refused}");
}
