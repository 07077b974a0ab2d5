//! What a claim that lives on a connection depends on.

use super::Life;
use crate::claim::ClaimId;
use crate::error::LostReason;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// What claims depend on beside their TTL: a connection or a session, in either mechanism. The engine reports its state,
/// and every claim tied to it changes at that moment, not only at its next renewal. Clones are the same lifeline.
#[derive(Debug, Clone, Default)]
pub struct Lifeline {
    reserve: Duration,
    line: Arc<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Set while `tied` is locked; looked at without.
    ended: AtomicBool,
    tied: Mutex<Tied>,
}

#[derive(Debug, Default)]
struct Tied {
    doubted: bool,
    lives: HashMap<ClaimId, Weak<Life>>,
}

impl Lifeline {
    /// A lifeline with nothing tied to it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A lifeline whose claims are trusted for their TTL less this duration: for a server that may count the TTL from
    /// an earlier sign of life than the one it has acknowledged last.
    pub fn with_reserve(reserve: Duration) -> Self {
        Self { reserve, ..Self::default() }
    }

    fn tied(&self) -> MutexGuard<'_, Tied> {
        self.line.tied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the engine still has the claims is not known now: they are uncertain until [`trust`](Self::trust) or
    /// their deadline, and so is each that is tied to it meanwhile.
    pub fn doubt(&self) {
        self.set_doubted(true);
    }

    /// The doubt is over: the engine is known to have the claims.
    pub fn trust(&self) {
        self.set_doubted(false);
    }

    fn set_doubted(&self, doubted: bool) {
        let mut tied = self.tied();
        if tied.doubted == doubted {
            return;
        }
        tied.doubted = doubted;
        for life in tied.lives.values().filter_map(Weak::upgrade) {
            life.cut.store(doubted, SeqCst);
        }
    }

    /// The engine frees them at this moment: every claim tied to it is lost, and each that is tied to it later.
    pub fn end(&self) {
        let lives = {
            let mut tied = self.tied();
            self.line.ended.store(true, SeqCst);
            std::mem::take(&mut tied.lives)
        };
        for life in lives.into_values().filter_map(|life| life.upgrade()) {
            life.end(LostReason::Gone);
        }
    }

    /// The engine has freed this claim, and not the others: it is lost at this moment, if it is tied.
    pub fn end_one(&self, id: ClaimId) {
        // The table is not locked meanwhile: a task that waits for the end may leave at once.
        let life = self.tied().lives.remove(&id);
        if let Some(life) = life.and_then(|life| life.upgrade()) {
            life.end(LostReason::Gone);
        }
    }

    /// Somebody asks for this claim to be released: its owner learns of it at this moment, if it is tied.
    pub fn ask_one(&self, id: ClaimId) {
        let life = self.tied().lives.get(&id).and_then(Weak::upgrade);
        if let Some(life) = life {
            life.ask();
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.line.ended.load(SeqCst)
    }

    /// The claim hangs on it no longer; to be called when it leaves.
    pub fn untie(&self, id: ClaimId) {
        self.tied().lives.remove(&id);
    }

    pub(super) fn tie(&self, life: &Arc<Life>) {
        if !self.reserve.is_zero() {
            let reserve = u64::try_from(self.reserve.as_nanos()).unwrap_or(u64::MAX);
            life.reserve.store(reserve, SeqCst);
        }
        let mut tied = self.tied();
        if self.has_ended() {
            drop(tied);
            life.end(LostReason::Gone);
        } else {
            life.cut.store(tied.doubted, SeqCst);
            tied.lives.insert(life.claim.id, Arc::downgrade(life));
        }
    }
}

/// Two lifelines are equal if they are the same.
impl PartialEq for Lifeline {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.line, &other.line)
    }
}

impl Eq for Lifeline {}
