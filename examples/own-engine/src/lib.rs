//! An engine for lockkeeper in one file: locks in a table of this process, taken by whichever claim comes first.
//!
//! [`register`] lets `lockkeeper::connect("table:")` find it; `tests/conformance.rs` runs lockkeeper's own suite on it.

use lockkeeper::{Result, Token};
use lockkeeper::views::{Abilities, ClaimView, LockView, Standing};
use lockkeeper_core::engine::{
    Address, Attempted, Claim, ClaimId, Clock, Engine, Grant, Kept, Left, LockName, Moment, Race, RaceEngine,
    Renewal,
};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What the engine can do. The suite runs the cases that these call for.
pub const ABILITIES: Abilities = Abilities::new("table", "plain", "table:").push().one_process();

/// Lets `lockkeeper::connect` open URLs that begin with `table:`.
///
/// # Errors
/// When the scheme is taken.
pub fn register() -> Result<()> {
    lockkeeper::register("table", |address: Address, _ttl| async move {
        address.finish()?;
        Ok(Arc::new(RaceEngine(TableEngine)) as Arc<dyn Engine>)
    })
}

/// All keepers of this process share one table.
static TABLE: LazyLock<Table> = LazyLock::new(Table::default);

/// The engine: the verbs of `Race` on the table.
struct TableEngine;

/// The locks that are held, by name.
#[derive(Default)]
struct Table {
    holds: Mutex<BTreeMap<LockName, Hold>>,
    freed: Notify,
    last_token: Mutex<u64>,
}

#[derive(Clone)]
struct Hold {
    claim: Claim,
    token: Token,
    since: Moment,
    expires_at: Moment,
}

impl Table {
    /// The holds that have not expired at this moment.
    fn holds(&self, now: Moment) -> MutexGuard<'_, BTreeMap<LockName, Hold>> {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        // Law 2: what has expired is gone, and no renewal finds it.
        holds.retain(|_, hold| hold.expires_at > now);
        holds
    }

    fn remove(&self, name: &LockName, id: ClaimId) -> bool {
        let mut holds = self.holds(Clock::Boot.now());
        let is_there = holds.get(name).is_some_and(|hold| hold.claim.id == id);
        if is_there {
            holds.remove(name);
            self.freed.notify_waiters();
        }
        is_there
    }
}

impl Race for TableEngine {
    fn abilities(&self) -> Abilities {
        ABILITIES
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let now = Clock::Boot.now();
        let mut holds = TABLE.holds(now);
        if let Some(hold) = holds.get_mut(&claim.name) {
            // Law 4: a second attempt of the same claim finds its own hold.
            if hold.claim.id == claim.id {
                hold.expires_at = now.plus(claim.ttl);
                return Ok(Attempted::Granted(Grant { token: hold.token }));
            }
            return Ok(Attempted::Busy { free_in: Some(hold.expires_at.since(now)) });
        }
        // Law 8: one counter for all locks grows with every grant.
        let mut last = TABLE.last_token.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        let hold =
            Hold { claim: claim.clone(), token: Token(*last), since: now, expires_at: now.plus(claim.ttl) };
        holds.insert(claim.name.clone(), hold);
        Ok(Attempted::Granted(Grant { token: Token(*last) }))
    }

    async fn changed(&self, claim: &Claim, free_in: Option<Duration>) -> Result<()> {
        let freed = TABLE.freed.notified();
        // What left between the attempt and this line sent no message that we could have received.
        if !TABLE.holds(Clock::Boot.now()).contains_key(&claim.name) {
            return Ok(());
        }
        let _ = tokio::time::timeout(free_in.unwrap_or(claim.ttl), freed).await;
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let now = Clock::Boot.now();
        let (mut holds, mut dead) = (TABLE.holds(now), Vec::new());
        for renewal in renewals {
            match holds.get_mut(&renewal.claim.name).filter(|hold| hold.claim.id == renewal.claim.id) {
                Some(hold) => hold.expires_at = now.plus(renewal.ttl),
                None => dead.push(renewal.claim.id),
            }
        }
        Ok(Kept::new(dead))
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        Ok(if TABLE.remove(&claim.name, claim.id) { Left::Left } else { Left::NotThere })
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let now = Clock::Boot.now();
        let holds = TABLE.holds(now);
        let listed = holds.iter().filter(|(name, _)| name.as_str().starts_with(prefix)).take(at_most);
        let view = |(name, hold): (&LockName, &Hold)| {
            let claim = &hold.claim;
            let holder = claim.holder.as_ref().clone();
            let view = ClaimView::new(claim.id.to_string(), Standing::Holds, claim.demand, holder)
                .token(Some(hold.token))
                .age(Some(now.since(hold.since)))
                .ttl_left(Some(hold.expires_at.since(now)));
            LockView::new(name.to_string(), vec![view])
        };
        Ok(listed.map(view).collect())
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        Ok(TABLE.remove(name, id))
    }

    async fn close(&self) {}
}
