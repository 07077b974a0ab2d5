//! What all requests share: the keeper, the sessions, the holds, the settings.

use crate::error::Problem;
use crate::hold::{Held, Trust};
use crate::listings::Listings;
use crate::quota::{Counted, Kind, Quota};
use crate::session::{CLOCK, End, Session};
use crate::settings::Settings;
use crate::tokens::Caller;
use crate::watcher::Watcher;
use axum::http::StatusCode;
use futures_util::future::join_all;
use lockkeeper_core::engine::Moment;
use lockkeeper_core::{Holder, Keeper};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How many ended sessions and holds are remembered, so that their clients get the reason and not just 'unknown'.
const REMEMBERED: usize = 10_000;

/// The server's state. Clones are the same.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) keeper: Keeper,
    pub(crate) settings: Settings,
    pub(crate) quota: Quota,
    pub(crate) listings: Listings,
    pub(crate) watcher: Watcher,
    pub(crate) figures: Figures,
    pub(crate) started: Moment,
    /// Set when the server ends: no new sessions and holds, and waits end.
    ending: watch::Sender<bool>,
    /// Whether what is held then stays as long as its session, instead of as long as its client trusts it.
    drains: watch::Sender<bool>,
    book: Mutex<Book>,
}

/// What this server has done since it started.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) granted: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) silent: AtomicU64,
}

/// All sessions and holds by their ids.
#[derive(Default)]
struct Book {
    sessions: HashMap<String, Arc<Session>>,
    /// The sessions that were made with a key, by token and key, and what was asked for.
    keys: HashMap<(Arc<str>, String), (String, String)>,
    holds: HashMap<String, Arc<Held>>,
    ended_sessions: Remembered<(Arc<str>, End)>,
    ended_holds: Remembered<Arc<Held>>,
}

