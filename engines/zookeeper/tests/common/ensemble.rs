//! A subject for the conformance suite: an ensemble of three whose leader is killed, again and again, while the cases run.

use lockkeeper_conformance::Subject;
use lockkeeper_testkit::ZooKeeper;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Two thirds of it are longer than an election takes on a busy machine.
const SHORT_TTL: Duration = Duration::from_secs(12);
const BETWEEN_KILLS: Duration = Duration::from_secs(12);

/// Starts the ensemble, for one style.
pub(crate) fn subject(style: &str) -> Subject {
    let ensemble = Arc::new(ZooKeeper::ensemble(3));
    // Two that are down at once are a majority.
    let turn = Arc::new(Mutex::new(()));
    let (killed, again) = (Arc::clone(&ensemble), Arc::clone(&ensemble));
    let (one_turn, other_turn) = (Arc::clone(&turn), turn);
    spawn(move || kill_leaders(&killed, &one_turn));
    Subject::at(format!("{}?style={style}", ensemble.url()))
        .short_ttl(SHORT_TTL)
        .restart(move || restart_in_turn(&again, &other_turn))
        .keep(ensemble)
}

fn kill_leaders(ensemble: &ZooKeeper, turn: &Mutex<()>) {
    loop {
        sleep(BETWEEN_KILLS);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leader) = ensemble.leader() {
            ensemble.servers()[leader].kill();
            eprintln!("killed the leader, member {leader}");
            while ensemble.leader().is_none() {
                sleep(Duration::from_millis(50));
            }
            ensemble.servers()[leader].restart();
        }
    }
}

fn restart_in_turn(ensemble: &ZooKeeper, turn: &Mutex<()>) {
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    ensemble.servers().iter().for_each(|server| server.restart());
}
