//! The clients of a worker: each uses one kind of lock again and again, and records every step.

use crate::resource::{CLIENTS_PER_PROCESS, REPLY_BYTES, Request, Verb};
use crate::worker::{Places, Task};
use lockkeeper::views::Demand;
use lockkeeper::{Error, Guard, Keeper, MultiLock, Result, Wanted};
use lockkeeper_conformance::history::{ClaimRecorder, Event, EventKind, Recorder, ReleaseOutcome};
use lockkeeper_core::engine::{Clock, Moment};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, watch};

/// The lock that most clients want, and in whose holds faults strike.
pub(crate) const MAIN: u32 = 0;
const READ_WRITE: u32 = 1;
const PERMITS: u32 = 2;
const ALL_PERMITS: u32 = 3;
/// Taken together. Nobody can be blamed for a free lock among them: its waiter may wait for the other.
pub(crate) const SEVERAL: [u32; 2] = [3, 4];
pub(crate) const LEASE: u32 = 5;
/// Each process has a lock of its own, by which one sees that it works.
const OWN: u32 = 100;
/// And another one, which it holds for longer than the TTL.
const STEADY: u32 = 200;
/// Longer than any wait that is meant to be.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a hold reads and writes the registers that check tokens.
const UPDATES: Range<u32> = 20..240;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Locks the main mutex, mostly for a moment, sometimes for longer than a renewal.
    Mutex,
    /// Locks the main mutex for a moment, with many others.
    Waiter,
    /// Reads and writes under a read-write lock.
    ReadWrite,
    /// Takes permits of a semaphore.
    Permits,
    /// Locks two mutexes at once.
    Several,
    /// Waits for the main mutex, and mostly gives up.
    Cancel,
    /// Holds with a fixed lease, until it ends.
    Lease,
    /// Locks a mutex that nobody else wants, to show that its process works.
    Own,
    /// Holds such a mutex for longer than the TTL, to show that its renewals work.
    Steady,
}

/// For how long a steady client holds: no hold gets so far without a renewal.
pub(crate) fn steady(ttl: Duration) -> Duration {
    ttl * 5 / 4
}

/// The name of a lock; its number is its end.
pub(crate) fn lock_name(lock: u32) -> String {
    format!("lock-{lock:05}")
}

fn lock_number(name: &str) -> u32 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn now() -> Moment {
    Clock::Boot.now()
}

/// The way to the resource.
pub(crate) struct Registers(Mutex<UnixStream>);

impl Registers {
    pub(crate) async fn connect(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Mutex::new(UnixStream::connect(path).await?)))
    }

    /// Whether the access was accepted, and the value. Not to be dropped while it waits.
    async fn access(&self, request: Request) -> (bool, u64) {
        let mut stream = self.0.lock().await;
        let mut reply = [0; REPLY_BYTES];
        stream.write_all(&request.bytes()).await.expect("the resource outlives its workers");
        stream.read_exact(&mut reply).await.expect("the resource outlives its workers");
        (reply[0] == 1, u64::from_le_bytes(reply[1..].try_into().expect("eight bytes")))
    }
}

/// One client.
pub(crate) struct Client {
    number: u32,
    own: u32,
    kind: Kind,
    ttl: Duration,
    keeper: Keeper,
    recorder: Recorder,
    registers: Arc<Registers>,
    places: Places,
    errors: Errors,
    random: StdRng,
}

/// What kept the clients of a worker from locking, the first few times.
#[derive(Clone)]
pub(crate) struct Errors(Arc<std::sync::Mutex<(std::fs::File, u32)>>);

const NOTED: u32 = 50;

impl Errors {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Arc::new(std::sync::Mutex::new((std::fs::File::create(path)?, 0)))))
    }

    fn note(&self, error: &Error) {
        use std::io::Write;
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.1 < NOTED {
            noted.1 += 1;
            let _ = writeln!(noted.0, "{error}");
        }
    }
}

/// A lock that is asked for, and its claim in the history.
struct Asked {
    lock: u32,
    demand: Demand,
    claim: u128,
    story: ClaimRecorder,
}

