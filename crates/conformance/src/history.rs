//! What the clients of some locks saw, event by event, as plain data that several processes can merge.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// One thing that one client saw or did, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, on the one clock that all processes of the machine share (CLOCK_BOOTTIME, nanoseconds).
    pub at_ns: u64,
    /// Who saw it: a number the workload gives each client, unique over all processes.
    pub client: u32,
    /// On which lock: a number the workload gives each lock name, the same in all processes.
    pub lock: u32,
    /// The claim it is about, as its 128-bit id.
    #[serde(with = "claim_as_hexadecimal")]
    pub claim: u128,
    /// What was seen.
    pub kind: EventKind,
}

/// What can be seen of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The client asks for the lock. Recorded before anything is sent.
    Invoke {
        /// How much of the limit the claim wants: all of it (exclusive), 1 (shared), or some permits.
        weight: u32,
        /// How much there is in all.
        limit: u32,
    },
    /// The engine acknowledged the claim's place in the queue. Recorded after the reply arrived.
    Queued,
    /// The client now believes that it holds. Recorded after the reply arrived.
    Granted {
        /// The fencing token that came with the grant.
        token: u64,
        /// Until when the client trusts its hold unless it is renewed; `u64::MAX` where nothing expires.
        deadline_ns: u64,
    },
    /// A renewal succeeded: the hold is trusted for longer.
    Renewed {
        /// The new deadline.
        deadline_ns: u64,
    },
    /// The holder wants less from now on, as a writer that becomes a reader does. Recorded before it is sent.
    Shrunk {
        /// What it still wants.
        weight: u32,
    },
    /// The client was told, or found out, that it no longer holds.
    Lost,
    /// The client gives the lock back. Recorded before anything is sent: from here on it believes nothing.
    ReleaseInvoke,
    /// The release came to an end.
    ReleaseDone {
        /// What the engine answered.
        outcome: ReleaseOutcome,
    },
    /// The acquire ended, and nobody knows whether the engine granted it (a timeout, a lost reply).
    Unknown,
    /// The caller gave up waiting and will not accept a grant any more.
    Cancelled,
    /// The engine said that the claim died while it waited.
    Expired,
    /// The protected resource was accessed. Recorded by the resource, in one step with its check.
    Effect {
        /// The token that came with the access.
        token: u64,
        /// Whether the resource let it pass.
        accepted: bool,
    },
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseOutcome {
    /// The engine had the claim, and removed it.
    Released,
    /// The engine no longer had the claim, and removed nothing.
    NotHeld,
    /// No answer came.
    Unknown,
}

/// All the events of a run, in any order: the checker sorts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The events. Those of one client stand in the order in which it saw them.
    pub events: Vec<Event>,
}

impl History {
    /// Joins what several processes recorded.
    pub fn merge(parts: impl IntoIterator<Item = History>) -> History {
        parts.into_iter().flat_map(|part| part.events).collect()
    }

    /// Writes one JSON object per line.
    pub fn write_json_lines(&self, mut writer: impl Write) -> io::Result<()> {
        self.events.iter().try_for_each(|event| write_line(&mut writer, event))
    }

    /// Reads what [`write_json_lines`](Self::write_json_lines) or a [`Recorder`] wrote.
    ///
    /// A last line without its line break is left out: a process killed while it wrote leaves one.
    pub fn read_json_lines(mut reader: impl BufRead) -> io::Result<History> {
        let mut history = History::default();
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
            history.events.push(serde_json::from_str(&line)?);
            line.clear();
        }
        Ok(history)
    }

    /// Ends the open claims of a client whose process was killed: what it held is lost, what it waited for
    /// has an unknown outcome.
    ///
    /// A dead process cannot say so itself, and without it the checker would call its waits stuck. Give the
    /// moment just before the kill was sent: an engine that notices a dead process may hand the lock on at once.
    pub fn bury(&mut self, client: u32, at_ns: u64) {
        let of_client = |event: &&Event| event.client == client;
        let mut open: Vec<Event> = Vec::new();
        for event in self.events.iter().filter(of_client) {
            match event.kind {
                EventKind::Invoke { .. } => open.push(Event { kind: EventKind::Unknown, ..*event }),
                EventKind::Granted { .. } => {
                    let same = |end: &&mut Event| end.claim == event.claim && end.lock == event.lock;
                    open.iter_mut().filter(same).for_each(|end| end.kind = EventKind::Lost);
                }
                EventKind::Lost
                | EventKind::ReleaseInvoke
                | EventKind::Unknown
                | EventKind::Cancelled
                | EventKind::Expired => {
                    open.retain(|end| end.claim != event.claim || end.lock != event.lock);
                }
                _ => {}
            }
        }
        self.events.extend(open.into_iter().map(|end| Event { at_ns, ..end }));
    }
}

