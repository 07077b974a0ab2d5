//! The map in front of session locks: who of this process holds what, on which connection.
//!
//! A server's session locks are re-entrant per connection, so two claims of one process on one connection
//! would both win. Here only one claim of a process at a time gets as far as the server.

use crate::sessions::Connection;
use lockkeeper_core::engine::{Claim, ClaimId, Clock, LockName, Moment};
use lockkeeper_core::{Holder, Token};
use std::collections::{HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// One claim of this process that takes or holds a lock.
#[derive(Debug)]
pub struct Hold<C> {
    /// The claim.
    pub id: ClaimId,
    /// Shown to operators as the holder.
    pub holder: Arc<Holder>,
    /// The connection which holds it, once chosen.
    pub connection: Option<Arc<C>>,
    /// The token, once it holds.
    pub token: Option<Token>,
    /// Since when.
    pub since: Moment,
    /// When the wait was sent that it came from, if it had to wait.
    waited_from: Option<Moment>,
    /// Until when it holds unless it is renewed: a keeper that hangs must not hold for ever.
    pub expires_at: Moment,
    /// Somebody asks for it to be released.
    pub asked: bool,
    /// It is being ended.
    is_ending: bool,
}

impl<C> Clone for Hold<C> {
    fn clone(&self) -> Self {
        Self { holder: Arc::clone(&self.holder), connection: self.connection.clone(), ..*self }
    }
}

#[derive(Debug)]
struct Entry<C> {
    hold: Option<Hold<C>>,
    /// One of our waiters stands for all of them at the server.
    represented: bool,
    /// What wakes those that wait, if any do.
    wake: Option<Arc<Notify>>,
}

impl<C> Default for Entry<C> {
    fn default() -> Self {
        Self { hold: None, represented: false, wake: None }
    }
}

/// What a claim finds when it wants to take a lock.
#[derive(Debug)]
pub enum Reserved<C> {
    /// It holds already: a second attempt of the same claim, or its wait was successful, which was sent at this moment.
    Mine(Arc<C>, Token, Option<Moment>),
    /// Another claim of this process is ahead.
    Busy,
    /// Nobody of this process: go to the server.
    Free,
}

/// What a waiter does.
#[derive(Debug)]
pub enum Role {
    /// Waits until it is notified.
    Listen(Arc<Notify>),
    /// Waits at the server for all waiters of this process.
    Represent,
}

/// The right to end a hold, which one at a time has: freed twice at the server, it could be freed under somebody else.
/// Dropped before it is [`done`](Self::done), it is the next one's.
#[derive(Debug)]
pub struct Ending<'a, C> {
    holds: &'a Holds<C>,
    name: &'a LockName,
    id: ClaimId,
    is_done: bool,
    /// The connection which holds it, if one was chosen.
    pub connection: Option<Arc<C>>,
    /// Whether the claim got as far as to hold.
    pub is_held: bool,
}

impl<C> Ending<'_, C> {
    /// It is ended at the server, so it ends here, too; `false` if it was removed in the meantime.
    pub fn done(mut self) -> bool {
        self.is_done = true;
        self.holds.remove(self.name, self.id)
    }
}

impl<C> Drop for Ending<'_, C> {
    fn drop(&mut self) {
        if !self.is_done
            && let Some(hold) = find(&mut self.holds.entries(), self.name, self.id)
        {
            hold.is_ending = false;
        }
        self.holds.ended.notify_waiters();
    }
}

/// The map.
#[derive(Debug)]
pub struct Holds<C> {
    entries: Mutex<HashMap<LockName, Entry<C>>>,
    /// Notifies those that want to end what another was ending.
    ended: Notify,
}

impl<C> Default for Holds<C> {
    fn default() -> Self {
        Self { entries: Mutex::default(), ended: Notify::new() }
    }
}

fn find<'a, C>(
    entries: &'a mut HashMap<LockName, Entry<C>>,
    name: &LockName,
    id: ClaimId,
) -> Option<&'a mut Hold<C>> {
    entries.get_mut(name)?.hold.as_mut().filter(|hold| hold.id == id)
}

impl<C> Holds<C> {
    fn entries(&self) -> MutexGuard<'_, HashMap<LockName, Entry<C>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the lock for this claim, which will take it on this connection if it is chosen already. It stays reserved
    /// until [`remove`](Self::remove), and its TTL counts from here: what the claim is trusted for began before.
    pub fn reserve(&self, claim: &Claim, connection: Option<&Arc<C>>) -> Reserved<C> {
        let mut entries = self.entries();
        let entry = entries.entry(claim.name.clone()).or_default();
        let hold = entry.hold.get_or_insert_with(|| fresh(claim));
        if hold.id != claim.id {
            return Reserved::Busy;
        }
        if let (Some(connection), Some(token)) = (&hold.connection, hold.token) {
            hold.expires_at = Clock::Boot.now().plus(claim.ttl);
            return Reserved::Mine(Arc::clone(connection), token, hold.waited_from);
        }
        hold.connection = connection.cloned();
        Reserved::Free
    }

    /// Enters the connection on which a reserved claim will be taken; `false` if it has been removed in the meantime.
    pub fn choose(&self, claim: &Claim, connection: &Arc<C>) -> bool {
        let mut entries = self.entries();
        let hold = find(&mut entries, &claim.name, claim.id);
        hold.map(|hold| hold.connection = Some(Arc::clone(connection))).is_some()
    }

