//! One small history for each thing that can be wrong.

use std::time::Duration;

use lockkeeper_conformance::checker::{Breach, Promises, TokenRule};
use lockkeeper_conformance::history::{EventKind, ReleaseOutcome};

use crate::script::{Script, only};

#[test]
fn two_writers_overlap() {
    let script = Script::default().mutex(1, 1, 10, 20, 50).mutex(2, 2, 10, 40, 60);
    let (breach, claim) = script.only_breach();
    assert!(matches!(breach, Breach::Overlap { held: 2, limit: 1, .. }), "{breach:?}");
    assert_eq!(claim, 2);
    let told = script.judge()[0].to_string();
    assert_eq!(
        told,
        "lock 0, at 0.000000040 s: claim 2 of client 2 (token 2, weight 1, held from 0.000000040 s to \
         0.000000060 s) was granted beside claim 1 of client 1 (token 1, weight 1, held from 0.000000020 s to \
         0.000000050 s); 2 are held, but the limit is 1"
    );
}

#[test]
fn a_renewed_hold_overlaps_what_comes_after_its_first_deadline() {
    let script = Script::default()
        .invoke(10, 1, 1, 1)
        .see(20, 1, EventKind::Granted { token: 1, deadline_ns: 30 })
        .see(25, 1, EventKind::Renewed { deadline_ns: 45 })
        .mutex(2, 2, 10, 40, 60);
    assert!(matches!(script.only_breach(), (Breach::Overlap { .. }, 2)));
}

#[test]
fn a_reader_overlaps_a_writer() {
    let script = Script::default().invoke(10, 1, 100, 100).grant(20, 1, 1).release(50, 1);
    let script = script.invoke(11, 2, 1, 100).grant(30, 2, 2).release(60, 2);
    assert!(matches!(script.only_breach(), (Breach::Overlap { held: 101, limit: 100, .. }, 2)));
}

#[test]
fn permits_exceed_the_limit() {
    let mut script = Script::default();
    for claim in 1..=3 {
        script = script.invoke(10, claim, 2, 5).grant(20 + u64::from(claim), claim, claim.into());
        script = script.release(50 + u64::from(claim), claim);
    }
    let (breach, claim) = script.only_breach();
    assert!(matches!(&breach, Breach::Overlap { held: 6, limit: 5, beside, .. } if beside.len() == 2));
    assert_eq!(claim, 3);
}

#[test]
fn holders_disagree_on_the_limit() {
    let script = Script::default().invoke(10, 1, 1, 4).grant(20, 1, 1).release(50, 1);
    let script = script.invoke(11, 2, 1, 5).grant(30, 2, 2).release(60, 2);
    let (breach, claim) = script.only_breach();
    assert!(matches!(breach, Breach::MixedLimits { newcomer_limit: 5, oldest_limit: 4, .. }));
    assert_eq!(claim, 2);
}

#[test]
fn a_token_is_given_twice() {
    let script = Script::default().mutex(1, 7, 10, 20, 30).mutex(2, 7, 15, 40, 50);
    assert!(matches!(script.only_breach(), (Breach::DuplicateToken { .. }, 2)));
}

#[test]
fn a_token_goes_back_for_one_who_asked_after_the_reply() {
    let readers = Script::default().invoke(10, 1, 1, 9).grant(20, 1, 8).release(60, 1);
    let script = readers.invoke(21, 2, 1, 9).grant(30, 2, 7).release(50, 2);
    let (breach, claim) = script.only_breach();
    assert!(matches!(breach, Breach::TokenWentBack { rule: TokenRule::RepliedBefore, .. }));
    assert_eq!(claim, 2);
}

#[test]
fn swapped_tokens_of_two_who_asked_together_go_back() {
    // Both asked before either was granted: the order of replies and asking alone does not see it.
    let script = Script::default().mutex(1, 8, 10, 20, 30).mutex(2, 7, 11, 40, 50);
    let (breach, claim) = script.only_breach();
    assert!(matches!(breach, Breach::TokenWentBack { rule: TokenRule::HeldBefore, .. }));
    assert_eq!(claim, 2);
}

#[test]
fn a_queued_writer_is_overtaken() {
    let script = Script::default().see(12, 1, EventKind::Queued);
    let script = script.mutex(1, 2, 10, 50, 60).mutex(2, 1, 13, 20, 30);
    let (breach, claim) = script.only_breach();
    assert!(matches!(breach, Breach::Overtaken { queued_at_ns: 12, by_invoked_at_ns: 13, .. }));
    assert_eq!(claim, 1);
    assert_eq!(script.judge_by(Promises::safety()), [], "an engine that promises no order may do so");
}

#[test]
fn a_large_want_of_permits_is_overtaken_by_a_small_one() {
    // 2 of 4 are held; 3 wait; 1 slips past. The two would fit together, but not beside the holder.
    let script = Script::default().invoke(1, 1, 2, 4).grant(2, 1, 1).release(40, 1);
    let script = script.invoke(10, 2, 3, 4).see(11, 2, EventKind::Queued).grant(45, 2, 3).release(60, 2);
    let script = script.invoke(12, 3, 1, 4).grant(20, 3, 2).release(30, 3);
    assert!(matches!(script.only_breach(), (Breach::Overtaken { held: 3, limit: 4, .. }, 2)));
}