impl FromIterator<Event> for History {
    fn from_iter<Events: IntoIterator<Item = Event>>(events: Events) -> History {
        History { events: events.into_iter().collect() }
    }
}

/// Collects the events of many clients at once. Clones record into the same history.
#[derive(Clone, Default)]
pub struct Recorder {
    shared: Arc<Shared>,
}

/// Enough that the clients of one process seldom meet in one shard.
const SHARDS: usize = 16;

#[derive(Default)]
struct Shared {
    shards: [Mutex<Vec<Event>>; SHARDS],
    mirror: Option<Mutex<Box<dyn Write + Send>>>,
}

impl Recorder {
    /// Records in memory.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Records in memory, and writes each event at once, so that a killed process leaves its history behind.
    ///
    /// Hand it an unbuffered file: what sits in a buffer dies with the process.
    pub fn mirrored_to(writer: impl Write + Send + 'static) -> Recorder {
        let mirror = Some(Mutex::new(Box::new(writer) as Box<dyn Write + Send>));
        Recorder { shared: Arc::new(Shared { mirror, ..Shared::default() }) }
    }

    /// The recorder of one claim's story.
    pub fn claim(&self, client: u32, lock: u32, claim: u128) -> ClaimRecorder {
        ClaimRecorder { recorder: self.clone(), client, lock, claim }
    }

    /// Adds one event.
    ///
    /// # Panics
    ///
    /// When the mirror cannot be written: a history with holes proves nothing.
    pub fn record(&self, event: Event) {
        // By client, so that the events of one client keep their order even at equal times.
        let shard = &self.shared.shards[event.client as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        if let Some(mirror) = &self.shared.mirror {
            let mut writer = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            write_line(&mut *writer, &event).expect("the mirror of the history takes every event");
        }
    }

    /// What was recorded so far, in order of time.
    pub fn history(&self) -> History {
        let shards = self.shared.shards.iter();
        let mut history: History =
            shards.flat_map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect();
        history.events.sort_by_key(|event| event.at_ns);
        history
    }
}

/// Records what happens to one claim, as its client sees it.
#[derive(Clone)]
pub struct ClaimRecorder {
    recorder: Recorder,
    client: u32,
    lock: u32,
    claim: u128,
}

impl ClaimRecorder {
    /// The client is about to ask for `weight` of `limit`.
    pub fn invokes(&self, at_ns: u64, weight: u32, limit: u32) {
        self.record(at_ns, EventKind::Invoke { weight, limit });
    }

    /// The engine acknowledged its place.
    pub fn is_queued(&self, at_ns: u64) {
        self.record(at_ns, EventKind::Queued);
    }

    /// The client holds, with this token, until this deadline.
    pub fn is_granted(&self, at_ns: u64, token: u64, deadline_ns: u64) {
        self.record(at_ns, EventKind::Granted { token, deadline_ns });
    }

    /// The hold was renewed until this deadline.
    pub fn is_renewed(&self, at_ns: u64, deadline_ns: u64) {
        self.record(at_ns, EventKind::Renewed { deadline_ns });
    }

    /// The holder is about to shrink to `weight`.
    pub fn shrinks(&self, at_ns: u64, weight: u32) {
        self.record(at_ns, EventKind::Shrunk { weight });
    }

    /// The client no longer holds.
    pub fn is_lost(&self, at_ns: u64) {
        self.record(at_ns, EventKind::Lost);
    }

    /// The client is about to release.
    pub fn invokes_release(&self, at_ns: u64) {
        self.record(at_ns, EventKind::ReleaseInvoke);
    }

    /// The release ended like this.
    pub fn release_is_done(&self, at_ns: u64, outcome: ReleaseOutcome) {
        self.record(at_ns, EventKind::ReleaseDone { outcome });
    }

    /// The acquire ended, and nobody knows how.
    pub fn is_unknown(&self, at_ns: u64) {
        self.record(at_ns, EventKind::Unknown);
    }

    /// The caller gave up waiting.
    pub fn is_cancelled(&self, at_ns: u64) {
        self.record(at_ns, EventKind::Cancelled);
    }

    /// The engine said that the claim died while it waited.
    pub fn is_expired(&self, at_ns: u64) {
        self.record(at_ns, EventKind::Expired);
    }

    /// The resource judged an access that came with this token.
    pub fn has_effect(&self, at_ns: u64, token: u64, accepted: bool) {
        self.record(at_ns, EventKind::Effect { token, accepted });
    }

    fn record(&self, at_ns: u64, kind: EventKind) {
        self.recorder.record(Event { at_ns, client: self.client, lock: self.lock, claim: self.claim, kind });
    }
}

/// One write per line, so that a killed process leaves at most its last line unfinished.
fn write_line(mut writer: impl Write, event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    writer.write_all(&line)
}

/// JSON numbers end at 64 bits for most readers, so a claim is written as text.
mod claim_as_hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(claim: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{claim:x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}
