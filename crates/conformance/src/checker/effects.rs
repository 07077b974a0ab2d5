//! Effect: the resource never accepts an access with a smaller token than it has seen.

use super::violation::{Breach, Party, Violation};
use crate::history::{Event, EventKind};

pub(super) fn check(mut effects: Vec<&Event>, violations: &mut Vec<Violation>) {
    // At equal times nobody knows the order, so the growing one is believed.
    effects.sort_by_key(|event| (event.at_ns, accepted_token(event)));
    let mut highest: Option<(u64, Party)> = None;
    for event in effects {
        let Some(token) = accepted_token(event) else { continue };
        let party = Party { claim: event.claim, client: event.client };
        match highest {
            Some((highest_token, highest_party)) if token < highest_token => {
                let breach = Breach::StaleEffect { token, highest_token, highest: highest_party };
                violations.push(Violation { at_ns: event.at_ns, lock: event.lock, party, breach });
            }
            _ => highest = Some((token, party)),
        }
    }
}

fn accepted_token(event: &Event) -> Option<u64> {
    match event.kind {
        EventKind::Effect { token, accepted: true } => Some(token),
        _ => None,
    }
}
