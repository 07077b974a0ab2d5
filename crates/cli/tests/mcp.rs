//! `lockkeeper mcp` as an agent meets it: JSON-RPC, one message on each line.

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use support::Place;

struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Agent {
    fn start(place: &Place) -> Self {
        let mut command = place.lockkeeper(["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()).lines());
        let mut agent = Self { child, input, output, last: 0 };
        let client = json!({"name": "tester", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let info = agent.request("initialize", hello);
        assert_eq!(info["serverInfo"]["name"], "lockkeeper", "{info}");
        assert!(info["instructions"].as_str().unwrap().contains("acquire a lock"), "{info}");
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        self.last
    }

    fn reply(&mut self, id: u64) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.reply(id)
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The result of a call that succeeds.
    fn tool(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    /// The text of a call that fails.
    fn error(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_agent_acquires_renews_and_releases() {
    let place = Place::new();
    let (mut one, mut two) = (Agent::start(&place), Agent::start(&place));
    let first = one.tool("acquire", json!({"name": "repo/main"}));
    assert_eq!((&first["acquired"], &first["hold"]["state"]), (&json!(true), &json!("held")));
    assert_eq!(place.status(["run", "--no-wait", "repo/main", "--", "true"]).0, 75);

    let busy = two.tool("acquire", json!({"name": "repo/main", "wait_seconds": 0}));
    assert_eq!(busy["acquired"], false);
    assert!(busy["held_by"].as_str().unwrap().starts_with("tester ("), "{busy}");

    let waits = two.begin(
        "tools/call",
        json!({"name": "acquire", "arguments": {"name": "repo/main", "mode": "shared"}}),
    );
    let renewed = one.tool("renew", json!({"hold": first["hold"]["hold"], "hold_seconds": 3600}));
    assert!(renewed["until"].as_str() > first["hold"]["until"].as_str(), "{renewed}");
    one.tool("release", json!({"hold": first["hold"]["hold"]}));
    let second = two.reply(waits)["structuredContent"].clone();
    assert!(second["hold"]["token"].as_u64() > first["hold"]["token"].as_u64(), "{second}");
    assert!(one.error("release", json!({"hold": first["hold"]["hold"]})).contains("there is no hold '1'"));
    one.end();
    two.end();
}

#[test]
fn a_hold_ends_in_time_and_with_the_agent() {
    let place = Place::new();
    let mut one = Agent::start(&place);
    one.tool("acquire", json!({"name": "short", "hold_seconds": 1}));
    one.tool("acquire", json!({"name": "long"}));
    assert_eq!(place.status(["run", "--wait", "20s", "short", "--", "true"]).0, 0);
    let listed = one.tool("list", json!({}));
    assert_eq!(listed["holds"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["locks"][0]["name"], "long");
    one.end();
    assert_eq!(place.status(["run", "--no-wait", "long", "--", "true"]).0, 0);
}

#[test]
fn a_lost_lock_is_told() {
    let place = Place::new();
    let mut one = Agent::start(&place);
    let hold = one.tool("acquire", json!({"name": "taken"}))["hold"]["hold"].clone();
    let (status, error) = place.status(["evict", "--yes", "taken"]);
    assert_eq!(status, 0, "{error}");
    // The holder learns it at its next renewal at the latest.
    while one.tool("list", json!({}))["holds"][0]["state"] != "lost" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let error = one.error("renew", json!({"hold": hold}));
    assert!(error.contains("the lock taken is lost: somebody else may hold it. Stop"), "{error}");
    assert!(one.error("release", json!({"hold": hold})).contains("lost"));
    assert_eq!(one.tool("list", json!({}))["holds"], json!([]));
    one.end();
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let mut one = Agent::start(&place);
    for (arguments, says) in [
        (json!({"name": ""}), "name"),
        (
            json!({"name": "x", "mode": "5/4"}),
            "mode is 'exclusive', 'shared' or permits such as '1/4', not '5/4'",
        ),
        (json!({"name": "x", "hold_seconds": 0}), "hold_seconds is from 1 to 86400, not 0"),
        (json!({"name": "x", "wait_seconds": 100_000}), "wait_seconds is from 0 to 3600, not 100000"),
    ] {
        let error = one.error("acquire", arguments.clone());
        assert!(error.contains(says), "{arguments}: {error}");
    }
    assert!(one.error("renew", json!({"hold": "x"})).contains("there is no hold 'x'"));
    assert_eq!(one.tool("list", json!({}))["locks"], json!([]), "nothing is left behind");
    one.end();
}

#[test]
fn a_cancelled_wait_leaves_the_queue() {
    let place = Place::new();
    let (mut one, mut two) = (Agent::start(&place), Agent::start(&place));
    let hold = one.tool("acquire", json!({"name": "x"}))["hold"]["hold"].clone();
    let waits =
        two.begin("tools/call", json!({"name": "acquire", "arguments": {"name": "x", "wait_seconds": 3600}}));
    let claims =
        |agent: &mut Agent| agent.tool("list", json!({}))["locks"][0]["claims"].as_array().unwrap().len();
    while claims(&mut one) < 2 {}
    two.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waits}}));
    while claims(&mut one) > 1 {}
    one.tool("release", json!({"hold": hold}));
    one.end();
    two.end();
}
