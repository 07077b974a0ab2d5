//! Requests and replies. Every connection lives on the background runtime, so that a blocked or ended runtime of the caller's
//! holds up no renewal.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lockkeeper_core::engine::background;
use lockkeeper_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The name in errors.
pub(crate) const ENGINE: &str = "http";

/// The largest reply that is read: ten thousand locks with many waiters.
const LARGEST: usize = 256 * 1024 * 1024;

/// How long a connection may be unused. The server closes an idle one after 30 seconds.
const IDLE: Duration = Duration::from_secs(20);

/// One server.
#[derive(Clone)]
pub(crate) struct Server {
    base: String,
    token: Option<HeaderValue>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    body: Bytes,
}

/// A request that is given up when it is dropped: its connection is closed.
struct Sent(JoinHandle<Result<Reply, Box<dyn std::error::Error + Send + Sync>>>);

impl Drop for Sent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    pub(crate) fn new(
        base: String,
        token: Option<String>,
        tls: Option<rustls::ClientConfig>,
    ) -> Result<Self> {
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose();
        let mut token =
            token.map_err(|_| Error::invalid("bad token: it has characters that no token has"))?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(Duration::from_secs(5)));
        let builder = HttpsConnectorBuilder::new();
        let builder = match tls {
            Some(tls) => builder.with_tls_config(tls).https_only(),
            None => builder.with_tls_config(plain()?).https_or_http(),
        };
        let connector = builder.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { base, token, client })
    }

    /// Sends a request and waits for its reply. Fails with a temporary error if there is none.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
        doing: &'static str,
    ) -> Result<Reply> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                body.to_string()
            }
            None => String::new(),
        };
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::invalid(format!("bad server URL '{}': {error}", self.base)))?;
        let client = self.client.clone();
        let mut sent = Sent(background::handle().spawn(async move {
            let reply = client.request(request).await?;
            let status = reply.status().as_u16();
            let body = Limited::new(reply.into_body(), LARGEST).collect().await?.to_bytes();
            Ok(Reply { status, body })
        }));
        match (&mut sent.0).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(Error::temporary(ENGINE, doing, innermost(error.as_ref()))),
            Err(_) => Err(Error::temporary(ENGINE, doing, "the request was given up")),
        }
    }
}

/// What is really wrong: hyper wraps it several times.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A set-up for connections without TLS, which the connector asks for nevertheless.
fn plain() -> Result<rustls::ClientConfig> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("TLS is not possible: {error}")))?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

impl Reply {
    pub(crate) fn read<T: DeserializeOwned>(&self, doing: &'static str) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Error::permanent(ENGINE, doing, format!("the reply is none of lockkeeper serve: {error}"))
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.base)
    }
}