impl Client {
    #[expect(clippy::too_many_arguments, reason = "what a worker shares with its clients")]
    pub(crate) fn new(
        task: &Task,
        index: u32,
        kind: Kind,
        keeper: &Keeper,
        recorder: &Recorder,
        registers: &Arc<Registers>,
        places: &Places,
        errors: &Errors,
    ) -> Self {
        Self {
            number: task.process * CLIENTS_PER_PROCESS + index,
            own: task.process + if kind == Kind::Steady { STEADY } else { OWN },
            kind,
            ttl: Duration::from_millis(task.ttl_ms),
            keeper: keeper.clone(),
            recorder: recorder.clone(),
            registers: Arc::clone(registers),
            places: Arc::clone(places),
            errors: errors.clone(),
            random: StdRng::seed_from_u64(task.seed.wrapping_add(u64::from(index))),
        }
    }

    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let asked = self.ask();
            let outcome = tokio::select! {
                _ = stop.changed() => Ok(None),
                outcome = self.wait(&asked) => outcome,
            };
            match outcome {
                Ok(Some(guard)) => self.hold(guard, &asked, &mut stop).await,
                Ok(None) => asked.iter().for_each(|asked| asked.story.is_cancelled(now().as_nanos())),
                Err(error) => {
                    self.errors.note(&error);
                    asked.iter().for_each(|asked| asked.story.is_unknown(now().as_nanos()));
                    self.rest(100, &mut stop).await;
                }
            }
            match self.kind {
                Kind::Own | Kind::Cancel => self.rest(100, &mut stop).await,
                Kind::Waiter => {}
                _ => self.rest(10, &mut stop).await,
            }
        }
    }

    async fn rest(&mut self, ms: u64, stop: &mut watch::Receiver<bool>) {
        let time = Duration::from_millis(self.random.random_range(ms / 2..=ms));
        let _ = tokio::time::timeout(time, stop.changed()).await;
    }

    /// What it asks for this time; from here on it counts as asked.
    fn ask(&mut self) -> Vec<Asked> {
        let wanted = match self.kind {
            Kind::Mutex | Kind::Waiter | Kind::Cancel => vec![(MAIN, Demand::Exclusive)],
            Kind::ReadWrite if self.random.random_ratio(1, 4) => vec![(READ_WRITE, Demand::Exclusive)],
            Kind::ReadWrite => vec![(READ_WRITE, Demand::Shared)],
            Kind::Permits => {
                let want = self.random.random_range(1..=2);
                vec![(PERMITS, Demand::Permits { want, of: ALL_PERMITS })]
            }
            Kind::Several => SEVERAL.map(|lock| (lock, Demand::Exclusive)).into(),
            Kind::Lease => vec![(LEASE, Demand::Exclusive)],
            Kind::Own | Kind::Steady => vec![(self.own, Demand::Exclusive)],
        };
        let asked = wanted.into_iter().map(|(lock, demand)| {
            let claim = self.random.random();
            let story = self.recorder.claim(self.number, lock, claim);
            story.invokes(now().as_nanos(), demand.weight() as u32, demand.limit() as u32);
            Asked { lock, demand, claim, story }
        });
        asked.collect()
    }

    async fn wait(&mut self, asked: &[Asked]) -> Result<Option<Guard>> {
        let name = lock_name(asked[0].lock);
        match (self.kind, asked[0].demand) {
            (Kind::Several, _) => {
                let wanted =
                    asked.iter().map(|asked| Wanted::new(&self.keeper, lock_name(asked.lock), asked.demand));
                MultiLock::new(wanted).lock_within(PATIENCE).await
            }
            (Kind::Lease, _) => self.keeper.mutex(name).lease(self.ttl / 2).lock_within(PATIENCE).await,
            (Kind::Cancel, _) => {
                let limit = Duration::from_micros(self.random.random_range(0..20_000));
                tokio::time::timeout(limit, self.keeper.mutex(name).lock())
                    .await
                    .map_or(Ok(None), |got| got.map(Some))
            }
            (_, Demand::Exclusive) if self.kind == Kind::ReadWrite => {
                self.keeper.rwlock(name).write_within(PATIENCE).await
            }
            (_, Demand::Shared) => self.keeper.rwlock(name).read_within(PATIENCE).await,
            (_, Demand::Permits { want, of }) => {
                self.keeper.semaphore(name, of).acquire_within(want, PATIENCE).await
            }
            _ => self.keeper.mutex(name).lock_within(PATIENCE).await,
        }
    }

    /// How long it means to hold.
    fn length(&mut self) -> Duration {
        let ttl_ms = self.ttl.as_millis() as u64;
        let ms = match self.kind {
            Kind::Waiter => self.random.random_range(0..2),
            Kind::Own | Kind::Cancel => 0,
            Kind::Lease => ttl_ms * 2,
            Kind::Steady => steady(self.ttl).as_millis() as u64,
            Kind::Mutex if self.random.random_ratio(1, 6) => {
                self.random.random_range(ttl_ms / 2..ttl_ms * 5 / 4)
            }
            _ if self.random.random_ratio(1, 4) => self.random.random_range(50..300),
            _ => self.random.random_range(1..10),
        };
        Duration::from_millis(ms)
    }

    async fn hold(&mut self, guard: Guard, asked: &[Asked], stop: &mut watch::Receiver<bool>) {
        // What it believes, counted from before it looked: a stop in between makes it believe less.
        let (at, valid) = (now(), guard.valid_for());
        let Ok(tokens) = guard.tokens() else {
            return asked.iter().for_each(|asked| asked.story.is_unknown(now().as_nanos()));
        };
        self.note_place(&guard, asked);
        for asked in asked {
            let token = tokens
                .iter()
                .find(|(name, _)| lock_number(name) == asked.lock)
                .expect("a token for each lock");
            asked.story.is_granted(at.as_nanos(), token.1.0, at.plus(valid).as_nanos());
        }
        let length = self.length();
        if self.kind == Kind::Own {
            self.access(&asked[0], Verb::Beat, 0, 0).await;
        } else if self.kind == Kind::Steady {
            self.access(&asked[0], Verb::Settle, 0, 0).await;
            if self.stay(&guard, asked, length, stop).await && !guard.valid_for().is_zero() {
                self.access(&asked[0], Verb::Survive, 0, 0).await;
            }
        } else if asked.iter().all(|asked| asked.demand == Demand::Exclusive) {
            self.use_resource(&guard, asked, &tokens, length, stop).await;
        } else {
            self.stay(&guard, asked, length, stop).await;
        }
        self.release(guard, asked).await;
    }

    /// The claim's place in the queue was seen while it waited.
    fn note_place(&self, guard: &Guard, asked: &[Asked]) {
        if !matches!(self.kind, Kind::Mutex | Kind::Cancel) {
            return;
        }
        let seen = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&guard.claim()).copied();
        if let Some(at_ns) = seen {
            let Asked { lock, claim, .. } = asked[0];
            self.recorder.record(Event { at_ns, client: self.number, lock, claim, kind: EventKind::Queued });
        }
    }

    async fn access(&self, asked: &Asked, verb: Verb, token: u64, value: u64) -> (bool, u64) {
        let Asked { lock, claim, .. } = *asked;
        self.registers.access(Request { verb, lock, client: self.number, claim, token, value }).await
    }

    /// Updates the registers that check tokens, and the one that does not: that one is read as the hold begins and written as
    /// it ends, without another look at the guard.
    async fn use_resource(
        &mut self,
        guard: &Guard,
        asked: &[Asked],
        tokens: &[(String, lockkeeper::Token)],
        length: Duration,
        stop: &mut watch::Receiver<bool>,
    ) {
        let token_of =
            |lock| tokens.iter().find(|(name, _)| lock_number(name) == lock).map_or(0, |(_, token)| token.0);
        let first = &asked[0];
        self.access(first, Verb::Begin, 0, if first.lock == MAIN { length.as_millis() as u64 } else { 0 })
            .await;
        let (_, plain) = self.access(first, Verb::PlainRead, 0, 0).await;
        let updates = if self.kind == Kind::Waiter { 1 } else { self.random.random_range(UPDATES) };
        for asked in asked {
            for _ in 0..updates {
                let (accepted, value) = self.access(asked, Verb::Read, token_of(asked.lock), 0).await;
                if !accepted || !self.access(asked, Verb::Write, token_of(asked.lock), value + 1).await.0 {
                    break;
                }
            }
        }
        if self.stay(guard, asked, length, stop).await {
            self.access(first, Verb::PlainWrite, 0, plain + 1).await;
            let (accepted, value) = self.access(first, Verb::Read, token_of(first.lock), 0).await;
            if accepted {
                self.access(first, Verb::Write, token_of(first.lock), value + 1).await;
            }
        }
    }

    /// Holds for this time, or until the lock is lost; whether it was held, as far as one knows who does not look again.
    async fn stay(
        &self,
        guard: &Guard,
        asked: &[Asked],
        length: Duration,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        let end = now().plus(length);
        let step = self.ttl / 8;
        loop {
            let left = end.since(now());
            if left.is_zero() || *stop.borrow() {
                return true;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(left.min(step)) => {}
                _ = guard.lost() => {
                    asked.iter().for_each(|asked| asked.story.is_lost(now().as_nanos()));
                    return false;
                }
                _ = stop.changed() => return true,
            }
            if end > now() {
                let (at, valid) = (now(), guard.valid_for());
                asked
                    .iter()
                    .for_each(|asked| asked.story.is_renewed(at.as_nanos(), at.plus(valid).as_nanos()));
            }
        }
    }

    async fn release(&self, guard: Guard, asked: &[Asked]) {
        asked.iter().for_each(|asked| asked.story.invokes_release(now().as_nanos()));
        let released = guard.release().await;
        let outcome = match released {
            Ok(()) => ReleaseOutcome::Released,
            // Of several, it does not say which.
            Err(Error::Lost { .. }) if asked.len() == 1 => ReleaseOutcome::NotHeld,
            Err(_) => ReleaseOutcome::Unknown,
        };
        asked.iter().for_each(|asked| asked.story.release_is_done(now().as_nanos(), outcome));
    }
}