/// The last ones by their ids.
struct Remembered<T> {
    by_id: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Remembered<T> {
    fn insert(&mut self, id: String, what: T) {
        if self.by_id.insert(id.clone(), what).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }
}

impl Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// A new id: nobody can guess it.
pub(crate) fn new_id(kind: &str) -> String {
    format!("{kind}_{:032x}", rand::random::<u128>())
}

impl App {
    pub(crate) fn new(keeper: Keeper, settings: Settings) -> Self {
        let listings = Listings::new(keeper.clone());
        let watcher = Watcher::new(listings.clone());
        let ((ending, _), (drains, _)) = (watch::channel(false), watch::channel(settings.drain));
        Self(Arc::new(Inner {
            keeper,
            settings,
            quota: Quota::default(),
            listings,
            watcher,
            figures: Figures::default(),
            started: CLOCK.now(),
            ending,
            drains,
            book: Mutex::default(),
        }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, kind: Kind, caller: &Arc<str>) -> Result<Counted, Problem> {
        self.quota.take(kind, caller, &self.settings.limits)
    }

    /// Makes a session, or finds the one that was made with this key, beside which stands what was asked for.
    pub(crate) fn make_session(
        &self,
        caller: &Caller,
        ttl: Duration,
        holder: Holder,
        key: Option<(String, String)>,
        heard: Moment,
    ) -> Result<Arc<Session>, Problem> {
        self.check_not_ending()?;
        let keeper = self.keeper.for_holder(holder.clone())?;
        let mut book = self.book();
        let (key, asks) = key.map(|(key, asks)| ((Arc::clone(&caller.name), key), asks)).unzip();
        if let Some((id, before)) = key.as_ref().and_then(|key| book.keys.get(key))
            && let Some(known) = book.sessions.get(id).cloned()
        {
            if asks.as_ref() != Some(before) {
                return Err(Problem::key_reused("session"));
            }
            drop(book);
            known.hear(heard).map_err(End::problem)?;
            return Ok(known);
        }
        let counted = self.count(Kind::Session, &caller.name)?;
        let session =
            Session::new(new_id("s"), Arc::clone(&caller.name), ttl, keeper, holder, heard, counted);
        let session = Arc::new(session);
        book.sessions.insert(session.id.clone(), Arc::clone(&session));
        if let Some((key, asks)) = key.clone().zip(asks) {
            book.keys.insert(key, (session.id.clone(), asks));
        }
        drop(book);
        tokio::spawn(self.clone().keep(Arc::clone(&session), key));
        Ok(session)
    }

    /// Waits for the end of a session and releases all that it holds.
    async fn keep(self, session: Arc<Session>, key: Option<(Arc<str>, String)>) {
        session.when_silent_or_ended().await;
        let end = session.has_ended().unwrap_or(End::Silent);
        if end == End::Silent {
            self.figures.silent.fetch_add(1, Relaxed);
            tracing::info!(session = %&session.id[..8], "a session fell silent; releasing what it holds");
        }
        {
            let mut book = self.book();
            book.sessions.remove(&session.id);
            book.ended_sessions.insert(session.id.clone(), (Arc::clone(&session.token), end));
            if let Some(key) = &key
                && book.keys.get(key).is_some_and(|(id, _)| *id == session.id)
            {
                book.keys.remove(key);
            }
        }
        self.release_all(&session).await;
    }

    /// Releases what a session holds that has ended.
    ///
    /// Cancel safety: when dropped, the release goes on.
    pub(crate) async fn release_all(&self, session: &Arc<Session>) {
        let (app, session) = (self.clone(), Arc::clone(session));
        let releasing = tokio::spawn(async move {
            let _releasing = session.releasing.lock().await;
            let holds = session.take_holds();
            join_all(holds.iter().map(|held| async {
                held.end_with(session.has_ended().unwrap_or(End::Deleted)).await;
                app.forget_hold(held);
            }))
            .await;
        });
        let _ = releasing.await;
    }

    /// The session of this id, if it is this caller's. Its client was heard at this moment.
    pub(crate) fn session(&self, caller: &Caller, id: &str, heard: Moment) -> Result<Arc<Session>, Problem> {
        let book = self.book();
        let known = book.sessions.get(id).filter(|session| session.token == caller.name).cloned();
        let ended =
            book.ended_sessions.by_id.get(id).filter(|(token, _)| *token == caller.name).map(|(_, end)| *end);
        drop(book);
        match (known, ended) {
            (Some(session), _) => session.hear(heard).map(|()| session).map_err(End::problem),
            (None, Some(end)) => Err(end.problem()),
            (None, None) => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_session",
                "there is no such session, or it is another token's: make one with POST /v1/sessions",
            )),
        }
    }

