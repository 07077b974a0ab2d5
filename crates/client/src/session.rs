//! The session at the server that stands for this keeper: made when it is first needed, made anew when it has ended.

use crate::http::Server;
use crate::wire::{self, Problem};
use hyper::Method;
use lockkeeper_core::Result;
use lockkeeper_core::engine::{Claim, ClaimId, Clock, Moment};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the last request was sent that the server has heard.
    heard: Moment,
    /// The server's name for each claim that holds.
    holds: HashMap<ClaimId, String>,
}

impl Session {
    /// Makes one for this claim's keeper. The key is chosen before anything is sent, so that a lost reply leaves no second one.
    pub(crate) async fn make(server: &Server, claim: &Claim, ttl: Duration) -> Result<Arc<Self>> {
        let doing = "make a session";
        let (holder, sent) = (&claim.holder, Clock::Boot.now());
        let body = json!({
            "ttl": u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            "holder": {"who": holder.text, "host": holder.host, "pid": holder.pid},
        });
        let key = format!("{}-{}", claim.keeper, ClaimId::random());
        let reply = server.send(Method::POST, "/v1/sessions", Some(&key), Some(body), doing).await?;
        if reply.status != 201 {
            return Err(Problem::of(&reply).error(reply.status, doing));
        }
        let session: wire::Session = reply.read(doing)?;
        let state = State { heard: sent, holds: HashMap::new() };
        Ok(Arc::new(Self { id: session.session, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has heard a request that was sent at this moment.
    pub(crate) fn heard(&self, sent: Moment) {
        let mut state = self.state();
        state.heard = state.heard.max(sent);
    }

    pub(crate) fn last_heard(&self) -> Moment {
        self.state().heard
    }

    pub(crate) fn add(&self, claim: ClaimId, hold: String) {
        self.state().holds.insert(claim, hold);
    }

    pub(crate) fn remove(&self, claim: ClaimId) {
        self.state().holds.remove(&claim);
    }

    pub(crate) fn hold(&self, claim: ClaimId) -> Option<String> {
        self.state().holds.get(&claim).cloned()
    }
}
