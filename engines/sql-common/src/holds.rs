//! The map in front of session locks: who of this process holds what, on which connection.
//!
//! A server's session locks are re-entrant per connection, so two claims of one process on one connection
//! would both win. Here only one claim of a process at a time gets as far as the server.

use lockkeeper_core::{Claim, ClaimId, Clock, Holder, LockName, Moment, NameMap, Token};
use std::collections::hash_map;
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
    /// Whoever ends it has this: freed twice at the server, it could be freed under somebody else.
    pub ending: Arc<tokio::sync::Mutex<()>>,
}

impl<C> Clone for Hold<C> {
    fn clone(&self) -> Self {
        let Self { id, holder, connection, token, since, expires_at, ending } = self;
        Self {
            id: *id,
            holder: Arc::clone(holder),
            connection: connection.clone(),
            token: *token,
            since: *since,
            expires_at: *expires_at,
            ending: Arc::clone(ending),
        }
    }
}

#[derive(Debug)]
struct Entry<C> {
    hold: Option<Hold<C>>,
    /// One of our waiters stands for all of them at the server.
    represented: bool,
    bell: Arc<Notify>,
}

impl<C> Default for Entry<C> {
    fn default() -> Self {
        Self { hold: None, represented: false, bell: Arc::default() }
    }
}

/// What a claim finds when it wants to take a lock.
#[derive(Debug)]
pub enum Reserved<C> {
    /// It holds already: a second attempt of the same claim, or its wait was successful.
    Mine(Hold<C>),
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

/// The map.
#[derive(Debug)]
pub struct Holds<C>(Mutex<NameMap<Entry<C>>>);

impl<C> Default for Holds<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Holds<C> {
    fn book(&self) -> MutexGuard<'_, NameMap<Entry<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the lock for this claim. It stays reserved until [`remove`](Self::remove).
    pub fn reserve(&self, claim: &Claim) -> Reserved<C> {
        let mut book = self.book();
        let entry = book.entry(claim.name.clone()).or_default();
        match &entry.hold {
            Some(hold) if hold.id == claim.id => Reserved::Mine(hold.clone()),
            Some(_) => Reserved::Busy,
            None => {
                entry.hold = Some(fresh(claim));
                Reserved::Free
            }
        }
    }

    /// Enters what a reserved claim got: first the connection, then the token. `false` if the claim has been
    /// removed in the meantime.
    pub fn enter(&self, claim: &Claim, connection: &Arc<C>, token: Option<Token>) -> bool {
        let mut book = self.book();
        let hold = book.get_mut(&claim.name).and_then(|entry| entry.hold.as_mut());
        let Some(hold) = hold.filter(|hold| hold.id == claim.id) else { return false };
        hold.connection = Some(Arc::clone(connection));
        hold.token = token;
        hold.expires_at = Clock::Boot.now().plus(claim.ttl);
        true
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

    /// The hold of this claim.
    pub fn find(&self, name: &LockName, id: ClaimId) -> Option<Hold<C>> {
        self.book().get(name)?.hold.as_ref().filter(|hold| hold.id == id).cloned()
    }

    /// Keeps a hold for this long from now on; its connection, or `None` if it is not there.
    pub fn renew(&self, claim: &Claim, ttl: Duration) -> Option<Arc<C>> {
        let mut book = self.book();
        let hold = book.get_mut(&claim.name)?.hold.as_mut().filter(|hold| hold.id == claim.id)?;
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
            return Role::Listen(Arc::clone(&entry.bell));
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
        ending: Arc::default(),
    }
}

/// Wakes the next waiter of a lock that nobody here holds or stands for; forgets a lock without users.
fn settle<C>(line: hash_map::OccupiedEntry<'_, LockName, Entry<C>>) {
    let entry = line.get();
    if entry.hold.is_some() || entry.represented {
        return;
    }
    entry.bell.notify_one();
    if Arc::strong_count(&entry.bell) == 1 {
        line.remove();
    }
}
