//! What `fuzz/` sends: a request line, and after a line break a body, to a server on locks in memory.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::{Server, Settings};
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use axum::response::Response;
use lockkeeper_core::Keeper;
use lockkeeper_core::engine::Memory;
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

/// Where in the input the session and the hold of this server go.
const PLACES: [&str; 2] = ["SESSION", "HOLD"];

struct Served {
    runtime: Runtime,
    server: Server,
    /// The ids of a session and of a hold.
    ids: [String; 2],
}

impl Served {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut settings = Settings::default();
        settings.limits.wait = Duration::from_millis(1);
        settings.limits.request_time = Duration::from_secs(1);
        let keeper = Keeper::builder().build(Memory::engine()).expect("a keeper");
        let server = Server::new(keeper, settings);
        let _entered = runtime.enter();
        let mut served = Self { server, ids: Default::default(), runtime };
        served.ids[0] = served.made(r#"{"ttl":"1h"}"#, "/v1/sessions", "session");
        let hold = format!(r#"{{"session":"{}","names":["held"]}}"#, served.ids[0]);
        served.ids[1] = served.made(&hold, "/v1/holds", "hold");
        served
    }

    fn made(&self, body: &str, path: &str, what: &str) -> String {
        let (_, reply) = self.send("POST", path, body.as_bytes().to_vec()).expect("a request");
        reply[what].as_str().unwrap_or_else(|| panic!("no {what}: {reply}")).to_owned()
    }

    /// The status and the JSON of the reply; `None` if this is no request of HTTP.
    fn send(&self, method: &str, path: &str, body: Vec<u8>) -> Option<(u16, Value)> {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        let request = request.header(header::CONTENT_TYPE, "application/json").header("idempotency-key", "k");
        let request = request.body(Body::from(body)).ok()?;
        self.runtime.block_on(async {
            let reply: Response =
                self.server.router().oneshot(request).await.unwrap_or_else(|never| match never {});
            let (status, kind) =
                (reply.status().as_u16(), reply.headers().get(header::CONTENT_TYPE).cloned());
            let is_json = kind.is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
            // Anything else may go on as long as the connection is open.
            let bytes = if is_json {
                to_bytes(reply.into_body(), 1 << 24).await.unwrap_or_default()
            } else {
                "null".into()
            };
            // HEAD has none.
            let reply =
                if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("JSON") };
            Some((status, reply))
        })
    }
}

thread_local!(static SERVED: Served = Served::start());

/// `METHOD PATH`, and after a line break the body. Nothing makes the server fail, and a refusal says why.
pub fn requests(data: &[u8]) {
    let (line, body) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Ok(line) = std::str::from_utf8(line) else { return };
    let Some((method, path)) = line.split_once(' ') else { return };
    SERVED.with(|served| {
        let (mut path, mut body) = (path.to_owned(), String::from_utf8_lossy(body).into_owned());
        for (place, id) in PLACES.iter().zip(&served.ids) {
            (path, body) = (path.replace(place, id), body.replace(place, id));
        }
        let Some((status, reply)) = served.send(method, &path, body.into_bytes()) else { return };
        assert!(status < 500, "{status} {reply}");
        assert!(
            status < 400 || method == "HEAD" || reply["code"].is_string(),
            "{status} without a reason: {reply}"
        );
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn requests_of_the_corpus() {
        super::corpus::feed("requests", super::requests);
    }
}