    /// Enters the token of a claim that holds now; `false` if it has been removed in the meantime.
    pub fn granted(&self, claim: &Claim, token: Token) -> bool {
        find(&mut self.entries(), &claim.name, claim.id).map(|hold| hold.token = Some(token)).is_some()
    }

    /// Enters what a representative got by a wait that was sent at `from`.
    pub fn enter_taken(&self, claim: &Claim, connection: &Arc<C>, token: Token, from: Moment) -> bool {
        let mut entries = self.entries();
        let entry = entries.entry(claim.name.clone()).or_default();
        if entry.hold.is_some() {
            return false;
        }
        entry.hold = Some(Hold {
            connection: Some(Arc::clone(connection)),
            token: Some(token),
            waited_from: Some(from),
            ..fresh(claim)
        });
        true
    }

    /// The right to end this claim's hold or reservation, once nobody else has it; `None` if there is none any more.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn end<'a>(&'a self, name: &'a LockName, id: ClaimId) -> Option<Ending<'a, C>> {
        loop {
            let ended = {
                let mut entries = self.entries();
                let hold = find(&mut entries, name, id)?;
                if !std::mem::replace(&mut hold.is_ending, true) {
                    let (connection, is_held) = (hold.connection.clone(), hold.token.is_some());
                    return Some(Ending { holds: self, name, id, is_done: false, connection, is_held });
                }
                // From here on it is notified, so that an end between this look and the wait is not missed.
                self.ended.notified()
            };
            ended.await;
        }
    }

    /// Whether this claim holds or has reserved the lock.
    pub fn contains(&self, name: &LockName, id: ClaimId) -> bool {
        find(&mut self.entries(), name, id).is_some()
    }

    /// Whether somebody asks for this claim's hold to be released.
    pub fn is_asked(&self, claim: &Claim) -> bool {
        find(&mut self.entries(), &claim.name, claim.id).is_some_and(|hold| hold.asked)
    }

    /// Keeps a hold for this long from now on; its connection, or `None` if it is not there.
    pub fn renew(&self, claim: &Claim, ttl: Duration) -> Option<Arc<C>> {
        let mut entries = self.entries();
        let hold = find(&mut entries, &claim.name, claim.id)?;
        hold.expires_at = Clock::Boot.now().plus(ttl);
        hold.connection.clone()
    }

    /// Ends a hold or a reservation, and wakes one who waits for it.
    pub fn remove(&self, name: &LockName, id: ClaimId) -> bool {
        let mut entries = self.entries();
        let hash_map::Entry::Occupied(mut occupied) = entries.entry(name.clone()) else { return false };
        if occupied.get().hold.as_ref().is_none_or(|hold| hold.id != id) {
            return false;
        }
        occupied.get_mut().hold = None;
        settle(occupied);
        true
    }

    /// What a waiter is to do.
    pub fn role(&self, name: &LockName) -> Role {
        let mut entries = self.entries();
        let entry = entries.entry(name.clone()).or_default();
        if entry.hold.is_some() || entry.represented {
            return Role::Listen(Arc::clone(entry.wake.get_or_insert_default()));
        }
        entry.represented = true;
        Role::Represent
    }

    /// The representative stops, with or without the lock.
    pub fn stop_representing(&self, name: &LockName) {
        let mut entries = self.entries();
        if let hash_map::Entry::Occupied(mut occupied) = entries.entry(name.clone()) {
            occupied.get_mut().represented = false;
            settle(occupied);
        }
    }

    /// Every hold there is.
    pub fn all(&self) -> Vec<(LockName, Hold<C>)> {
        let entries = self.entries();
        let holds = entries.iter().filter_map(|(name, entry)| Some((name.clone(), entry.hold.clone()?)));
        holds.collect()
    }
}

impl<C: Connection> Holds<C> {
    /// Notes that somebody asks for a hold to be released, which its owner learns at once; `false` if it is not here.
    pub fn ask(&self, name: &LockName, id: ClaimId) -> bool {
        let connection = match find(&mut self.entries(), name, id) {
            Some(hold) => {
                // The renewals say it as well: the guard may not be made yet.
                hold.asked = true;
                hold.connection.clone()
            }
            None => return false,
        };
        if let Some(connection) = connection {
            connection.lifeline().ask_one(id);
        }
        true
    }
}

fn fresh<C>(claim: &Claim) -> Hold<C> {
    let now = Clock::Boot.now();
    Hold {
        id: claim.id,
        holder: Arc::clone(&claim.holder),
        connection: None,
        token: None,
        since: now,
        waited_from: None,
        expires_at: now.plus(claim.ttl),
        asked: false,
        is_ending: false,
    }
}

/// Wakes the next waiter of a lock that nobody here holds or stands for; forgets a lock without users.
fn settle<C>(occupied: hash_map::OccupiedEntry<'_, LockName, Entry<C>>) {
    let entry = occupied.get();
    if entry.hold.is_some() || entry.represented {
        return;
    }
    if let Some(wake) = &entry.wake {
        wake.notify_one();
        if Arc::strong_count(wake) > 1 {
            return;
        }
    }
    occupied.remove();
}
