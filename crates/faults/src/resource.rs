//! The resource behind the locks: registers that check tokens, and beside them some that do not.
//!
//! It lives in the process that directs the run, so that a worker which is stopped in the middle of an access holds up nobody.
//! Every access is one request over a socket, and is checked and done in one step.

use lockkeeper_conformance::history::Recorder;
use lockkeeper_core::engine::Clock;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const REQUEST_BYTES: usize = 41;
pub(crate) const REPLY_BYTES: usize = 9;

/// What a worker wants of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads a register, with the token: from here on smaller ones are refused.
    Read,
    /// Writes it, with the token.
    Write,
    /// Reads the register that checks nothing.
    PlainRead,
    /// Writes that one.
    PlainWrite,
    /// Says that a hold has begun, and for how many milliseconds it is meant to last.
    Begin,
    /// Says that this process has got its own lock once more.
    Beat,
    /// Says that a hold has begun which is to be longer than the TTL.
    Settle,
    /// Says that it was not lost.
    Survive,
}

const VERBS: [Verb; 8] = [
    Verb::Read,
    Verb::Write,
    Verb::PlainRead,
    Verb::PlainWrite,
    Verb::Begin,
    Verb::Beat,
    Verb::Settle,
    Verb::Survive,
];

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) lock: u32,
    pub(crate) client: u32,
    pub(crate) claim: u128,
    pub(crate) token: u64,
    pub(crate) value: u64,
}

impl Request {
    pub(crate) fn bytes(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = VERBS.iter().position(|verb| *verb == self.verb).unwrap_or_default() as u8;
        bytes[1..5].copy_from_slice(&self.lock.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.client.to_le_bytes());
        bytes[9..25].copy_from_slice(&self.claim.to_le_bytes());
        bytes[25..33].copy_from_slice(&self.token.to_le_bytes());
        bytes[33..41].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let part = |from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().expect("eight bytes"));
        let short = |from: usize| u32::from_le_bytes(bytes[from..from + 4].try_into().expect("four bytes"));
        Some(Self {
            verb: *VERBS.get(usize::from(bytes[0]))?,
            lock: short(1),
            client: short(5),
            claim: u128::from(part(9)) | u128::from(part(17)) << 64,
            token: part(25),
            value: part(33),
        })
    }
}

/// What has come of the accesses so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    /// Accesses whose token was checked.
    pub(crate) checked: u64,
    /// Those that were refused, since their token was too small.
    pub(crate) refused: u64,
    /// Updates that were made by a write which had not seen the one before it, in the registers that check tokens.
    pub(crate) lost: u64,
    /// The same in those that do not.
    pub(crate) lost_unfenced: u64,
    /// Updates in the registers that do not check tokens.
    pub(crate) unfenced: u64,
}

/// A hold that is meant to last for a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongHold {
    pub(crate) client: u32,
    until: Instant,
}

#[derive(Debug, Default)]
struct Register {
    highest: u64,
    /// How many tokens it has seen.
    grants: u64,
    value: u64,
    plain: u64,
}

#[derive(Default)]
struct State {
    registers: HashMap<u32, Register>,
    sums: Sums,
    /// When each process last got its own lock, by its number.
    beats: HashMap<u32, Instant>,
    /// When its hold began that is to be longer than the TTL, and when the last one began that was.
    settled: HashMap<u32, Instant>,
    survived: HashMap<u32, Instant>,
    /// When each lock was last used.
    uses: HashMap<u32, Instant>,
    /// When each lock's register that does not check tokens was last written.
    writes: HashMap<u32, Instant>,
    long: Option<LongHold>,
}

/// The registers.
#[derive(Clone)]
pub(crate) struct Resource {
    shared: Arc<(Mutex<State>, Condvar)>,
    recorder: Recorder,
}

/// How client numbers are made: those of one process begin with its number times this.
pub(crate) const CLIENTS_PER_PROCESS: u32 = 10_000;
/// A hold of at least this is one in which a fault can strike.
const LONG_MS: u64 = 500;

