//! The runtimes cases of every server.

// A connection that breaks costs no lock here, so the case of its loss is not for this engine.
#[allow(dead_code)]
#[path = "../../../../crates/conformance/cases/runtimes.rs"]
mod cases;

use lockkeeper_testkit::Etcd;
use std::sync::LazyLock;

static SERVER: LazyLock<Etcd> = LazyLock::new(Etcd::start);

cases::on_every_server!(SERVER, &["queue"]);
