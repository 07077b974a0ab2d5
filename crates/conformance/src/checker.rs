//! Judges a recorded history against what a lock promises, in near-linear time.
//!
//! The checks rest on one idea: what a client *believes* lies inside what the engine *grants*. A **certain
//! hold** runs from the moment a grant's reply arrived to the earliest of the release's sending, the lost
//! signal and the deadline. If two certain holds overlap, the engine granted both at once; if they do not, the
//! history accuses nobody, whatever the delays. So a violation is a proof, never a suspicion.

mod claims;
mod effects;
mod exclusion;
mod holds;
mod liveness;
mod order;
mod releases;
mod report;
pub mod simulation;
mod story;
mod tokens;
mod tools;
mod violation;

use std::time::Duration;

use crate::history::History;
pub use violation::{Breach, Holder, Party, Rule, TokenRule, Violation};

/// What the locks of a history promise beyond safety, which is always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// Whether claims are served first come, first served.
    pub fifo: bool,
    /// How long a lock may stay free while somebody waits for it; also asks that every wait ends.
    pub liveness_bound: Option<Duration>,
    /// Liveness is judged from here on: before it, a fault may have stopped everything.
    pub healed_at_ns: u64,
}

impl Promises {
    /// Safety only: exclusion, tokens, releases, effects.
    pub fn safety() -> Promises {
        Promises::default()
    }

    /// Claims are also served first come, first served.
    pub fn first_come_first_served(self) -> Promises {
        Promises { fifo: true, ..self }
    }

    /// A lock that somebody waits for is also never free for longer than `bound`, and every wait ends.
    ///
    /// The bound must cover what may pass between one client's belief and the next one's: the margin of the
    /// deadline, the lifetime of claims whose outcome is unknown, and the way of a wake-up.
    pub fn lively_within(self, bound: Duration) -> Promises {
        Promises { liveness_bound: Some(bound), ..self }
    }

    /// The faults were over at this moment.
    pub fn healed_at(self, at_ns: u64) -> Promises {
        Promises { healed_at_ns: at_ns, ..self }
    }
}

/// Finds everything in the history that breaks a promise, in order of time.
///
/// ```
/// use lockkeeper_conformance::checker::{Promises, check};
/// use lockkeeper_conformance::history::Recorder;
///
/// let recorder = Recorder::new();
/// for client in [1, 2] {
///     let claim = recorder.claim(client, 0, client.into());
///     claim.invokes(10, 1, 1);
///     claim.is_granted(20, client.into(), 90);
/// }
/// let violations = check(&recorder.history(), &Promises::safety());
/// assert!(violations[0].to_string().contains("but the limit is 1"));
/// ```
pub fn check(history: &History, promises: &Promises) -> Vec<Violation> {
    let end_ns = history.events.iter().map(|event| event.at_ns).max().unwrap_or_default();
    let mut violations = Vec::new();
    for lock in story::read(history) {
        let holds = holds::certain(&lock.stories);
        claims::check(&lock.stories, &mut violations);
        exclusion::check(&holds, &mut violations);
        tokens::check(&lock.stories, &holds, &mut violations);
        releases::check(&lock.stories, &holds, &mut violations);
        effects::check(lock.effects, &mut violations);
        if promises.fifo {
            order::check(&holds, &mut violations);
        }
        if let Some(bound) = promises.liveness_bound {
            let judged = liveness::Judged { bound, from_ns: promises.healed_at_ns, until_ns: end_ns };
            liveness::check(&lock.stories, &holds, &judged, &mut violations);
        }
    }
    violations.sort_by_key(Violation::place_in_report);
    violations
}
