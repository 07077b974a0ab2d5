//! The suite on five independent servers.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Redis;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    Suite::new(lockkeeper_redlock::STYLES[0]).run(|| {
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let nodes: Arc<Vec<Redis>> = Arc::new((0..5).map(|_| Redis::start_with(&durable)).collect());
        let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        // The servers have just been started and have nothing to forget.
        let url = format!("redlock://{}?restart_delay=0s", hosts.join(","));
        let servers = Arc::clone(&nodes);
        let restart = move || servers.iter().for_each(|node| node.restart());
        Subject::at(url).restart(restart).keep(nodes)
    })
}
