//! The conformance suite on both styles: on one server, without and with TLS, and on an ensemble whose leader is killed
//! again and again while the cases run.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::ZooKeeper;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Two thirds of it are longer than a server needs to start again, or an ensemble to elect a leader, on a busy machine:
/// both happen while other cases hold locks.
const SHORT_TTL: Duration = Duration::from_secs(9);
const BETWEEN_KILLS: Duration = Duration::from_secs(12);

/// Both styles share the servers: they do not see each other's claims.
static SERVER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);
static ENSEMBLE: LazyLock<ZooKeeper> = LazyLock::new(|| {
    spawn(kill_leaders);
    ZooKeeper::ensemble(3)
});
/// Held by whoever stops a member: two that are down at once are a majority.
static DOWN: Mutex<()> = Mutex::new(());

fn main() -> ExitCode {
    let mut program = Program::new();
    for style in lockkeeper_zookeeper::STYLES {
        let (suite, name) = (Suite::new(*style).mostly_waits(), style.style);
        program = program
            .suite(name, suite.clone(), || one_server(name))
            .suite(&format!("ensemble::{name}"), suite.clone(), || ensemble(name))
            .tls(name, suite, || one_server_with_tls(name));
    }
    program.run()
}

fn one_server(style: &str) -> Subject {
    Subject::at(format!("{}?style={style}", SERVER.url()))
        .short_ttl(SHORT_TTL)
        .restart(|| SERVER.servers()[0].restart())
}

fn one_server_with_tls(style: &str) -> Subject {
    let server = Arc::new(ZooKeeper::start_tls());
    let again = Arc::clone(&server);
    Subject::at(format!("{}&style={style}", server.tls_url()))
        .short_ttl(SHORT_TTL)
        .restart(move || again.restart())
        .keep(server)
}

fn ensemble(style: &str) -> Subject {
    Subject::at(format!("{}?style={style}", ENSEMBLE.url())).short_ttl(SHORT_TTL).restart(|| {
        let _down = DOWN.lock().unwrap_or_else(PoisonError::into_inner);
        ENSEMBLE.servers().iter().for_each(|server| server.restart());
    })
}

fn kill_leaders() {
    loop {
        sleep(BETWEEN_KILLS);
        let _down = DOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leader) = ENSEMBLE.leader() {
            ENSEMBLE.servers()[leader].kill();
            eprintln!("killed the leader, member {leader}");
            while ENSEMBLE.leader().is_none() {
                sleep(Duration::from_millis(50));
            }
            ENSEMBLE.servers()[leader].restart();
        }
    }
}
