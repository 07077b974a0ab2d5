//! A few words to write small histories with.

use lockkeeper_conformance::checker::{Breach, Promises, Violation, check};
use lockkeeper_conformance::history::{Event, EventKind, History, ReleaseOutcome};

/// A history under construction. Claims, clients and tokens are small numbers; all is about lock 0.
#[derive(Default)]
pub(crate) struct Script {
    history: History,
}

impl Script {
    /// Anything, at any time, by any client.
    pub(crate) fn event(mut self, at_ns: u64, client: u32, claim: u128, kind: EventKind) -> Script {
        self.history.events.push(Event { at_ns, client, lock: 0, claim, kind });
        self
    }

    /// Something the claim's own client sees: the client of the same number.
    pub(crate) fn see(self, at_ns: u64, claim: u32, kind: EventKind) -> Script {
        self.event(at_ns, claim, claim.into(), kind)
    }

    pub(crate) fn invoke(self, at_ns: u64, claim: u32, weight: u32, limit: u32) -> Script {
        self.see(at_ns, claim, EventKind::Invoke { weight, limit })
    }

    pub(crate) fn grant(self, at_ns: u64, claim: u32, token: u64) -> Script {
        self.see(at_ns, claim, EventKind::Granted { token, deadline_ns: u64::MAX })
    }

    pub(crate) fn release(self, at_ns: u64, claim: u32) -> Script {
        self.see(at_ns, claim, EventKind::ReleaseInvoke).released(at_ns + 1, claim)
    }

    pub(crate) fn released(self, at_ns: u64, claim: u32) -> Script {
        self.see(at_ns, claim, EventKind::ReleaseDone { outcome: ReleaseOutcome::Released })
    }

    /// An exclusive claim from its asking to its release.
    pub(crate) fn mutex(self, claim: u32, token: u64, invoke: u64, grant: u64, release: u64) -> Script {
        self.invoke(invoke, claim, 1, 1).grant(grant, claim, token).release(release, claim)
    }

    /// Checks it against everything but liveness.
    pub(crate) fn judge(&self) -> Vec<Violation> {
        self.judge_by(Promises::safety().first_come_first_served())
    }

    pub(crate) fn judge_by(&self, promises: Promises) -> Vec<Violation> {
        check(&self.history, &promises)
    }

    /// The one thing that is wrong, and whose claim it shows at.
    pub(crate) fn only_breach(&self) -> (Breach, u128) {
        only(self.judge())
    }
}

/// The one violation there is.
pub(crate) fn only(mut violations: Vec<Violation>) -> (Breach, u128) {
    assert_eq!(violations.len(), 1, "one violation expected: {violations:#?}");
    let violation = violations.remove(0);
    (violation.breach, violation.party.claim)
}
