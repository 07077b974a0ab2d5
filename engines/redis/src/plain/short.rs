//! The short ways of the style 'plain': what a lock that nobody waits for takes, alone or with others.

use super::{ATTEMPT, BY_CLOCK, LEAVE, milliseconds, script};
use crate::keys::PlainKeys;
use crate::lua::{Lua, Request};
use crate::together::Ask;
use lockkeeper_core::{Claim, ClaimId, LockName};
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

static ATTEMPT_MANY: LazyLock<Lua> = script!("fence", "attempt_many_begin", "take", "attempt_many_end");
static LEAVE_MANY: LazyLock<Lua> = script!("leave_many");

/// About how many bytes an attempt takes.
const BYTES: usize = 320;
/// About how many bytes of a request are of one lock, where many share the rest.
const BYTES_EACH: usize = 128;

/// What stands in the key, and behind it a `*` if somebody waits. Others compare it as a whole; we also read who it is.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) id: ClaimId,
    pub(crate) line: Arc<str>,
}

impl Content {
    fn add_to(&self, request: &mut Request) {
        request.word(&[self.id.hex().as_str(), " ", &self.line]);
    }

    fn add_id_to(&self, request: &mut Request) {
        request.word(&[self.id.hex().as_str()]);
    }

    fn add_rest_to(&self, request: &mut Request) {
        request.word(&[" ", &self.line]);
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.line)
    }
}

/// An attempt at a lock for which nobody is known to wait.
#[derive(Debug, Clone)]
pub(crate) struct AttemptAlone {
    pub(crate) claim: Claim,
    pub(crate) value: Content,
    /// The connection on which the fence may count, if it may.
    pub(crate) counts_on: Option<u64>,
}

impl AttemptAlone {
    fn add_keys(&self, request: &mut Request) {
        let name = self.claim.name.as_str();
        request.word(&[name]).word(&PlainKeys::fence(name));
    }

    fn add_arguments(&self, request: &mut Request) {
        self.value.add_to(request);
        request.number(milliseconds(self.claim.ttl));
        if self.counts_on.is_none() {
            request.word(&[BY_CLOCK]);
        }
        request.only_on = self.counts_on;
    }
}

impl Ask for AttemptAlone {
    type Kind<'a> = (&'a str, Duration, Option<u64>);

    fn kind(&self) -> (&str, Duration, Option<u64>) {
        (&self.value.line, self.claim.ttl, self.counts_on)
    }

    fn alone(&self) -> Request {
        let mut request = Request::of(&ATTEMPT, 2, 3, BYTES);
        self.add_keys(&mut request);
        self.add_arguments(&mut request);
        request
    }

    fn together(attempts: &[&Self]) -> Request {
        let count = attempts.len();
        let mut request = Request::of(&ATTEMPT_MANY, 2 * count, count + 3, BYTES_EACH * count + BYTES);
        attempts.iter().for_each(|attempt| attempt.add_keys(&mut request));
        if let Some(AttemptAlone { claim, value, counts_on }) = attempts.first() {
            value.add_rest_to(&mut request);
            let by_clock = if counts_on.is_none() { BY_CLOCK } else { "" };
            request.number(milliseconds(claim.ttl)).word(&[by_clock]).only_on = *counts_on;
        }
        attempts.iter().for_each(|attempt| attempt.value.add_id_to(&mut request));
        request
    }
}

/// A leave of a lock for which nobody is known to wait.
#[derive(Debug, Clone)]
pub(crate) struct LeaveAlone {
    pub(crate) name: LockName,
    pub(crate) value: Content,
}

impl Ask for LeaveAlone {
    type Kind<'a> = &'a str;

    fn kind(&self) -> &str {
        &self.value.line
    }

    fn alone(&self) -> Request {
        let mut request = Request::of(&LEAVE, 1, 1, BYTES);
        request.word(&[&self.name]);
        self.value.add_to(&mut request);
        request
    }

    fn together(leaves: &[&Self]) -> Request {
        let count = leaves.len();
        let mut request = Request::of(&LEAVE_MANY, count, count + 1, BYTES_EACH * count + BYTES);
        for leave in leaves {
            request.word(&[&leave.name]);
        }
        if let Some(first) = leaves.first() {
            first.value.add_rest_to(&mut request);
        }
        leaves.iter().for_each(|leave| leave.value.add_id_to(&mut request));
        request
    }
}
