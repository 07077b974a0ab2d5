//! What the checker is run on. Only RedLock has a protocol of its own.

use super::{CLIENTS, Leases, RedLock, Restart};
use stateright::{Checker, Model as _};

fn check(model: RedLock) -> impl Checker<RedLock> {
    let finish = stateright::HasDiscoveries::AnyFailures;
    let checker = model.checker().threads(2).symmetry().finish_when(finish).spawn_dfs().join();
    println!("{} states but for who is who, depth {}", checker.unique_state_count(), checker.max_depth());
    checker
}

const WRITER: Option<bool> = Some(false);
const READER: Option<bool> = Some(true);

#[test]
fn with_leases_kept_a_writer_holds_alone_and_tokens_grow() {
    for clients in [[WRITER; 3], [WRITER, READER, READER]] {
        check(RedLock {
            clients,
            leases: Leases::Kept,
            restarts: 0,
            restart: Restart::Delayed,
            lost_replies: 1,
            late_attempts: true,
        })
        .assert_properties();
    }
}

#[test]
fn tokens_grow_even_when_leases_are_broken_and_messages_come_late() {
    // Three who lose replies and come late besides are more states than a test has time for.
    for (clients, lost_replies, late_attempts) in
        [([WRITER; 3], 0, false), ([None, WRITER, WRITER], 1, true), ([None, READER, READER], 1, true)]
    {
        check(RedLock {
            clients,
            leases: Leases::Broken,
            restarts: 0,
            restart: Restart::Delayed,
            lost_replies,
            late_attempts,
        })
        .assert_properties();
    }
}

/// Every node restarts without its data, and a hold that is renewed survives it.
#[test]
fn with_the_delay_a_hold_regains_every_node_that_restarts_and_holds_alone() {
    for clients in [[None, WRITER, WRITER], [None, WRITER, READER]] {
        let checker = check(restarts(clients, Restart::Delayed));
        checker.assert_properties();
    }
}

/// The known danger, and the reason for `restart_delay`: the checker must find the break.
#[test]
fn without_the_delay_a_node_that_forgets_breaks_it() {
    for clients in [[None, WRITER, WRITER], [None, WRITER, READER]] {
        let checker = check(restarts(clients, Restart::AtOnce));
        checker.assert_any_discovery("a writer holds alone");
    }
}

fn restarts(clients: [Option<bool>; CLIENTS], restart: Restart) -> RedLock {
    RedLock { clients, leases: Leases::Kept, restarts: 3, restart, lost_replies: 0, late_attempts: false }
}
