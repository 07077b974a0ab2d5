//! The short ways of the style 'queue': what a lock that nobody contends for takes, alone or with others.

use super::{JOIN, LEAVE, TRACE_MS, milliseconds, script};
use crate::keys::QueueKeys;
use crate::lua::{Lua, Request};
use crate::together::Ask;
use lockkeeper_core::{Claim, ClaimId, Demand, Holder, LockName, Shape};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

static JOIN_MANY: LazyLock<Lua> = script!("clock", "place", "join_many_begin", "take", "join_many_end");
static LEAVE_MANY: LazyLock<Lua> = script!("leave_many_begin", "free", "leave_many_end");

/// About how many bytes a join takes.
const BYTES: usize = 320;
/// About how many bytes of a request are of one lock, where many share the rest.
const BYTES_EACH: usize = 128;

/// A join that asks the lock's own key only, and says nothing when that is not enough.
#[derive(Debug, Clone)]
pub(crate) struct JoinAlone {
    pub(crate) claim: Claim,
    pub(crate) tail: Arc<str>,
}

impl JoinAlone {
    /// For how many milliseconds the lock's key lives.
    pub(crate) fn trace_ms(&self) -> u64 {
        milliseconds(self.claim.ttl) + TRACE_MS
    }

    fn add_key(&self, request: &mut Request) {
        request.word(&QueueKeys::lock(self.claim.name.as_str()));
    }

    fn add_arguments(&self, request: &mut Request) {
        request.word(&[self.claim.id.hex().as_str(), " ", &self.tail]).number(self.trace_ms());
    }
}

/// The claim as the scripts take it.
impl fmt::Display for JoinAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.claim.id, self.tail)
    }
}

/// What stands behind the identity in a claim as the scripts take it. Most claims of a keeper want the same, so the last
/// one is kept.
#[derive(Debug, Default)]
pub(crate) struct Tails(Mutex<Option<(Kind, Arc<str>)>>);

#[derive(Debug, Clone)]
struct Kind {
    demand: Demand,
    ttl: Duration,
    holder: Arc<Holder>,
}

impl Kind {
    fn is_of(&self, claim: &Claim) -> bool {
        self.demand == claim.demand && self.ttl == claim.ttl && Arc::ptr_eq(&self.holder, &claim.holder)
    }
}

impl Tails {
    /// The tail of a claim whose keeper listens on that channel.
    pub(crate) fn of(&self, claim: &Claim, channel: &str) -> Arc<str> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((kind, tail)) if kind.is_of(claim) => Arc::clone(tail),
            _ => {
                let kind = Kind { demand: claim.demand, ttl: claim.ttl, holder: Arc::clone(&claim.holder) };
                let tail: Arc<str> = tail(claim, channel).into();
                *last = Some((kind, Arc::clone(&tail)));
                tail
            }
        }
    }
}

fn tail(claim: &Claim, channel: &str) -> String {
    let demand = claim.demand;
    let shape = match demand.shape() {
        Shape::ReadWrite => format!("rw{}", demand.limit()),
        Shape::Permits { of } => of.to_string(),
    };
    let (ttl_ms, weight, holder) = (milliseconds(claim.ttl), demand.weight(), claim.holder.encode());
    format!("{ttl_ms} {weight} {shape} {channel} {demand} {holder}")
}

impl Ask for JoinAlone {
    type Kind<'a> = &'a str;

    fn kind(&self) -> &str {
        &self.tail
    }

    fn alone(&self) -> Request {
        let mut request = Request::of(&JOIN, 1, 2, BYTES);
        self.add_key(&mut request);
        self.add_arguments(&mut request);
        request
    }

    fn together(joins: &[&Self]) -> Request {
        let mut request =
            Request::of(&JOIN_MANY, joins.len(), joins.len() + 2, BYTES_EACH * joins.len() + BYTES);
        for join in joins {
            join.add_key(&mut request);
        }
        if let Some(first) = joins.first() {
            request.word(&[" ", &first.tail]).number(first.trace_ms());
        }
        for join in joins {
            request.word(&[join.claim.id.hex().as_str()]);
        }
        request
    }
}

/// A leave that asks the lock's own key only, and says nothing when that is not enough.
#[derive(Debug, Clone)]
pub(crate) struct LeaveAlone {
    pub(crate) name: LockName,
    pub(crate) id: ClaimId,
    pub(crate) place: u64,
}

impl LeaveAlone {
    fn add_key(&self, request: &mut Request) {
        request.word(&QueueKeys::lock(self.name.as_str()));
    }

    fn add_arguments(&self, request: &mut Request) {
        request.word(&[self.id.hex().as_str()]).number(self.place);
    }
}

impl Ask for LeaveAlone {
    type Kind<'a> = ();

    fn kind(&self) {}

    fn alone(&self) -> Request {
        let mut request = Request::of(&LEAVE, 1, 2, BYTES / 2);
        self.add_key(&mut request);
        self.add_arguments(&mut request);
        request
    }

    fn together(leaves: &[&Self]) -> Request {
        let mut request = Request::of(&LEAVE_MANY, leaves.len(), 2 * leaves.len(), BYTES_EACH * leaves.len());
        for leave in leaves {
            leave.add_key(&mut request);
        }
        for leave in leaves {
            leave.add_arguments(&mut request);
        }
        request
    }
}
