//! Judges a run: what the checker finds, what the resource lost, what came late, what was left behind.

use crate::clients::{LEASE, SEVERAL};
use crate::fault::Fault;
use crate::outcome::{Break, Outcome};
use crate::resource::Sums;
use lockkeeper_conformance::checker::{Breach, Promises, Rule, Violation, check};
use lockkeeper_conformance::history::{Event, EventKind, History, ReleaseOutcome};
use std::collections::BTreeMap;
use std::time::Duration;

/// One broken promise.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    /// Whether claims stayed behind, which no rule of the checker covers.
    pub(crate) is_orphan: bool,
    /// Whether it is of a lock that is taken together with another one.
    pub(crate) is_of_several: bool,
    /// For how long there was one holder too many.
    pub(crate) overlap: Duration,
    pub(crate) at_ns: u64,
    pub(crate) text: String,
}

impl Finding {
    fn new(rule: Rule, at_ns: u64, text: String) -> Self {
        Self { rule, is_orphan: false, is_of_several: false, overlap: Duration::ZERO, at_ns, text }
    }

    fn found(violation: &Violation) -> Self {
        Self {
            is_of_several: SEVERAL.contains(&violation.lock),
            overlap: overlap(&violation.breach),
            ..Self::new(violation.rule(), violation.at_ns, violation.to_string())
        }
    }

    pub(crate) fn liveness(at_ns: u64, text: String) -> Self {
        Self::new(Rule::Liveness, at_ns, text)
    }

    pub(crate) fn late(at_ns: u64, what: &str, waited: Duration, fault: Fault) -> Self {
        Self::liveness(
            at_ns,
            format!("{what} was not granted within {:.1} s after {fault}", waited.as_secs_f64()),
        )
    }

    pub(crate) fn orphans(left: String) -> Self {
        Self { is_orphan: true, ..Self::liveness(u64::MAX, format!("left behind: {left}")) }
    }
}

/// How long the newcomer and another holder both believed in their holds.
fn overlap(breach: &Breach) -> Duration {
    let Breach::Overlap { newcomer, beside, .. } = breach else { return Duration::ZERO };
    let others = beside.iter().map(|other| other.until_ns).max().unwrap_or_default();
    Duration::from_nanos(others.min(newcomer.until_ns).saturating_sub(newcomer.from_ns))
}

/// What the checker finds in the history. Claims were in order of arrival wherever their place was seen.
pub(crate) fn judge(history: &History, healed_at_ns: u64, bound: Duration) -> Vec<Finding> {
    let mut found = broken(history);
    // Who waits for one of several locks may rightly leave another one free.
    let singly: History =
        history.events.iter().filter(|event| !SEVERAL.contains(&event.lock)).copied().collect();
    let lively = Promises::safety().lively_within(bound).healed_at(healed_at_ns);
    let stuck = check(&singly, &lively).into_iter().filter(|violation| violation.rule() == Rule::Liveness);
    found.extend(stuck.map(|violation| Finding::found(&violation)));
    found
}

/// What is wrong whatever comes later: of a run that still goes on.
pub(crate) fn broken(history: &History) -> Vec<Finding> {
    let found = check(history, &Promises::safety().first_come_first_served());
    found.iter().map(Finding::found).collect()
}

/// The holds that were lost before their time, of a run in which none may be.
pub(crate) fn losses(history: &History) -> Option<Finding> {
    let is_loss = |event: &&Event| {
        let ended = EventKind::ReleaseDone { outcome: ReleaseOutcome::NotHeld };
        // The end of a fixed lease is none.
        (event.kind == EventKind::Lost || event.kind == ended) && event.lock != LEASE
    };
    let mut lost: BTreeMap<u128, &Event> = BTreeMap::new();
    for event in history.events.iter().filter(is_loss) {
        let first = lost.entry(event.claim).or_insert(event);
        if event.at_ns < first.at_ns {
            *first = event;
        }
    }
    let first = lost.values().min_by_key(|event| event.at_ns)?;
    let text = format!(
        "lock {}: client {} lost its hold, in a fault which holds must outlast ({} of them lost)",
        first.lock,
        first.client,
        lost.len()
    );
    Some(Finding::liveness(first.at_ns, text))
}

/// What the resource that checks tokens must never see.
pub(crate) fn of_resource(sums: &Sums) -> Option<Finding> {
    let text = || format!("{} updates were lost although tokens were checked", sums.lost);
    (sums.lost > 0).then(|| Finding::new(Rule::Effect, u64::MAX, text()))
}

