//! The conformance suite on both styles: on one server, without and with TLS, and on an ensemble whose leader is killed
//! again and again while the cases run.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::ZooKeeper;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Two thirds of it are longer than a server needs to start again, or an ensemble to elect a leader, on a busy machine:
/// both happen while other cases hold locks.
const SHORT_TTL: Duration = Duration::from_secs(9);
/// A server with TLS starts more slowly.
const SHORT_TTL_TLS: Duration = Duration::from_secs(12);
const BETWEEN_KILLS: Duration = Duration::from_secs(12);

fn main() -> ExitCode {
    let suites =
        lockkeeper_zookeeper::STYLES.iter().map(|style| (style.style, Suite::new(*style).mostly_waits()));
    let mut program = Program::new();
    for (style, suite) in suites.clone() {
        program = program.suite(style, suite, || one_server(style));
    }
    let ensemble = Arc::new(SharedEnsemble::default());
    for (style, suite) in suites.clone() {
        let ensemble = Arc::clone(&ensemble);
        program = program.suite(&format!("ensemble::{style}"), suite, move || ensemble.subject(style));
    }
    for (style, suite) in suites {
        program = program.tls(style, suite, || one_server_with_tls(style));
    }
    program.run()
}

fn one_server(style: &str) -> Subject {
    let server = Arc::new(ZooKeeper::start());
    let again = Arc::clone(&server);
    Subject::at(format!("{}?style={style}", server.url()))
        .short_ttl(SHORT_TTL)
        .restart(move || again.servers()[0].restart())
        .keep(server)
}

fn one_server_with_tls(style: &str) -> Subject {
    let server = Arc::new(ZooKeeper::start_tls());
    let again = Arc::clone(&server);
    Subject::at(format!("{}&style={style}", server.tls_url()))
        .short_ttl(SHORT_TTL_TLS)
        .restart(move || again.restart())
        .keep(server)
}

/// One ensemble for the cases of both styles, which do not see each other's claims.
#[derive(Default)]
struct SharedEnsemble(Mutex<Weak<Ensemble>>);

struct Ensemble {
    members: ZooKeeper,
    /// Held while a member is down: two at once are a majority.
    down: Mutex<()>,
}

impl SharedEnsemble {
    fn subject(&self, style: &str) -> Subject {
        let ensemble = {
            let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let started = Arc::new(Ensemble { members: ZooKeeper::ensemble(3), down: Mutex::new(()) });
                *shared = Arc::downgrade(&started);
                let killed = Arc::downgrade(&started);
                spawn(move || kill_leaders(&killed));
                started
            })
        };
        let again = Arc::clone(&ensemble);
        Subject::at(format!("{}?style={style}", ensemble.members.url()))
            .short_ttl(SHORT_TTL)
            .restart(move || again.restart())
            .keep(ensemble)
    }
}

impl Ensemble {
    fn restart(&self) {
        let _down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        self.members.servers().iter().for_each(|server| server.restart());
    }

    fn kill_leader(&self) {
        let _down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(leader) = self.members.leader() else { return };
        self.members.servers()[leader].kill();
        eprintln!("killed the leader, member {leader}");
        while self.members.leader().is_none() {
            sleep(Duration::from_millis(50));
        }
        self.members.servers()[leader].restart();
    }
}

/// Until the cases have ended.
fn kill_leaders(ensemble: &Weak<Ensemble>) {
    loop {
        sleep(BETWEEN_KILLS);
        let Some(ensemble) = ensemble.upgrade() else { return };
        ensemble.kill_leader();
    }
}
