//! The short ways of the style 'queue': what a lock that nobody contends for takes, alone or with others.

use super::{JOIN, LEAVE, TRACE_MS, milliseconds, script};
use crate::keys::QueueKeys;
use crate::lua::{Lua, Request};
use crate::together::Ask;
use lockkeeper_core::{Claim, ClaimId, LockName, Shape};
use std::fmt;
use std::sync::{Arc, LazyLock};

static JOIN_MANY: LazyLock<Lua> = script!("clock", "place", "join_many_begin", "take", "join_many_end");
static LEAVE_MANY: LazyLock<Lua> = script!("leave_many_begin", "free", "leave_many_end");

/// About how many bytes a join takes.
const BYTES: usize = 320;

/// A join that asks the lock's own key only, and says nothing when that is not enough.
#[derive(Debug, Clone)]
pub(crate) struct JoinAlone {
    pub(crate) claim: Claim,
    pub(crate) channel: Arc<str>,
    pub(crate) line: Arc<str>,
}

impl JoinAlone {
    /// For how many milliseconds the lock's key lives.
    pub(crate) fn trace_ms(&self) -> u64 {
        milliseconds(self.claim.ttl) + TRACE_MS
    }
}

/// The claim as the scripts take it.
impl fmt::Display for JoinAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim: Claim { id, ttl, demand, .. }, channel, line } = self;
        let (ttl_ms, weight) = (milliseconds(*ttl), demand.weight());
        match demand.shape() {
            Shape::ReadWrite => {
                write!(f, "{id} {ttl_ms} {weight} rw{} {channel} {demand} {line}", demand.limit())
            }
            Shape::Permits { of } => write!(f, "{id} {ttl_ms} {weight} {of} {channel} {demand} {line}"),
        }
    }
}

impl Ask for JoinAlone {
    fn alone(&self) -> Request {
        let mut request = Request::of(&JOIN, 1, 2, BYTES);
        request.word(QueueKeys::lock(self.claim.name.as_str())).word(self).word(self.trace_ms());
        request
    }

    fn together(joins: &[Self]) -> Request {
        let mut request = Request::of(&JOIN_MANY, joins.len(), 2 * joins.len(), BYTES * joins.len());
        for join in joins {
            request.word(QueueKeys::lock(join.claim.name.as_str()));
        }
        for join in joins {
            request.word(join).word(join.trace_ms());
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

impl Ask for LeaveAlone {
    fn alone(&self) -> Request {
        let mut request = Request::of(&LEAVE, 1, 2, BYTES / 2);
        request.word(QueueKeys::lock(self.name.as_str()));
        request.word(self.id).word(format_args!("{:016}", self.place));
        request
    }

    fn together(leaves: &[Self]) -> Request {
        let mut request = Request::of(&LEAVE_MANY, leaves.len(), 2 * leaves.len(), BYTES / 2 * leaves.len());
        for leave in leaves {
            request.word(QueueKeys::lock(leave.name.as_str()));
        }
        for leave in leaves {
            request.word(leave.id).word(format_args!("{:016}", leave.place));
        }
        request
    }
}