/// Why the findings are not what was stated; `None` if they are.
pub(crate) fn surprise(outcome: Outcome, findings: &[Finding], sums: &Sums) -> Option<String> {
    let Some(stated) = outcome.documented() else {
        return findings.first().map(|finding| finding.text.clone());
    };
    let is_meant = |finding: &&Finding| {
        // Of two locks taken together one may be granted long before both are told: it can be lost and granted again meanwhile.
        let is_late = stated == Break::Overlap && finding.rule == Rule::Token && finding.is_of_several;
        (stated.covers(finding.rule) || is_late) && (!finding.is_orphan || stated == Break::Stuck)
    };
    if let Some(other) = findings.iter().find(|finding| !is_meant(finding)) {
        return Some(other.text.clone());
    }
    let is_seen = match stated.rule() {
        Some(rule) => findings.iter().any(|finding| finding.rule == rule),
        None => sums.lost_unfenced > 0,
    };
    (!is_seen && matches!(outcome, Outcome::KnownBreak(_)))
        .then(|| "the documented break did not happen".to_owned())
}

/// What is counted in a history.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) holds: u64,
    /// Holds that were lost before their time.
    pub(crate) lost: u64,
    /// Claims whose place was seen while they waited.
    pub(crate) placed: u64,
    /// Waits that were given up.
    pub(crate) cancelled: u64,
}

impl Counts {
    pub(crate) fn of(history: &History) -> Self {
        let mut counts = Self::default();
        for event in &history.events {
            match event.kind {
                EventKind::Granted { .. } => counts.holds += 1,
                // The end of a fixed lease is none.
                EventKind::Lost if event.lock != LEASE => counts.lost += 1,
                EventKind::Queued => counts.placed += 1,
                EventKind::Cancelled => counts.cancelled += 1,
                _ => {}
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_conformance::history::Recorder;

    fn two_holders() -> Vec<Finding> {
        let recorder = Recorder::new();
        for client in [1, 2] {
            let claim = recorder.claim(client, 0, client.into());
            claim.invokes(10, 1, 1);
            claim.is_granted(20, client.into(), 90);
            claim.is_lost(95);
        }
        judge(&recorder.history(), 0, Duration::from_secs(1))
    }

    #[test]
    fn a_run_that_differs_either_way_is_a_surprise() {
        let sums = Sums::default();
        let (safe, breaks) = (Outcome::Safe, Outcome::KnownBreak(Break::Overlap));
        assert!(surprise(safe, &two_holders(), &sums).is_some_and(|text| text.contains("the limit is 1")));
        assert_eq!(surprise(breaks, &two_holders(), &sums), None);
        assert!(surprise(breaks, &[], &sums).is_some_and(|text| text.contains("did not happen")));
        assert_eq!(surprise(safe, &[], &sums), None);
        let may = Outcome::MayBreak(Break::Overlap);
        assert_eq!((surprise(may, &two_holders(), &sums), surprise(may, &[], &sums)), (None, None));
        let lost = of_resource(&Sums { lost: 1, ..sums });
        assert!(surprise(breaks, &[two_holders(), vec![lost.expect("a finding")]].concat(), &sums).is_some());
    }

    #[test]
    fn an_overlap_lasts_until_the_first_of_the_two_ends() {
        let longest = two_holders().iter().map(|finding| finding.overlap).max();
        assert_eq!(longest, Some(Duration::from_nanos(70)), "both are granted at 20, until 90");
        assert_eq!(Finding::liveness(0, String::new()).overlap, Duration::ZERO);
    }

    #[test]
    fn a_hold_that_must_outlast_its_fault_is_missed() {
        let recorder = Recorder::new();
        let held = |client, lock| {
            let claim = recorder.claim(client, lock, client.into());
            claim.is_granted(10, client.into(), 90);
            claim
        };
        held(1, 0).release_is_done(20, ReleaseOutcome::Released);
        held(2, LEASE).is_lost(50);
        assert!(
            losses(&recorder.history()).is_none(),
            "a release and the end of a fixed lease are no losses"
        );
        // One that is told, and is then released; and one that nobody looked at before its release.
        let told = held(3, 0);
        told.is_lost(60);
        told.release_is_done(70, ReleaseOutcome::NotHeld);
        held(4, 0).release_is_done(55, ReleaseOutcome::NotHeld);
        let lost = losses(&recorder.history()).expect("a finding");
        assert!(
            lost.at_ns == 55 && lost.text.contains("client 4") && lost.text.contains("2 of them"),
            "{lost:?}"
        );
        assert!(surprise(Outcome::SafeWaits(Duration::from_secs(60)), &[lost], &Sums::default()).is_some());
    }

    #[test]
    fn a_break_of_clients_without_tokens_must_be_seen_at_the_resource() {
        let unfenced = Outcome::KnownBreak(Break::Unfenced);
        assert!(surprise(unfenced, &[], &Sums::default()).is_some());
        assert_eq!(surprise(unfenced, &[], &Sums { lost_unfenced: 1, ..Sums::default() }), None);
        assert!(surprise(unfenced, &two_holders(), &Sums { lost_unfenced: 1, ..Sums::default() }).is_some());
    }

    #[test]
    fn claims_left_behind_are_no_part_of_an_overlap() {
        let orphans = [Finding::orphans("lock-00000: 1 claims".into())];
        assert!(surprise(Outcome::Safe, &orphans, &Sums::default()).is_some());
    }
}
