//! The whole suite on a cluster of three whose leader is killed, again and again, while the cases run.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_testkit::Etcd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

fn main() -> ExitCode {
    Suite::new(lockkeeper_etcd::STYLES[0]).mostly_waits().run(|| {
        let cluster = Arc::new(Etcd::cluster(3));
        // One restart at a time: two members that are down at once are a majority.
        let one_at_a_time = Arc::new(Mutex::new(()));
        let (killed, turn) = (Arc::clone(&cluster), Arc::clone(&one_at_a_time));
        spawn(move || kill_leaders(&killed, &turn));
        let again = Arc::clone(&cluster);
        // An election takes one to two seconds, and as long again whenever the two who are left vote for themselves.
        // It must not cost the locks, so a TTL leaves room for several.
        let subject = Subject::at(cluster.url()).short_ttl(lockkeeper::DEFAULT_TTL).fails_over();
        subject.restart(move || restart_in_turn(&again, &one_at_a_time)).keep(cluster)
    })
}

fn restart_in_turn(cluster: &Etcd, turn: &Mutex<()>) {
    let _turn = turn.lock().expect("no restart has failed");
    cluster.servers().iter().for_each(|server| server.restart());
}

fn kill_leaders(cluster: &Etcd, turn: &Mutex<()>) {
    loop {
        // A new leader gives every lease its whole time again, so a dead holder's must be able to end between two, and so
        // must a detached one's, which is half as long again.
        sleep(lockkeeper::DEFAULT_TTL * 2);
        let _turn = turn.lock().expect("no restart has failed");
        if let Some(leader) = cluster.leader() {
            cluster.servers()[leader].kill();
            eprintln!("killed the leader, member {leader}");
            sleep(Duration::from_secs(5));
            cluster.servers()[leader].restart();
        }
    }
}
