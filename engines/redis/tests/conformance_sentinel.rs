//! The suite on one master with two replicas and three sentinels, who fail over while the cases run.
//!
//! An asynchronous failover may lose what was acknowledged a moment before, and then no suite can hold (`topologies`
//! shows it). So writes are held back until a replica has everything, as an operator does who fails over by plan: no case is
//! excluded, and all must get over the change of the master.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::Sentinel;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Longer than a failover takes on a busy machine.
const SHORT_TTL: Duration = Duration::from_secs(8);
/// The first cases have begun by then, and most have not.
const INTO_THE_SUITE: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let styles = lockkeeper_redis::STYLES;
    let mut program = Program::new();
    for (part, abilities) in [("", styles[0]), ("redisson", styles[2]), ("redisson-rw", styles[3])] {
        let suite = Suite::new(abilities)
            .mostly_waits()
            .cannot(
                "away::a_wait_learns_that_the_server_is_away_and_outlives_a_short_absence",
                "the client learns the master's own address, which no proxy stands before",
            )
            .cannot(
                "away::a_wait_outlives_the_reset_of_every_connection",
                "the client learns the master's own address, which no proxy stands before",
            );
        program = program.suite(part, suite, move || failing_over(abilities.style));
    }
    program.run()
}

fn failing_over(style: &str) -> Subject {
    let sentinel = Arc::new(Sentinel::start());
    let turn = Arc::new(Mutex::new(()));
    let (first, first_turn) = (Arc::clone(&sentinel), Arc::clone(&turn));
    spawn(move || {
        sleep(INTO_THE_SUITE);
        fail_over(&first, &first_turn);
    });
    let again = Arc::clone(&sentinel);
    Subject::at(format!("{}?style={style}", sentinel.url()))
        .short_ttl(SHORT_TTL)
        .fails_over()
        .restart(move || fail_over(&again, &turn))
        .keep(sentinel)
}

/// Makes a replica the master that has everything the old one has acknowledged.
fn fail_over(sentinel: &Sentinel, turn: &Mutex<()>) {
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", sentinel.master_port())).unwrap();
    let mut master = client.get_connection().unwrap();
    let _: () = redis::cmd("CLIENT").arg(&["PAUSE", "20000", "WRITE"]).query(&mut master).unwrap();
    while !replicas_have_everything(&mut master) {
        sleep(Duration::from_millis(5));
    }
    let port = sentinel.failover();
    // A write that is let go before the old master follows the new one would be acknowledged and then lost.
    while is_master(&mut master) {
        sleep(Duration::from_millis(5));
    }
    let _: redis::RedisResult<()> = redis::cmd("CLIENT").arg("UNPAUSE").query(&mut master);
    eprintln!("failed over to {port}");
}

/// Whether the server calls itself a master; one that has ended the connection has changed its role.
fn is_master(server: &mut redis::Connection) -> bool {
    let info: redis::RedisResult<String> = redis::cmd("INFO").arg("replication").query(server);
    info.is_ok_and(|info| info.contains("role:master"))
}

/// Whether both replicas have what the master has, by its own INFO.
fn replicas_have_everything(master: &mut redis::Connection) -> bool {
    let info: String = redis::cmd("INFO").arg("replication").query(master).unwrap();
    let own = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    let theirs = info.lines().filter(|line| line.starts_with("slave"));
    let own = own.expect("a master tells its offset").trim();
    theirs.filter(|line| line.contains(&format!(",offset={own},"))).count() >= 2
}
