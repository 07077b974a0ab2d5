//! The suite on a cluster of three masters, in the styles whose messages take different ways there.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_testkit::RedisCluster;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut program = Program::new();
    // The style 'queue' publishes to all members, the 'redisson' ones to those that have the slot.
    let styles = lockkeeper_redis::STYLES;
    for (part, abilities) in [("", styles[0]), ("redisson", styles[2]), ("redisson-rw", styles[3])] {
        let suite = Suite::new(abilities).cannot(
            "tokens::grow_after_a_restart",
            "the members keep nothing on disk; the suite on one server restarts it with its data",
        );
        let suite = suite
            .cannot(
                "away::a_wait_learns_that_the_server_is_away_and_outlives_a_short_absence",
                "the client learns the members' own addresses, which no proxy stands before",
            )
            .cannot(
                "away::a_wait_outlives_the_reset_of_every_connection",
                "the client learns the members' own addresses, which no proxy stands before",
            );
        program = program.suite(part, suite, move || {
            let cluster = RedisCluster::start();
            Subject::at(format!("{}?style={}", cluster.url(), abilities.style)).keep(cluster)
        });
    }
    program.run()
}