impl Resource {
    /// Listens on a socket of this path.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let resource = Self { shared: Arc::default(), recorder: Recorder::new() };
        let serving = resource.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let resource = serving.clone();
                thread::spawn(move || resource.serve(stream));
            }
        });
        Ok(resource)
    }

    fn serve(&self, mut stream: UnixStream) {
        let mut bytes = [0; REQUEST_BYTES];
        while stream.read_exact(&mut bytes).is_ok() {
            let Some(request) = Request::read(&bytes) else { return };
            let (accepted, value) = self.access(&request);
            let mut reply = [u8::from(accepted); REPLY_BYTES];
            reply[1..].copy_from_slice(&value.to_le_bytes());
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn access(&self, request: &Request) -> (bool, u64) {
        let mut guard = self.state();
        let State { registers, sums, beats, settled, survived, uses, writes, long } = &mut *guard;
        let register = registers.entry(request.lock).or_default();
        let process = request.client / CLIENTS_PER_PROCESS;
        let now = Instant::now();
        let reply = match request.verb {
            Verb::Read | Verb::Write => {
                sums.checked += 1;
                let accepted = request.token >= register.highest;
                sums.refused += u64::from(!accepted);
                if request.token > register.highest || !accepted {
                    let story = self.recorder.claim(request.client, request.lock, request.claim);
                    story.has_effect(Clock::Boot.now().as_nanos(), request.token, accepted);
                }
                if accepted {
                    register.grants += u64::from(request.token > register.highest);
                    register.highest = request.token;
                    uses.insert(request.lock, now);
                    if request.verb == Verb::Write {
                        sums.lost += u64::from(request.value != register.value + 1);
                        register.value = request.value;
                    }
                }
                (accepted, register.value)
            }
            Verb::PlainRead => (true, register.plain),
            Verb::PlainWrite => {
                sums.unfenced += 1;
                sums.lost_unfenced += u64::from(request.value != register.plain + 1);
                register.plain = request.value;
                writes.insert(request.lock, now);
                (true, register.plain)
            }
            Verb::Begin => {
                if request.value >= LONG_MS {
                    let until = now + Duration::from_millis(request.value);
                    *long = Some(LongHold { client: request.client, until });
                }
                (true, 0)
            }
            Verb::Beat => {
                beats.insert(process, now);
                (true, 0)
            }
            Verb::Settle => {
                settled.insert(process, now);
                (true, 0)
            }
            Verb::Survive => {
                survived.extend(settled.get(&process).map(|began| (process, *began)));
                (true, 0)
            }
        };
        drop(guard);
        self.shared.1.notify_all();
        reply
    }

    pub(crate) fn sums(&self) -> Sums {
        self.state().sums
    }

    /// What it has accepted and refused.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Waits until a process uses the lock in a hold of which this much is left.
    pub(crate) fn long_hold(&self, left: Duration, limit: Duration) -> Option<LongHold> {
        self.wait(limit, |state| state.long.filter(|hold| hold.until > Instant::now() + left))
    }

    /// Waits until each of these processes has its own lock once more.
    pub(crate) fn beat(&self, processes: &[u32], after: Instant, limit: Duration) -> bool {
        let is_back = |state: &State, process| state.beats.get(process).is_some_and(|at| *at > after);
        self.wait(limit, |state| processes.iter().all(|process| is_back(state, process)).then_some(()))
            .is_some()
    }

    /// Waits until each of these processes has had a hold that was longer than the TTL.
    pub(crate) fn survives(&self, processes: &[u32], after: Instant, limit: Duration) -> bool {
        let has = |state: &State, process| state.survived.get(process).is_some_and(|at| *at > after);
        self.wait(limit, |state| processes.iter().all(|process| has(state, process)).then_some(())).is_some()
    }

    /// Waits until the lock has been used under this number of tokens more.
    pub(crate) fn is_granted(&self, lock: u32, times: u64, limit: Duration) -> bool {
        let grants = |state: &State| state.registers.get(&lock).map_or(0, |register| register.grants);
        let enough = grants(&self.state()) + times;
        self.wait(limit, |state| (grants(state) >= enough).then_some(())).is_some()
    }

    /// Waits until somebody uses the lock once more.
    pub(crate) fn is_used(&self, lock: u32, after: Instant, limit: Duration) -> bool {
        self.wait(limit, |state| state.uses.get(&lock).filter(|at| **at > after).map(|_| ())).is_some()
    }

    /// Waits until somebody writes what the lock guards, without a check of tokens.
    pub(crate) fn is_written(&self, lock: u32, after: Instant, limit: Duration) -> bool {
        self.wait(limit, |state| state.writes.get(&lock).filter(|at| **at > after).map(|_| ())).is_some()
    }

    fn wait<T>(&self, limit: Duration, mut find: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if let Some(found) = find(&state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.shared.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(resource: &Resource, verb: Verb, token: u64, value: u64) -> (bool, u64) {
        let request = Request { verb, lock: 1, client: 2, claim: 3 << 70, token, value };
        let read = Request::read(&request.bytes()).expect("a request");
        assert_eq!((read.claim, read.client, read.verb), (request.claim, request.client, verb));
        resource.access(&read)
    }

    #[test]
    fn a_smaller_token_is_refused_and_a_blind_update_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let resource = Resource::listen(&folder.path().join("socket")).expect("a socket");
        assert_eq!(ask(&resource, Verb::Read, 5, 0), (true, 0));
        assert_eq!(ask(&resource, Verb::Write, 5, 1), (true, 1));
        assert!(!ask(&resource, Verb::Write, 4, 2).0, "its token is too small");
        assert_eq!(ask(&resource, Verb::PlainRead, 0, 0), (true, 0));
        ask(&resource, Verb::PlainWrite, 0, 1);
        ask(&resource, Verb::PlainWrite, 0, 1);
        let sums = resource.sums();
        assert_eq!((sums.checked, sums.refused, sums.lost, sums.lost_unfenced), (3, 1, 0, 1));
        ask(&resource, Verb::Write, 6, 7);
        assert_eq!(resource.sums().lost, 1);
    }

    #[test]
    fn grants_are_counted_by_their_tokens() {
        let folder = tempfile::tempdir().expect("a folder");
        let resource = Resource::listen(&folder.path().join("socket")).expect("a socket");
        for (verb, token) in [(Verb::Read, 5), (Verb::Write, 5), (Verb::Read, 6), (Verb::Read, 5)] {
            ask(&resource, verb, token, 1);
        }
        assert_eq!(resource.state().registers[&1].grants, 2);
        assert!(!resource.is_granted(1, 1, Duration::ZERO), "those before do not count");
    }
}
