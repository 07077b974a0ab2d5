//! The sweeps and the slow oracle agree on every small history, right or wrong.

use std::time::Duration;

use lockkeeper_conformance::checker::simulation::simulate;
use lockkeeper_conformance::checker::{Promises, check};
use lockkeeper_conformance::history::{Event, EventKind, History, ReleaseOutcome};
use proptest::collection::vec;
use proptest::option::{self, weighted};
use proptest::prelude::*;

use crate::oracle;
use crate::right::plans;

fn outcome() -> impl Strategy<Value = ReleaseOutcome> {
    use ReleaseOutcome::{NotHeld, Released, Unknown};
    prop_oneof![3 => Just(Released), 1 => Just(NotHeld), 1 => Just(Unknown)]
}

fn invoke() -> impl Strategy<Value = EventKind> {
    let limit = prop_oneof![9 => Just(3), 1 => Just(2)];
    (1_u32..=3, limit).prop_map(|(weight, limit)| EventKind::Invoke { weight, limit })
}

fn grant() -> impl Strategy<Value = EventKind> {
    let deadline_ns = prop_oneof![1_u64..60, Just(u64::MAX)];
    (1_u64..12, deadline_ns).prop_map(|(token, deadline_ns)| EventKind::Granted { token, deadline_ns })
}

fn rare_event() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        grant(),
        (1_u64..70).prop_map(|deadline_ns| EventKind::Renewed { deadline_ns }),
        (1_u32..3).prop_map(|weight| EventKind::Shrunk { weight }),
        Just(EventKind::Lost),
        Just(EventKind::Unknown),
        Just(EventKind::Cancelled),
        Just(EventKind::Expired),
        outcome().prop_map(|outcome| EventKind::ReleaseDone { outcome }),
        (1_u64..12, any::<bool>()).prop_map(|(token, accepted)| EventKind::Effect { token, accepted }),
    ]
}

/// One claim whose events make sense more often than not: (lock, start, offset and kind of each event, and
/// whether the release is a stranger's).
type Sketch = (u32, u64, Vec<(u64, EventKind)>, bool);

fn sketch() -> impl Strategy<Value = Sketch> {
    let parts = (
        weighted(0.95, invoke()),
        weighted(0.6, 0_u64..8),
        weighted(0.8, (0_u64..15, grant())),
        weighted(0.7, 5_u64..30),
        weighted(0.7, (5_u64..40, outcome())),
        option::of((0_u64..40, rare_event())),
    );
    let events = parts.prop_map(|(invoke, queued, grant, release, done, rare)| {
        let queued = queued.map(|offset| (offset, EventKind::Queued));
        let release = release.map(|offset| (offset, EventKind::ReleaseInvoke));
        let done = done.map(|(offset, outcome)| (offset, EventKind::ReleaseDone { outcome }));
        let invoke = invoke.map(|kind| (0, kind));
        [invoke, queued, grant, release, done, rare].into_iter().flatten().collect()
    });
    (0_u32..2, 0_u64..20, events, proptest::bool::weighted(0.1))
}

fn drawn(sketches: Vec<Sketch>) -> History {
    let claims = sketches.into_iter().zip(1_u32..);
    claims
        .flat_map(|((lock, start, events, stranger), number)| {
            events.into_iter().map(move |(offset, kind)| {
                let is_release =
                    matches!(kind, EventKind::ReleaseInvoke | EventKind::ReleaseDone { .. }) && stranger;
                let client = if is_release { 99 } else { number };
                Event { at_ns: start + offset, client, lock, claim: number.into(), kind }
            })
        })
        .collect()
}

fn promises() -> impl Strategy<Value = Promises> {
    (any::<bool>(), option::of(0_u64..30), 0_u64..20).prop_map(|(fifo, bound_ns, healed_at_ns)| {
        let mut promises = Promises::safety().healed_at(healed_at_ns);
        promises.fifo = fifo;
        promises.liveness_bound = bound_ns.map(Duration::from_nanos);
        promises
    })
}

fn assert_agreement(history: &History, promises: &Promises) {
    let violations = check(history, promises);
    assert_eq!(oracle::findings(&violations), oracle::judge(history, promises), "{violations:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_oracle_agrees_on_random_histories(sketches in vec(sketch(), 1..=8), promises in promises()) {
        assert_agreement(&drawn(sketches), &promises);
    }

    #[test]
    fn the_oracle_agrees_on_right_histories(plans in plans(8), limit in 3_u32..6, promises in promises()) {
        assert_agreement(&simulate(&plans, limit), &promises);
    }

    #[test]
    fn the_oracle_agrees_on_histories_with_one_event_out_of_place(
        plans in plans(8),
        limit in 3_u32..6,
        promises in promises(),
        which in any::<prop::sample::Index>(),
        at_ns in option::of(0_u64..100),
    ) {
        let mut history = simulate(&plans, limit);
        let index = which.index(history.events.len());
        let event = history.events.remove(index);
        // A claim that acts before it asks is no history: its owner is not known yet.
        let keep_invoke = matches!(event.kind, EventKind::Invoke { .. });
        let floor = plans[event.client as usize - 1].invoke_at_ns;
        match at_ns {
            Some(at_ns) if !keep_invoke => history.events.push(Event { at_ns: at_ns.max(floor), ..event }),
            _ => {}
        }
        assert_agreement(&history, &promises);
    }
}
