//! What the tests share: a server without a network, and requests to it.

#![allow(dead_code, missing_docs, unreachable_pub)]

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Method, Request};
use futures_util::StreamExt as _;
use lockkeeper_core::Keeper;
use lockkeeper_core::engine::{Engine, Memory};
use lockkeeper_serve::{Server, Settings, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

/// How long anything may take that must happen in the end. Generous: only a hang reaches it.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A server on locks in memory.
pub struct Served {
    pub server: Server,
    pub keeper: Keeper,
    router: Router,
    pub token: Option<String>,
}

/// A reply: status, JSON (or null) and the headers.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Value,
    pub text: String,
    pub length: usize,
    pub headers: axum::http::HeaderMap,
}

impl Reply {
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub fn text_of(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_else(|| panic!("no {field} in {self:?}")).to_owned()
    }

    pub fn milliseconds(&self, field: &str) -> u64 {
        self.body[field].as_u64().unwrap_or_else(|| panic!("no {field} in {self:?}"))
    }
}

impl Served {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self::on(&Memory::new(), settings)
    }

    pub fn on(engine: &Memory, settings: Settings) -> Self {
        Self::over(engine.connect(), settings)
    }

    pub fn over(engine: Arc<dyn Engine>, settings: Settings) -> Self {
        let keeper = Keeper::builder().ttl(Duration::from_secs(3)).build(engine).unwrap();
        let server = Server::new(keeper.clone(), settings);
        let router = server.router();
        Self { server, keeper, router, token: None }
    }

    /// The same server for another caller.
    pub fn as_caller(&self, token: &str) -> Self {
        Self {
            server: self.server.clone(),
            keeper: self.keeper.clone(),
            router: self.router.clone(),
            token: Some(token.to_owned()),
        }
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Reply {
            status: parts.status.as_u16(),
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            length: bytes.len(),
            headers: parts.headers,
        }
    }

    pub fn request(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost:7670");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path, None, None)).await
    }

    /// A reply whose body goes on.
    pub async fn stream(&self, path: &str) -> Stream {
        self.open(self.request(Method::GET, path, None, None)).await
    }

    /// The same with a request of the test's.
    pub async fn open(&self, request: Request<Body>) -> Stream {
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{response:?}");
        let (parts, body) = response.into_parts();
        Stream { headers: parts.headers, body: body.into_data_stream(), text: String::new() }
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(self.request(Method::POST, path, None, Some(body))).await
    }

    pub async fn post_with_key(&self, path: &str, key: &str, body: Value) -> Reply {
        self.send(self.request(Method::POST, path, Some(key), Some(body))).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(self.request(Method::DELETE, path, None, None)).await
    }

    pub async fn beat(&self, session: &str) -> Reply {
        self.send(self.request(Method::POST, &format!("/v1/sessions/{session}/heartbeat"), None, None)).await
    }

    pub async fn session(&self, ttl: &str) -> String {
        let made = self.post("/v1/sessions", json!({"ttl": ttl, "holder": "test"})).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text_of("session")
    }

    /// A hold that must be had at once; its id.
    pub async fn hold(&self, session: &str, name: &str) -> String {
        let held = self.post("/v1/holds", json!({"session": session, "names": [name], "wait": 0})).await;
        assert_eq!(held.status, 201, "{held:?}");
        held.text_of("hold")
    }

    /// Waits until this many claims wait for the lock.
    pub async fn until_waiting(&self, name: &str, waiters: usize) {
        let waits = async || self.keeper.look(name).await.unwrap().map_or(0, |lock| lock.waiters().count());
        until("the waiters stand in the queue", async || waits().await == waiters).await;
    }

    pub async fn until_free(&self, name: &str) {
        until("the lock is free", async || self.keeper.look(name).await.unwrap().is_none()).await;
    }
}

/// A reply whose body goes on.
pub struct Stream {
    pub headers: axum::http::HeaderMap,
    body: BodyDataStream,
    /// What has come and was not waited for yet.
    pub text: String,
}

impl Stream {
    /// Reads until this text has come; returns all that came before it.
    pub async fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.text.find(text) {
                let rest = self.text.split_off(at + text.len());
                return std::mem::replace(&mut self.text, rest);
            }
            assert!(self.read().await, "no {text:?}, it ends with {:?}", self.text);
        }
    }

    /// Reads to the end.
    pub async fn rest(mut self) -> String {
        while self.read().await {}
        self.text
    }

    async fn read(&mut self) -> bool {
        let more = tokio::time::timeout(LIMIT, self.body.next()).await;
        let Some(more) = more.unwrap_or_else(|_| panic!("nothing comes after {:?}", self.text)) else {
            return false;
        };
        self.text += &String::from_utf8_lossy(&more.unwrap());
        true
    }
}

/// A token file of these names and rights, what the server makes of it, and the tokens.
pub fn tokens(lines: &[(&str, &str)]) -> (tempfile::TempDir, Tokens, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let mut given = Vec::new();
    let text: String = lines
        .iter()
        .map(|(name, rights)| {
            let (token, line) = Tokens::generate(name).unwrap();
            given.push(token);
            line.replace("look,hold *", rights) + "\n"
        })
        .collect();
    std::fs::write(&path, text).unwrap();
    (directory, Tokens::from_file(path).unwrap(), given)
}

/// Polls a condition that must come true in the end.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "not after {LIMIT:?}: {what}");
}
