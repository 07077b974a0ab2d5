//! HTTP/2 over TLS: many requests on one connection, and a wait that ends when its stream is reset.

mod support;

use axum::body::Body;
use axum::http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockkeeper_serve::{Listener, Settings, tls_from_files};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use support::Served;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A client that trusts this certificate alone, and speaks HTTP/2 if the server does.
fn client(certificate: &std::path::Path) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut tls = tls.unwrap().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(tls))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_over_http_2_leaves_when_its_stream_is_reset_and_the_others_go_on() {
    let place = tempfile::tempdir().unwrap();
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem";
    let made =
        Command::new("openssl").args(words.split_whitespace()).current_dir(place.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let (certificate, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    let listener =
        Listener::bind("127.0.0.1:0", Some(tls_from_files(&certificate, &key).unwrap())).await.unwrap();
    let address = listener.to_string().replace("https://", "");
    let served = Served::with(Settings::default());
    let server = served.server.clone();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });

    let stream = TcpStream::connect(&address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = client(&certificate).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let post = async |path: &str, body: Value| {
        let request =
            Request::post(format!("https://localhost{path}")).header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = sender.clone().send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, session) = post("/v1/sessions", json!({"ttl": "60s"})).await;
    assert_eq!(status, 201, "{session}");
    let hold = json!({"session": session["session"], "names": ["a"]});
    assert_eq!(post("/v1/holds", hold.clone()).await.0, 201);
    tokio::select! {
        reply = post("/v1/holds", hold.clone()) => panic!("{reply:?}"),
        () = served.until_waiting("a", 1) => {}
    }
    served.until_waiting("a", 0).await;
    let other = json!({"session": session["session"], "names": ["b"]});
    assert_eq!(post("/v1/holds", other).await.0, 201, "the connection is as it was");
}
