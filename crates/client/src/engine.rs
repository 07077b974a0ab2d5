//! The outer seam over HTTP.

use crate::http::{ENGINE, Server};
use crate::session::Session;
use crate::wire::{self, About, Hold, Locks, Problem};
use hyper::Method;
use lockkeeper_core::engine::{
    Attached, Attempt, BoxFuture, Claim, ClaimId, Clock, Engine, Grant, Kept, Left, LockName, Moment,
    Renewal, background,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const CLOCK: Clock = Clock::Boot;

/// After this time a waiting request is sent again with the same key: whatever is between may close a silent connection.
const POLL: Duration = Duration::from_secs(25);

/// The first heartbeat of a wait, whose request the server keeps, if the session has been silent before: in time for the wait not
/// to count as one without any reply.
const FIRST_BEAT: Duration = Duration::from_millis(500);

/// What a request for a hold came to.
enum Requested {
    /// The hold, and when the request was sent.
    Granted(Hold, Moment),
    /// The server kept it for too long: the same request is to be sent again.
    Cut,
    /// The session is over, and the claim is not at the server.
    SessionOver,
}

/// A server with lockkeeper behind it.
#[derive(Debug)]
pub(crate) struct Http {
    server: Server,
    ttl: Duration,
    abilities: Abilities,
    /// The session of the moment; a new one replaces one that has ended.
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    /// The session of each claim that was sent.
    claims: Mutex<HashMap<ClaimId, Arc<Session>>>,
}

impl Http {
    pub(crate) async fn open(server: Server, ttl: Duration) -> Result<Self> {
        let doing = "reach the server";
        let reply = server.send(Method::GET, "/v1/server", None, None, doing).await?;
        if reply.status != 200 {
            return Err(Problem::of(&reply).error(reply.status, doing));
        }
        let about = reply.read::<About>(doing)?;
        // No deadline goes beyond the TTL that the server has at its engine, so renewals must keep to that.
        let (ttl, abilities) = (ttl.min(about.engine_ttl()), about.abilities());
        Ok(Self { server, ttl, abilities, session: tokio::sync::Mutex::default(), claims: Mutex::default() })
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Session>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_of(&self, claim: ClaimId) -> Option<Arc<Session>> {
        self.claims().get(&claim).cloned()
    }

    async fn session(&self, claim: &Claim) -> Result<Arc<Session>> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        // Others wait for it, too.
        let made = Clock::Boot.timeout(self.ttl, Session::make(&self.server, claim, self.ttl)).await;
        let made = made.unwrap_or_else(|_| Err(Error::temporary(ENGINE, "make a session", "no reply")))?;
        *session = Some(Arc::clone(&made));
        Ok(made)
    }

    /// The server says that this session is over: the next claim gets a new one.
    async fn forget(&self, over: &Arc<Session>) {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, over)) {
            *session = None;
        }
    }

    /// Whether the refusal says that the session is over.
    fn is_over(problem: &Problem) -> bool {
        matches!(problem.code.as_str(), "session_ended" | "unknown_session")
    }

    /// One request for the hold, from its send to the server's reply.
    async fn request(&self, attempt: &Attempt, session: &Arc<Session>) -> Result<Requested> {
        let doing = "acquire";
        let claim = attempt.claim();
        let mut body =
            json!({"session": session.id, "names": [claim.name.as_str()], "mode": wire::mode(claim.demand)});
        if !attempt.may_wait() {
            body["wait"] = json!(0);
        }
        let sent = CLOCK.now();
        let key = claim.id.to_string();
        let sending = self.server.send(Method::POST, "/v1/holds", Some(&key), Some(body), doing);
        let Ok(reply) = Clock::Boot.timeout(POLL, sending).await else {
            return Ok(Requested::Cut);
        };
        let reply = reply?;
        session.heard(sent);
        if reply.status == 201 {
            return Ok(Requested::Granted(reply.read(doing)?, sent));
        }
        let problem = Problem::of(&reply);
        if Self::is_over(&problem) {
            self.forget(session).await;
            return Ok(Requested::SessionOver);
        }
        match problem.code.as_str() {
            "busy" => Err(claim.gone()),
            "lost" | "released" => Err(claim.gone()),
            "mismatch" => {
                let lock = self.look_at(&claim.name).await.unwrap_or_default();
                Err(wire::mismatch(claim.name.as_str(), claim.demand.shape(), lock.as_ref()))
            }
            _ => Err(problem.error(reply.status, doing)),
        }
    }

    /// Waits for the hold: each request goes on where the one before was cut. `None` if the session is over.
    async fn wait(&self, attempt: &Attempt, session: &Arc<Session>) -> Result<Option<(Hold, Moment)>> {
        let began = CLOCK.now();
        loop {
            match self.request(attempt, session).await {
                Ok(Requested::Granted(hold, sent)) => return Ok(Some((hold, sent))),
                Ok(Requested::SessionOver) => return Ok(None),
                Ok(Requested::Cut) => {}
                Err(error)
                    if error.is_temporary()
                        && CLOCK.now().since(session.last_heard().max(began)) < self.ttl / 2 =>
                {
                    Clock::Boot.sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the session while a claim waits; holds are kept by their keeper's renewals. Resolves when the session is over, or with
    /// an error when the server has not replied for longer than half the TTL.
    async fn keep_session(&self, attempt: &Attempt, session: &Arc<Session>) -> Result<()> {
        let (began, first_beat) = (CLOCK.now(), FIRST_BEAT.min(self.ttl / 5));
        let mut due = began.plus(first_beat);
        if began.since(session.last_heard()) < first_beat {
            attempt.replied();
            due = session.last_heard().plus(self.ttl / 3);
        }
        loop {
            CLOCK.sleep_until(due).await;
            due = session.last_heard().plus(self.ttl / 3);
            // Another request may have been heard meanwhile.
            if session.last_heard() >= began && CLOCK.now() < due {
                attempt.replied();
                continue;
            }
            match CLOCK.timeout(self.ttl / 4, self.heartbeat(session)).await {
                Ok(Ok(Some(_))) => {
                    attempt.replied();
                    due = session.last_heard().plus(self.ttl / 3);
                }
                Ok(Ok(None)) => return Ok(()),
                _ if CLOCK.now().since(session.last_heard().max(began)) > self.ttl / 2 => {
                    return Err(Error::temporary(ENGINE, "wait for the lock", "the server does not reply"));
                }
                _ => {
                    attempt.failed();
                    due = CLOCK.now().plus(self.ttl / 20);
                }
            }
        }
    }

    /// Says that this client lives; what it holds, or `None` if the session is over.
    async fn heartbeat(&self, session: &Arc<Session>) -> Result<Option<(Vec<Hold>, Moment)>> {
        let doing = "renew";
        let sent = CLOCK.now();
        let path = format!("/v1/sessions/{}/heartbeat", session.id);
        let reply = self.server.send(Method::POST, &path, None, None, doing).await?;
        if reply.status == 200 {
            session.heard(sent);
            return Ok(Some((reply.read::<wire::Session>(doing)?.holds, sent)));
        }
        let problem = Problem::of(&reply);
        if Self::is_over(&problem) {
            self.forget(session).await;
            return Ok(None);
        }
        Err(problem.error(reply.status, doing))
    }

    /// The moment from which the keeper must count the claim's TTL, so that it trusts the hold to this deadline and no longer. The
    /// keeper's own margin is at least 1 % of the TTL.
    fn counted_from(&self, deadline: Moment) -> Moment {
        deadline.plus(self.ttl / 100).minus(self.ttl)
    }

    async fn acquire(&self, attempt: &Attempt) -> Result<Option<Grant>> {
        let claim = attempt.claim();
        let mut is_first = true;
        let (session, granted) = loop {
            let session = self.session(claim).await?;
            self.claims().insert(claim.id, Arc::clone(&session));
            attempt.sending();
            let granted = tokio::select! {
                granted = self.wait(attempt, &session) => granted,
                over = self.keep_session(attempt, &session) => over.map(|()| None),
            };
            match granted {
                // A session ends while its client requests nothing, and that says nothing about the lock.
                Ok(None) if std::mem::take(&mut is_first) => {}
                Ok(None) => return Err(Error::temporary(ENGINE, "acquire", "the session has ended")),
                Ok(Some(granted)) => break (session, Ok(granted)),
                Err(error) => break (session, Err(error)),
            }
        };
        let (hold, sent) = match granted {
            Ok(granted) => granted,
            Err(Error::Lost { .. }) if !attempt.may_wait() => {
                attempt.absent();
                self.claims().remove(&claim.id);
                return Ok(None);
            }
            Err(error) => {
                if matches!(error, Error::Mismatch { .. }) {
                    attempt.absent();
                    self.claims().remove(&claim.id);
                }
                return Err(error);
            }
        };
        session.add(claim.id, hold.hold.clone());
        let mut deadline = sent.plus(hold.waited()).plus(hold.valid_for());
        if deadline.since(CLOCK.now()) < self.ttl / 4 {
            deadline = self.look_again(&session, &hold).await?;
        }
        attempt.joined(self.counted_from(deadline), None);
        Ok(Some(Grant { token: hold.token()? }))
    }

    /// The deadline of a hold whose grant was long on its way.
    async fn look_again(&self, session: &Arc<Session>, hold: &Hold) -> Result<Moment> {
        let sent = CLOCK.now();
        let found = self
            .heartbeat(session)
            .await?
            .and_then(|(holds, _)| holds.into_iter().find(|one| one.hold == hold.hold));
        Ok(found.map_or(sent, |hold| sent.plus(hold.valid_for())))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Kept> {
        let mut by_session: HashMap<String, (Arc<Session>, Vec<&Renewal>)> = HashMap::new();
        let mut dead = Vec::new();
        for renewal in renewals {
            match self.session_of(renewal.claim.id) {
                Some(session) => {
                    by_session
                        .entry(session.id.clone())
                        .or_insert_with(|| (session, Vec::new()))
                        .1
                        .push(renewal);
                }
                None => dead.push(renewal.claim.id),
            }
        }
        let mut as_of: Option<Moment> = None;
        for (session, renewals) in by_session.into_values() {
            let Some((holds, sent)) = self.heartbeat(&session).await? else {
                dead.extend(renewals.iter().map(|renewal| renewal.claim.id));
                continue;
            };
            self.release_unknown(&holds);
            for renewal in renewals {
                let id = renewal.claim.id;
                let hold = session.hold(id).and_then(|hold| holds.iter().find(|one| one.hold == hold));
                match hold.filter(|hold| hold.state != "lost") {
                    Some(hold) => {
                        let from = self.counted_from(sent.plus(hold.valid_for()));
                        as_of = Some(as_of.map_or(from, |earlier| earlier.min(from)));
                    }
                    None => dead.push(id),
                }
            }
        }
        Ok(Kept::new(dead).as_of(as_of))
    }

    /// Releases what the server holds for no claim of this client: a late copy of a request was granted.
    fn release_unknown(&self, holds: &[Hold]) {
        for hold in holds.iter().filter(|hold| hold.state != "lost") {
            // A claim is known from before its request is sent until its leave has a reply.
            let claim = hold.key.as_ref().and_then(|key| key.parse::<ClaimId>().ok());
            if claim.is_some_and(|claim| self.session_of(claim).is_none()) {
                let (server, path) = (self.server.clone(), format!("/v1/holds/{}", hold.hold));
                // If it fails, the next heartbeat lists it again.
                background::handle().spawn(async move {
                    let _ = server.send(Method::DELETE, &path, None, None, "release").await;
                });
            }
        }
    }

    /// Takes the claim's request back by its key, whatever it has come to: a wait, a hold, or nothing yet.
    async fn leave(&self, claim: &Claim) -> Result<Left> {
        let doing = "release";
        let Some(session) = self.session_of(claim.id) else { return Ok(Left::NotThere) };
        let path = format!("/v1/sessions/{}/requests/{}", session.id, claim.id);
        let sent = CLOCK.now();
        let reply = self.server.send(Method::DELETE, &path, None, None, doing).await?;
        let left = match reply.status {
            204 => Left::Left,
            404 | 410 => Left::NotThere,
            status => return Err(Problem::of(&reply).error(status, doing)),
        };
        session.heard(sent);
        session.remove(claim.id);
        self.claims().remove(&claim.id);
        Ok(left)
    }

    async fn shrink(&self, claim: &Claim, to: Demand) -> Result<()> {
        let doing = "downgrade";
        if to != Demand::Shared {
            return Err(Error::invalid("through a server a hold can only become a shared one"));
        }
        let hold = self
            .session_of(claim.id)
            .and_then(|session| session.hold(claim.id))
            .ok_or_else(|| claim.gone())?;
        let path = format!("/v1/holds/{hold}/downgrade");
        let reply = self.server.send(Method::POST, &path, None, None, doing).await?;
        match reply.status {
            200 => Ok(()),
            404 | 410 => Err(claim.gone()),
            status => Err(Problem::of(&reply).error(status, doing)),
        }
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let doing = "list locks";
        let path = format!("/v1/locks?limit={}&prefix={}", at_most.clamp(1, 10_000), escape(prefix, false));
        let reply = self.server.send(Method::GET, &path, None, None, doing).await?;
        match reply.status {
            200 => reply.read::<Locks>(doing)?.locks.into_iter().map(wire::Lock::view).collect(),
            status => Err(Problem::of(&reply).error(status, doing)),
        }
    }

    async fn look_at(&self, name: &LockName) -> Result<Option<LockView>> {
        let doing = "look at a lock";
        let path = format!("/v1/locks/{}", escape(name.as_str(), true));
        let reply = self.server.send(Method::GET, &path, None, None, doing).await?;
        match reply.status {
            200 => Ok(Some(reply.read::<wire::Lock>(doing)?.view()?).filter(|lock| !lock.claims.is_empty())),
            status => Err(Problem::of(&reply).error(status, doing)),
        }
    }

    async fn remove(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let doing = "evict a claim";
        let path = format!("/v1/locks/{}/claims/{id}", escape(name.as_str(), true));
        let reply = self.server.send(Method::DELETE, &path, None, None, doing).await?;
        match reply.status {
            204 => Ok(true),
            404 => Ok(false),
            status => Err(Problem::of(&reply).error(status, doing)),
        }
    }
}

/// Text for a URL; in a path, slashes stand as they are.
fn escape(text: &str, is_path: bool) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || (is_path && byte == b'/');
    text.bytes().fold(String::new(), |mut escaped, byte| {
        match plain(byte) {
            true => escaped.push(byte.into()),
            false => escaped += &format!("%{byte:02X}"),
        }
        escaped
    })
}

impl lockkeeper_core::engine::sealed::Sealed for Http {}

impl Engine for Http {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn clock(&self) -> Clock {
        CLOCK
    }

    fn ttl(&self, asked: Duration) -> Duration {
        asked.min(self.ttl)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, Result<Option<Grant>>> {
        Box::pin(self.acquire(attempt))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Result<Kept>> {
        Box::pin(self.renew(renewals))
    }

    fn attach<'a>(&'a self, _: &'a Renewal, _: Token) -> BoxFuture<'a, Result<Option<Attached>>> {
        Box::pin(async { Err(Error::invalid("a hold cannot be taken over through a server")) })
    }

    fn detached(&self, _: &Claim) {}

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Left>> {
        Box::pin(self.leave(claim))
    }

    fn shrink<'a>(&'a self, claim: &'a Claim, to: Demand) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.shrink(claim, to))
    }

    fn inspect<'a>(&'a self, prefix: &'a str, at_most: usize) -> BoxFuture<'a, Result<Vec<LockView>>> {
        Box::pin(self.list(prefix, at_most))
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockView>>> {
        Box::pin(self.look_at(name))
    }

    fn evict<'a>(&'a self, name: &'a LockName, id: ClaimId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.remove(name, id))
    }

    fn ask<'a>(&'a self, _: &'a LockName, _: ClaimId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Err(self.abilities.cannot_ask()) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Some(session) = self.session.lock().await.take() else { return };
            let path = format!("/v1/sessions/{}", session.id);
            // If it fails, the session's TTL ends it.
            let ending = self.server.send(Method::DELETE, &path, None, None, "end the session");
            let _ = Clock::Boot.timeout(Duration::from_secs(1), ending).await;
        })
    }
}