    /// The hold of this id, if it is this caller's, whether or not it has ended. Its client was heard at this moment.
    pub(crate) fn hold(&self, caller: &Caller, id: &str, heard: Moment) -> Result<Arc<Held>, Problem> {
        let book = self.book();
        let held = book.holds.get(id).or_else(|| book.ended_holds.by_id.get(id)).cloned();
        drop(book);
        let held = held.filter(|held| held.session.token == caller.name).ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_hold",
                "there is no such hold, or it is another token's: ask for one with POST /v1/holds",
            )
        })?;
        if !held.is_over() {
            held.session.hear(heard).map_err(End::problem)?;
        }
        Ok(held)
    }

    pub(crate) fn add_hold(&self, held: &Arc<Held>) -> Result<(), Problem> {
        held.session.add(held)?;
        self.book().holds.insert(held.id.clone(), Arc::clone(held));
        self.figures.granted.fetch_add(1, Relaxed);
        self.watcher.is_granted(held);
        Ok(())
    }

    /// A hold has ended; its client may still ask how.
    pub(crate) fn forget_hold(&self, held: &Arc<Held>) {
        held.session.remove(&held.id);
        if held.is_lost() {
            self.figures.lost.fetch_add(1, Relaxed);
        }
        self.watcher.is_over(held);
        let mut book = self.book();
        book.holds.remove(&held.id);
        book.ended_holds.insert(held.id.clone(), Arc::clone(held));
    }

    /// The claims that this server holds for clients, and that the engine has not confirmed lately.
    pub(crate) fn uncertain_claims(&self) -> HashSet<String> {
        let holds: Vec<Arc<Held>> = self.book().holds.values().cloned().collect();
        let uncertain = holds.iter().filter(|held| held.trust().0 == Trust::Uncertain);
        uncertain.flat_map(|held| held.tokens.iter().map(|token| token.claim.clone())).collect()
    }

    pub(crate) fn check_not_ending(&self) -> Result<(), Problem> {
        if *self.ending.borrow() {
            return Err(ending());
        }
        Ok(())
    }

    /// Resolves when the server ends.
    pub(crate) async fn when_ending(&self) -> Problem {
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await.map(drop);
        ending()
    }

    /// Resolves when the server ends and does not drain.
    pub(crate) async fn when_releasing(&self) {
        self.when_ending().await;
        let _ = self.drains.subscribe().wait_for(|drains| !drains).await.map(drop);
    }

    /// Ends: no new holds, waits end. Holds are kept until no client trusts them any more, or with `drain` to the end of their
    /// sessions.
    pub(crate) async fn end(&self) {
        self.ending.send_replace(true);
        let sessions: Vec<Arc<Session>> = self.book().sessions.values().cloned().collect();
        for session in &sessions {
            session.close();
        }
        tokio::select! {
            _ = join_all(sessions.iter().map(|session| drained(session, Moment::NEVER))) => {}
            () = self.when_releasing() => {}
        }
        join_all(sessions.iter().map(|session| async {
            drained(session, session.end_within(self.keeper.ttl())).await;
            session.end(End::ServerEnded);
            self.release_all(session).await;
        }))
        .await;
    }

    /// What is held does not stay to the end of its session any more.
    pub(crate) fn stop_draining(&self) {
        self.drains.send_replace(false);
    }
}

/// Resolves when a session holds nothing, or has ended, or at this moment.
async fn drained(session: &Session, by: Moment) {
    tokio::select! {
        () = session.when_empty() => {}
        _ = session.when_ended() => {}
        () = CLOCK.sleep_until(by) => {}
    }
}

/// The refusal of a server that ends.
pub(crate) fn ending() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "ending",
        "this server ends: ask another one, or the same later",
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lockkeeper_core::Demand;
    use lockkeeper_core::engine::Memory;
    use std::time::SystemTime;

    /// A server on locks in memory, and a session of it.
    pub(crate) fn app_and_session() -> (App, Arc<Session>) {
        let app = App::new(Keeper::builder().build(Memory::engine()).unwrap(), Settings::default());
        let holder = Holder { text: "a".into(), host: "b".into(), pid: 1 };
        let ttl = Duration::from_secs(60);
        let session = app.make_session(&Caller::anybody(), ttl, holder, None, CLOCK.now()).unwrap();
        (app, session)
    }

    /// A hold of this session that the server has not entered.
    pub(crate) async fn held(app: &App, session: &Arc<Session>) -> Arc<Held> {
        let guard = session.keeper.all(["a"]).lock().await.unwrap();
        let counted = app.count(Kind::Hold, &session.token).unwrap();
        let held = Held::new(None, session, Demand::Exclusive, guard, counted, SystemTime::now());
        Arc::new(held.unwrap())
    }

    /// Else its client would be given a deadline that the end does not wait for.
    #[tokio::test]
    async fn a_session_that_closes_takes_no_hold() {
        let (app, session) = app_and_session();
        let held = held(&app, &session).await;
        session.close();
        assert_eq!(app.add_hold(&held).unwrap_err().code, "ending");
        session.when_empty().await;
    }

    /// Thousands of sessions drain, and cost nothing until something happens.
    #[tokio::test]
    async fn a_session_drains_without_a_poll() {
        let (app, session) = app_and_session();
        let held = held(&app, &session).await;
        app.add_hold(&held).unwrap();
        held.release().await.unwrap();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let mut draining = std::pin::pin!(drained(&session, Moment::NEVER));
        assert!(futures_util::poll!(draining.as_mut()).is_pending());
        app.forget_hold(&held);
        draining.await;
        assert_eq!(began.elapsed(), Duration::ZERO, "it waited for a timer");
    }
}
