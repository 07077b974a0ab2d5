//! The conformance suite on both styles: on one server, without and with TLS, and on an ensemble whose leader is killed
//! again and again while the cases run.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_core::Abilities;
use lockkeeper_testkit::ZooKeeper;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// No case stops the server.
const SHORT_TTL: Duration = Duration::from_secs(5);
/// Two thirds of it are longer than an ensemble needs to elect a leader on a busy machine.
const SHORT_TTL_ENSEMBLE: Duration = Duration::from_secs(9);
const BETWEEN_KILLS: Duration = Duration::from_secs(12);

fn main() -> ExitCode {
    let suites = lockkeeper_zookeeper::STYLES.iter().map(|style| (style.style, suite(*style)));
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

/// A restart takes seconds, which every hold of the other cases would have to outlive: it has servers of its own, so that the
/// TTL of these cases can be short.
fn suite(style: Abilities) -> Suite {
    let elsewhere = "it runs on servers of its own, in tests/engine/restart.rs";
    Suite::new(style).mostly_waits().cannot("tokens::grow_after_a_restart", elsewhere)
}

fn one_server(style: &str) -> Subject {
    let server = ZooKeeper::start();
    Subject::at(format!("{}?style={style}", server.url())).short_ttl(SHORT_TTL).keep(server)
}

fn one_server_with_tls(style: &str) -> Subject {
    let server = ZooKeeper::start_tls();
    Subject::at(format!("{}&style={style}", server.tls_url())).short_ttl(SHORT_TTL).keep(server)
}

/// One ensemble for the cases of both styles, which do not see each other's claims.
#[derive(Default)]
struct SharedEnsemble(Mutex<Weak<ZooKeeper>>);

impl SharedEnsemble {
    fn subject(&self, style: &str) -> Subject {
        let ensemble = {
            let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let started = Arc::new(ZooKeeper::ensemble(3));
                *shared = Arc::downgrade(&started);
                let killed = Arc::downgrade(&started);
                spawn(move || kill_leaders(&killed));
                started
            })
        };
        let subject = Subject::at(format!("{}?style={style}", ensemble.url()));
        subject.short_ttl(SHORT_TTL_ENSEMBLE).fails_over().keep(ensemble)
    }
}

/// Until the cases have ended.
fn kill_leaders(ensemble: &Weak<ZooKeeper>) {
    loop {
        sleep(BETWEEN_KILLS);
        let Some(ensemble) = ensemble.upgrade() else { return };
        let leader = ensemble.kill_leader();
        eprintln!("killed the leader, member {leader}");
        while ensemble.leader().is_none() {
            sleep(Duration::from_millis(50));
        }
        ensemble.servers()[leader].restart();
        while ensemble.leader().is_none() {
            sleep(Duration::from_millis(50));
        }
    }
}
