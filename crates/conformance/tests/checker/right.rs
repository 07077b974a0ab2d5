//! Right histories are accepted, and each way to break one is found.

use std::time::Duration;

use lockkeeper_conformance::checker::simulation::{Ending, Plan, busy_plans, simulate};
use lockkeeper_conformance::checker::{Promises, Rule, check};
use lockkeeper_conformance::history::{Event, EventKind, History, ReleaseOutcome};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::script::Script;

#[test]
fn readers_may_learn_of_their_grants_in_any_order() {
    let script = Script::default().see(11, 1, EventKind::Queued);
    let script = script.invoke(10, 1, 1, 9).grant(50, 1, 1).release(60, 1);
    let script = script.invoke(12, 2, 1, 9).grant(20, 2, 2).release(30, 2);
    assert_eq!(script.judge(), []);
}

#[test]
fn a_writer_that_shrinks_lets_readers_in() {
    let script = Script::default().invoke(10, 1, 9, 9).grant(20, 1, 1).release(60, 1);
    let script = script.see(30, 1, EventKind::Shrunk { weight: 1 });
    let script = script.invoke(12, 2, 1, 9).grant(40, 2, 2).release(50, 2);
    assert_eq!(script.judge(), []);
}

#[test]
fn an_unknown_outcome_is_never_a_hold() {
    let script = Script::default().invoke(10, 1, 1, 1).see(20, 1, EventKind::Unknown);
    let script = script.mutex(2, 5, 15, 25, 40).release(50, 1);
    assert_eq!(script.judge(), []);
}

#[test]
fn a_retry_may_find_its_claim_granted_after_an_unknown_outcome() {
    let script = Script::default().see(15, 1, EventKind::Unknown).mutex(1, 1, 10, 20, 30);
    assert_eq!(script.grant(25, 1, 1).judge(), [], "'already yours' comes with the same token");
}

#[test]
fn a_reply_after_its_deadline_is_never_a_hold() {
    let script = Script::default().invoke(10, 1, 1, 1);
    let script = script.see(40, 1, EventKind::Granted { token: 1, deadline_ns: 35 });
    assert_eq!(script.mutex(2, 2, 10, 38, 60).judge(), []);
}

#[test]
fn a_renewal_that_comes_at_the_deadline_is_too_late() {
    let script = Script::default().invoke(10, 1, 1, 1);
    let script = script.see(20, 1, EventKind::Granted { token: 1, deadline_ns: 30 });
    let script = script.see(30, 1, EventKind::Renewed { deadline_ns: 90 });
    assert_eq!(script.mutex(2, 2, 10, 40, 60).judge(), [], "a dead claim stays dead");
}

#[test]
fn a_late_release_may_find_the_claim_while_nobody_followed() {
    let script = Script::default().invoke(10, 1, 1, 1).grant(20, 1, 1).see(30, 1, EventKind::Lost);
    let script = script.release(40, 1).mutex(2, 2, 10, 50, 60);
    assert_eq!(script.judge(), []);
}

#[test]
fn a_late_release_that_finds_nothing_is_right_after_a_successor() {
    let not_held = EventKind::ReleaseDone { outcome: ReleaseOutcome::NotHeld };
    let script = Script::default().invoke(10, 1, 1, 1).grant(20, 1, 1).see(30, 1, EventKind::Lost);
    let script = script.mutex(2, 2, 10, 50, 80).see(60, 1, EventKind::ReleaseInvoke).see(61, 1, not_held);
    assert_eq!(script.judge(), []);
}

#[test]
fn who_gave_up_was_not_overtaken() {
    for end in [EventKind::Cancelled, EventKind::Expired, EventKind::Unknown] {
        let waiter = Script::default().invoke(10, 1, 1, 1).see(11, 1, EventKind::Queued).see(60, 1, end);
        assert_eq!(waiter.mutex(2, 1, 12, 20, 30).judge(), []);
    }
}

#[test]
fn an_empty_history_is_right() {
    assert_eq!(check(&History::default(), &every_promise()), []);
}

#[test]
fn a_history_of_a_million_events_is_right() {
    let history = simulate(&busy_plans(180_000, 16, 4, 1), 4);
    assert!(history.events.len() >= 1_000_000);
    let promises = Promises::safety().first_come_first_served().lively_within(Duration::from_millis(1));
    assert_eq!(check(&history, &promises), []);
}

fn every_promise() -> Promises {
    // Longer than any of the small histories: here only waits without end are a fault.
    Promises::safety().first_come_first_served().lively_within(Duration::from_micros(10))
}

fn ending() -> impl Strategy<Value = Ending> {
    use Ending::*;
    let rare = select(vec![ShrinkAndRelease, Lose, ReleaseLate, GiveUp, NoReply]);
    prop_oneof![1 => Just(Release), 1 => rare]
}

/// Plans with such short times that many things happen at once. They ask for at most 3.
pub(crate) fn plans(at_most: usize) -> impl Strategy<Value = Vec<Plan>> {
    let parts = (0_u32..2, 0_u64..60, 1_u32..=3, 0_u64..6, 0_u64..20, 0_u64..20, ending());
    let plan = parts.prop_map(|(lock, invoke_at_ns, weight, request_ns, reply_ns, hold_ns, ending)| Plan {
        lock,
        invoke_at_ns,
        weight,
        request_ns,
        reply_ns,
        hold_ns,
        ending,
    });
    vec(plan, 1..=at_most)
}

