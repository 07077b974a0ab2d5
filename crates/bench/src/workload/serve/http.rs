//! The least that a request takes: a few bytes over one connection, and no client library. For etcd's own lock over HTTP, too.

use crate::Result;
use crate::floors::Pairs;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// One connection.
pub(crate) struct Http(Mutex<TcpStream>);

impl Http {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        Ok(Self(Mutex::new(stream)))
    }

    /// The body of a reply to GET.
    async fn get(&self, path: &str) -> Result<String> {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
    }

    /// The reply to POST.
    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let (head, body) = (format!("POST {path} HTTP/1.1\r\nHost: localhost"), body.to_string());
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        Ok(serde_json::from_str(&self.send(&request).await?)?)
    }

    async fn send(&self, request: &str) -> Result<String> {
        let mut stream = self.0.lock().await;
        stream.write_all(request.as_bytes()).await?;
        let mut reply = Vec::new();
        loop {
            if stream.read_buf(&mut reply).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let text = String::from_utf8_lossy(&reply);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let lengths = head.lines().filter_map(|line| line.split_once(": "));
            let length = lengths.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.ok_or("a reply without a length")?.1.parse()?;
            if body.len() >= length {
                return Ok(body.into());
            }
        }
    }

    /// How many requests wait at the server.
    pub(crate) async fn waiters(&self) -> Result<usize> {
        let figures: Value = serde_json::from_str(&self.get("/v1/server").await?)?;
        let waiters = figures["waiters"].as_u64().ok_or("the server does not tell how many wait")?;
        Ok(usize::try_from(waiters)?)
    }
}

/// One round trip each.
impl Pairs for Http {
    fn pair(&self, _: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.get("/healthz").await.map(drop) })
    }
}

/// The lock that etcd has over HTTP: one call to lock, one to unlock, and a lease for all.
pub(crate) struct EtcdHttp {
    http: Http,
    lease: String,
}

impl EtcdHttp {
    /// To the server of this URL of the engine, if that is etcd.
    pub(crate) async fn connect(url: &str) -> Result<Option<Self>> {
        let Some(address) = url.strip_prefix("etcd://") else { return Ok(None) };
        let first = address.split(['/', ',', '?']).next().unwrap_or_default();
        let http = Http::connect(first).await?;
        let lease = http.post("/v3/lease/grant", &json!({"TTL": 60})).await?;
        let lease = lease["ID"].as_str().ok_or("etcd grants no lease over HTTP")?.to_owned();
        Ok(Some(Self { http, lease }))
    }
}

impl Pairs for EtcdHttp {
    fn pair(&self, _: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // The name 'bench', as its gateway wants bytes.
            let name = json!({"name": "YmVuY2g=", "lease": self.lease});
            let locked = self.http.post("/v3/lock/lock", &name).await?;
            let key = locked["key"].as_str().ok_or("etcd has not locked over HTTP")?;
            self.http.post("/v3/lock/unlock", &json!({"key": key})).await.map(drop)
        })
    }
}
