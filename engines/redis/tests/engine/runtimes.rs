//! Connections and the runtimes that use them: see the cases, which are those of every server.

// A connection that breaks costs no lock here, so the case of its loss is not for us.
#[allow(dead_code)]
#[path = "../../../../crates/conformance/cases/runtimes.rs"]
mod cases;

use lockkeeper_testkit::Redis;
use std::sync::LazyLock;

static SERVER: LazyLock<Redis> = LazyLock::new(Redis::start);

cases::on_every_server!(SERVER, &["queue", "plain", "redisson", "redisson-rw"]);
