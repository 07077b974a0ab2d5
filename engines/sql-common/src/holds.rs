//! The map in front of session locks: who of this process holds what, on which connection.
//!
//! A server's session locks are re-entrant per connection, so two claims of one process on one connection
//! would both win. Here only one claim of a process at a time gets as far as the server.

use lockkeeper_core::{Claim, ClaimId, Clock, Holder, LockName, Moment, Token};
use std::collections::{HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// One claim of this process that takes or holds a lock.
#[derive(Debug)]
pub struct Hold<C> {
    /// The claim.
    pub id: ClaimId,
    /// Who stands behind it.
    pub holder: Arc<Holder>,
    /// The connection which holds it, once chosen.
    pub connection: Option<Arc<C>>,
    /// The token, once it holds.
    pub token: Option<Token>,
    /// Since when.
    pub since: Moment,
    /// Until when it holds unless it is renewed: a keeper that hangs must not hold for ever.
    pub expires_at: Moment,
    /// Somebody ends it.
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
    /// What those who wait listen to, if anybody does.
    bell: Option<Arc<Notify>>,
}

impl<C> Default for Entry<C> {
    fn default() -> Self {
        Self { hold: None, represented: false, bell: None }
    }
}

/// What a claim finds when it wants to take a lock.
#[derive(Debug)]
pub enum Reserved<C> {
    /// It holds already: a second attempt of the same claim, or its wait was successful.
    Mine(Arc<C>, Token),
    /// Another claim of this process is ahead.
    Busy,
    /// Nobody of this process: go to the server.
    Free,
}

/// What a waiter does.
#[derive(Debug)]
pub enum Role {
    /// Waits until the bell rings.
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
            && let Some(hold) = find(&mut self.holds.book(), self.name, self.id)
        {
            hold.is_ending = false;
        }
        self.holds.ended.notify_waiters();
    }
}

/// The map.
#[derive(Debug)]
pub struct Holds<C> {
    book: Mutex<HashMap<LockName, Entry<C>>>,
    /// Rings for those who want to end what somebody else was ending.
    ended: Notify,
}

impl<C> Default for Holds<C> {
    fn default() -> Self {
        Self { book: Mutex::default(), ended: Notify::new() }
    }
}

fn find<'a, C>(
    book: &'a mut HashMap<LockName, Entry<C>>,
    name: &LockName,
    id: ClaimId,
) -> Option<&'a mut Hold<C>> {
    book.get_mut(name)?.hold.as_mut().filter(|hold| hold.id == id)
}

impl<C> Holds<C> {
    fn book(&self) -> MutexGuard<'_, HashMap<LockName, Entry<C>>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the lock for this claim, which will take it on this connection if it is chosen already. It stays reserved
    /// until [`remove`](Self::remove), and its TTL counts from here: what the claim is trusted for began before.
    pub fn reserve(&self, claim: &Claim, connection: Option<&Arc<C>>) -> Reserved<C> {
        let mut book = self.book();
        let entry = book.entry(claim.name.clone()).or_default();
        let hold = entry.hold.get_or_insert_with(|| fresh(claim));
        if hold.id != claim.id {
            return Reserved::Busy;
        }
        if let (Some(connection), Some(token)) = (&hold.connection, hold.token) {
            hold.expires_at = Clock::Boot.now().plus(claim.ttl);
            return Reserved::Mine(Arc::clone(connection), token);
        }
        hold.connection = connection.cloned();
        Reserved::Free
    }

    /// Enters the connection on which a reserved claim will be taken; `false` if it has been removed in the meantime.
    pub fn choose(&self, claim: &Claim, connection: &Arc<C>) -> bool {
        let mut book = self.book();
        let hold = find(&mut book, &claim.name, claim.id);
        hold.map(|hold| hold.connection = Some(Arc::clone(connection))).is_some()
    }

    /// Enters the token of a claim that holds now; `false` if it has been removed in the meantime.
    pub fn granted(&self, claim: &Claim, token: Token) -> bool {
        find(&mut self.book(), &claim.name, claim.id).map(|hold| hold.token = Some(token)).is_some()
    }

    /// Enters what a representative got while it waited.
    pub fn enter_taken(&self, claim: &Claim, connection: &Arc<C>, token: Token) -> bool {
        let mut book = self.book();
        let entry = book.entry(claim.name.clone()).or_default();
        if entry.hold.is_some() {
            return false;
        }
        entry.hold =
            Some(Hold { connection: Some(Arc::clone(connection)), token: Some(token), ..fresh(claim) });
        true
    }

    /// The right to end this claim's hold or reservation, once nobody else has it; `None` if there is none any more.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn end<'a>(&'a self, name: &'a LockName, id: ClaimId) -> Option<Ending<'a, C>> {
        loop {
            let ended = {
                let mut book = self.book();
                let hold = find(&mut book, name, id)?;
                if !std::mem::replace(&mut hold.is_ending, true) {
                    let (connection, is_held) = (hold.connection.clone(), hold.token.is_some());
                    return Some(Ending { holds: self, name, id, is_done: false, connection, is_held });
                }
                // From here on it hears, so that an end between this look and the wait is not missed.
                self.ended.notified()
            };
            ended.await;
        }
    }

    /// Whether this claim holds or has reserved the lock.
    pub fn contains(&self, name: &LockName, id: ClaimId) -> bool {
        find(&mut self.book(), name, id).is_some()
    }

    /// Keeps a hold for this long from now on; its connection, or `None` if it is not there.
    pub fn renew(&self, claim: &Claim, ttl: Duration) -> Option<Arc<C>> {
        let mut book = self.book();
        let hold = find(&mut book, &claim.name, claim.id)?;
        hold.expires_at = Clock::Boot.now().plus(ttl);
        hold.connection.clone()
    }

    /// Ends a hold or a reservation, and wakes one who waits for it.
    pub fn remove(&self, name: &LockName, id: ClaimId) -> bool {
        let mut book = self.book();
        let hash_map::Entry::Occupied(mut line) = book.entry(name.clone()) else { return false };
        if line.get().hold.as_ref().is_none_or(|hold| hold.id != id) {
            return false;
        }
        line.get_mut().hold = None;
        settle(line);
        true
    }

    /// What a waiter is to do.
    pub fn role(&self, name: &LockName) -> Role {
        let mut book = self.book();
        let entry = book.entry(name.clone()).or_default();
        if entry.hold.is_some() || entry.represented {
            return Role::Listen(Arc::clone(entry.bell.get_or_insert_default()));
        }
        entry.represented = true;
        Role::Represent
    }

    /// The representative stops, with or without the lock.
    pub fn stop_representing(&self, name: &LockName) {
        let mut book = self.book();
        if let hash_map::Entry::Occupied(mut line) = book.entry(name.clone()) {
            line.get_mut().represented = false;
            settle(line);
        }
    }

    /// Every hold there is.
    pub fn all(&self) -> Vec<(LockName, Hold<C>)> {
        let book = self.book();
        let holds = book.iter().filter_map(|(name, entry)| Some((name.clone(), entry.hold.clone()?)));
        holds.collect()
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
        expires_at: now.plus(claim.ttl),
        is_ending: false,
    }
}

/// Wakes the next waiter of a lock that nobody here holds or stands for; forgets a lock without users.
fn settle<C>(line: hash_map::OccupiedEntry<'_, LockName, Entry<C>>) {
    let entry = line.get();
    if entry.hold.is_some() || entry.represented {
        return;
    }
    if let Some(bell) = &entry.bell {
        bell.notify_one();
        if Arc::strong_count(bell) > 1 {
            return;
        }
    }
    line.remove();
}