#[test]
fn a_stranger_releases() {
    let done = EventKind::ReleaseDone { outcome: ReleaseOutcome::Released };
    let script = Script::default().invoke(10, 1, 1, 1).grant(20, 1, 1).event(30, 2, 1, done);
    assert!(matches!(script.only_breach(), (Breach::ReleasedByStranger { stranger: 2 }, 1)));
}

#[test]
fn a_claim_is_released_that_was_never_granted() {
    let script = Script::default().invoke(10, 1, 1, 1).release(30, 1);
    assert!(matches!(script.only_breach(), (Breach::ReleasedUnheld, 1)));
}

#[test]
fn a_claim_is_released_twice() {
    let script = Script::default().mutex(1, 1, 10, 20, 30).released(40, 1);
    assert!(matches!(script.only_breach(), (Breach::ReleasedTwice { first_at_ns: 31 }, 1)));
}

#[test]
fn a_lost_claim_releases_its_successor() {
    let script = Script::default().invoke(10, 1, 1, 1).grant(20, 1, 1).see(30, 1, EventKind::Lost);
    let script = script.mutex(2, 2, 10, 40, 90).release(50, 1);
    assert!(matches!(script.only_breach(), (Breach::ReleasedAfterSuccessor { .. }, 1)));
}

#[test]
fn a_grant_past_its_deadline_releases_its_successor() {
    let script = Script::default().invoke(10, 1, 1, 1);
    let script = script.see(20, 1, EventKind::Granted { token: 1, deadline_ns: 30 });
    let script = script.mutex(2, 2, 10, 40, 90).release(50, 1);
    assert!(matches!(script.only_breach(), (Breach::ReleasedAfterSuccessor { .. }, 1)));
}

#[test]
fn a_claim_is_granted_that_never_asked() {
    assert!(matches!(Script::default().grant(20, 1, 1).only_breach(), (Breach::GrantedUnasked, 1)));
}

#[test]
fn a_claim_is_granted_with_two_tokens() {
    let script = Script::default().invoke(10, 1, 1, 1).grant(20, 1, 1).grant(30, 1, 2);
    assert!(matches!(script.only_breach(), (Breach::GrantedTwice { first_token: 1, second_token: 2 }, 1)));
}

#[test]
fn a_dead_claim_is_granted() {
    for death in [EventKind::Cancelled, EventKind::Expired] {
        let script = Script::default().invoke(10, 1, 1, 1).see(15, 1, death).grant(20, 1, 1);
        assert!(matches!(script.only_breach(), (Breach::GrantedAfterDeath { died_at_ns: 15 }, 1)));
    }
}

#[test]
fn a_waiter_is_stuck_at_a_free_lock() {
    let script = Script::default().mutex(1, 1, 10, 20, 30).mutex(2, 2, 15, 90, 95);
    let lively = |nanoseconds| Promises::safety().lively_within(Duration::from_nanos(nanoseconds));
    let (breach, claim) = only(script.judge_by(lively(59)));
    assert!(matches!(breach, Breach::StuckWaiter { invoked_at_ns: 15, free_from_ns: 30 }), "{breach:?}");
    assert_eq!(claim, 2);
    assert_eq!(script.judge_by(lively(60)), [], "the bound itself is allowed");
    assert_eq!(script.judge_by(lively(59).healed_at(40)), [], "before the heal nothing is expected");
}

#[test]
fn a_wait_never_ends() {
    let script = Script::default().mutex(1, 1, 10, 20, 90).invoke(15, 2, 1, 1);
    let promises = Promises::safety().lively_within(Duration::from_nanos(50));
    assert!(matches!(only(script.judge_by(promises)), (Breach::NeverEnded { invoked_at_ns: 15 }, 2)));
}

#[test]
fn a_stale_effect_is_accepted() {
    let effect = |token, accepted| EventKind::Effect { token, accepted };
    let script = Script::default().see(10, 1, effect(1, true)).see(20, 2, effect(2, true));
    let script = script.see(25, 1, effect(1, false)).see(30, 1, effect(1, true));
    assert!(matches!(script.only_breach(), (Breach::StaleEffect { token: 1, highest_token: 2, .. }, 1)));
}

#[test]
fn violations_come_in_order_of_time_whatever_the_order_of_events() {
    let one = Script::default().mutex(1, 1, 10, 20, 50).mutex(2, 2, 10, 40, 60).mutex(3, 1, 55, 70, 80);
    let other = Script::default().mutex(3, 1, 55, 70, 80).mutex(2, 2, 10, 40, 60).mutex(1, 1, 10, 20, 50);
    assert_eq!(one.judge(), other.judge());
    assert!(one.judge().is_sorted_by_key(|violation| violation.at_ns));
}
