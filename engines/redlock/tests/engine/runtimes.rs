//! Connections and the runtimes that use them: see the cases, which are those of every server.

// A connection that breaks costs no lock here, so the case of its loss is not for us.
#[allow(dead_code)]
#[path = "../../../../crates/conformance/cases/runtimes.rs"]
mod cases;

use lockkeeper_testkit::Redis;
use std::sync::LazyLock;

static SERVERS: LazyLock<Servers> = LazyLock::new(|| Servers(Redis::start_many(3)));

struct Servers(Vec<Redis>);

impl Servers {
    fn url(&self) -> String {
        let hosts: Vec<String> = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redlock://{}", hosts.join(","))
    }
}

cases::on_every_server!(SERVERS, &["plain"]);