/// A way to break the history of a mutex, given two claims of which the first was granted first. False if it
/// cannot be done to these two.
type Sabotage = fn(&mut History, u128, u128) -> bool;

const SABOTAGES: [(&str, Rule, Sabotage); 10] = [
    ("give a token twice", Rule::Token, |history, first, second| {
        let token = token(history, first);
        set_token(history, second, token)
    }),
    ("swap two tokens", Rule::Token, |history, first, second| {
        let tokens = (token(history, first), token(history, second));
        set_token(history, first, tokens.1) && set_token(history, second, tokens.0)
    }),
    ("grant both at once", Rule::Exclusion, |history, first, second| {
        let at_ns = granted(history, first).at_ns;
        granted(history, second).at_ns = at_ns;
        true
    }),
    ("never release", Rule::Exclusion, |history, first, _| {
        history.events.retain(|event| event.claim != first || event.kind != EventKind::ReleaseInvoke);
        true
    }),
    ("serve the second in the first one's place", Rule::Order, serve_in_place_of),
    ("let a stranger release", Rule::Release, |history, first, _| {
        let own = |event: &&mut Event| event.claim == first && is_done(event);
        history.events.iter_mut().filter(own).for_each(|event| event.client += 1);
        true
    }),
    ("release twice", Rule::Release, |history, first, _| {
        let done = history.events.iter().find(|event| event.claim == first && is_done(event)).copied();
        history.events.extend(done);
        true
    }),
    ("release without a grant", Rule::Release, |history, first, _| {
        history.events.retain(|event| event.claim != first || !is_granted(event));
        true
    }),
    ("forget a waiter", Rule::Liveness, |history, first, _| {
        let early = |event: &Event| matches!(event.kind, EventKind::Invoke { .. } | EventKind::Queued);
        history.events.retain(|event| event.claim != first || early(event));
        true
    }),
    ("accept a stale token", Rule::Effect, |history, first, second| {
        let stale = EventKind::Effect { token: token(history, first), accepted: true };
        let last_ns = history.events.iter().map(|event| event.at_ns).max().unwrap_or(0);
        let event = *granted(history, second);
        history.events.push(Event { at_ns: last_ns + 1, kind: stale, ..event });
        true
    }),
];

/// Exchanges all that came after the waiting. Tokens and times stay as they were: only the order is wrong.
fn serve_in_place_of(history: &mut History, first: u128, second: u128) -> bool {
    let at = |claim: u128, wanted: fn(&Event) -> bool| {
        history.events.iter().find(|event| event.claim == claim && wanted(event)).map(|event| event.at_ns)
    };
    let queued_at_ns = at(first, |event| event.kind == EventKind::Queued);
    let invoked_at_ns = at(second, |event| matches!(event.kind, EventKind::Invoke { .. }));
    if queued_at_ns >= invoked_at_ns {
        return false;
    }
    for event in &mut history.events {
        let waits = matches!(event.kind, EventKind::Invoke { .. } | EventKind::Queued);
        let other = match event.claim {
            _ if waits => continue,
            claim if claim == first => second,
            claim if claim == second => first,
            _ => continue,
        };
        event.claim = other;
        event.client = other as u32;
    }
    true
}

fn is_done(event: &Event) -> bool {
    matches!(event.kind, EventKind::ReleaseDone { .. })
}

fn is_granted(event: &Event) -> bool {
    matches!(event.kind, EventKind::Granted { .. })
}

fn granted(history: &mut History, claim: u128) -> &mut Event {
    let own = |event: &&mut Event| event.claim == claim && is_granted(event);
    history.events.iter_mut().find(own).expect("every claim is granted")
}

fn token(history: &mut History, claim: u128) -> u64 {
    match granted(history, claim).kind {
        EventKind::Granted { token, .. } => token,
        _ => unreachable!("only grants are looked for"),
    }
}

fn set_token(history: &mut History, claim: u128, token: u64) -> bool {
    granted(history, claim).kind = EventKind::Granted { token, deadline_ns: u64::MAX };
    true
}

/// Two claims, the one granted first first.
fn two_claims(history: &History, one: Index, other: Index) -> Option<(u128, u128)> {
    let granted: Vec<u128> =
        history.events.iter().filter(|event| is_granted(event)).map(|event| event.claim).collect();
    let (one, other) = (one.index(granted.len()), other.index(granted.len()));
    (one != other).then(|| (granted[one.min(other)], granted[one.max(other)]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_simulated_history_is_right(plans in plans(40), limit in 3_u32..8) {
        prop_assert_eq!(check(&simulate(&plans, limit), &every_promise()), []);
    }

    #[test]
    fn every_sabotage_is_found(mut plans in plans(12), one: Index, other: Index, which: Index) {
        for plan in &mut plans {
            *plan = Plan { lock: 0, weight: 1, hold_ns: plan.hold_ns + 1, ending: Ending::Release, ..*plan };
        }
        let mut history = simulate(&plans, 1);
        let (name, rule, sabotage) = SABOTAGES[which.index(SABOTAGES.len())];
        let pair = two_claims(&history, one, other);
        prop_assume!(pair.is_some_and(|(first, second)| sabotage(&mut history, first, second)));
        let violations = check(&history, &every_promise());
        prop_assert!(violations.iter().any(|violation| violation.rule() == rule), "{}: {:?}", name, violations);
    }
}
