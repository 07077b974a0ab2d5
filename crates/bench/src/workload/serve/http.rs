//! The least that a request to the server takes: a few bytes over one connection, and no client library.

use crate::Result;
use crate::floors::Pairs;
use futures_util::future::BoxFuture;
use serde_json::Value;
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
        let mut stream = self.0.lock().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reply = Vec::new();
        loop {
            if stream.read_buf(&mut reply).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let text = String::from_utf8_lossy(&reply);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.ok_or("a reply without a length")?.parse()?;
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
