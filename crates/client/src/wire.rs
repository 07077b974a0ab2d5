//! What travels over HTTP, as this side reads it.

use crate::http::{ENGINE, Reply};
use lockkeeper_core::{
    Abilities, ClaimView, Demand, Error, Holder, LockView, Result, Shape, Standing, Token,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// A session.
#[derive(Debug, Deserialize)]
pub(crate) struct Session {
    pub(crate) session: String,
    #[serde(default)]
    pub(crate) holds: Vec<Hold>,
}

/// A hold.
#[derive(Debug, Deserialize)]
pub(crate) struct Hold {
    pub(crate) hold: String,
    /// The key of the request that asked for it, which is the claim's id.
    pub(crate) key: Option<String>,
    pub(crate) state: String,
    valid_for_ms: u64,
    tokens: Vec<NamedToken>,
    #[serde(default)]
    waited_ms: u64,
}

#[derive(Debug, Deserialize)]
struct NamedToken {
    token: u64,
}

impl Hold {
    pub(crate) fn valid_for(&self) -> Duration {
        Duration::from_millis(self.valid_for_ms)
    }

    /// How long the server kept the request, less 1 % for clocks of different rates.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_millis(self.waited_ms) * 99 / 100
    }

    pub(crate) fn token(&self) -> Result<Token> {
        let token = self.tokens.first().map(|named| Token(named.token));
        token.ok_or_else(|| Error::permanent(ENGINE, "read a hold", "it has no token"))
    }
}

/// A refusal.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    pub(crate) code: String,
    detail: String,
}

impl Problem {
    /// What a reply that is no success says.
    pub(crate) fn of(reply: &Reply) -> Self {
        let unknown =
            |_| Self { code: String::new(), detail: format!("the reply has the status {}", reply.status) };
        reply.read("read a refusal").unwrap_or_else(unknown)
    }

    /// The error for the caller.
    pub(crate) fn error(self, status: u16, doing: &'static str) -> Error {
        match (status, self.code.as_str()) {
            (_, "invalid" | "unsupported") => Error::invalid(self.detail),
            (429 | 500.., _) => Error::temporary(ENGINE, doing, self.detail),
            _ => Error::permanent(ENGINE, doing, self.detail),
        }
    }
}

/// The mode of a hold, as the server takes it.
pub(crate) fn mode(demand: Demand) -> Value {
    match demand {
        Demand::Permits { want, of } => json!({"permits": want, "of": of}),
        other => json!(other.to_string()),
    }
}

/// The other shape than this one's, for a refusal that says only that it is another.
pub(crate) fn mismatch(name: &str, wanted: Shape, ruling: Option<&LockView>) -> Error {
    let ruling = ruling.and_then(|lock| lock.claims.first()).map(|claim| claim.demand.shape());
    let other = match wanted {
        Shape::ReadWrite => Shape::Permits { of: 0 },
        Shape::Permits { .. } => Shape::ReadWrite,
    };
    Error::Mismatch { name: name.into(), wanted, ruling: ruling.unwrap_or(other) }
}

/// What the server's engine can do.
#[derive(Debug, Deserialize)]
pub(crate) struct About {
    fair: bool,
    shared: bool,
    permits: bool,
    downgrade: bool,
    push: bool,
    token_survives_restart: bool,
    engine_ttl_ms: u64,
}

impl About {
    /// How long a claim of the server's outlives its last renewal.
    pub(crate) fn engine_ttl(&self) -> Duration {
        Duration::from_millis(self.engine_ttl_ms)
    }

    /// What can be done through the server: its locks end with a session.
    pub(crate) fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::new(ENGINE, "session", "http://localhost:7670");
        abilities.fair = self.fair;
        abilities.shared = self.shared;
        abilities.permits = self.permits;
        abilities.downgrade = self.downgrade;
        abilities.push = self.push;
        abilities.token_survives_restart = self.token_survives_restart;
        abilities
    }
}

/// Locks in use.
#[derive(Debug, Deserialize)]
pub(crate) struct Locks {
    pub(crate) locks: Vec<Lock>,
}

/// One lock in use.
#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    name: String,
    claims: Vec<Claim>,
}

#[derive(Debug, Deserialize)]
struct Claim {
    id: String,
    standing: String,
    demand: String,
    #[serde(flatten)]
    holder: Holder,
    token: Option<Token>,
    age_seconds: Option<f64>,
    held_seconds: Option<f64>,
    ttl_left_seconds: Option<f64>,
    foreign: bool,
}

impl Lock {
    pub(crate) fn view(self) -> Result<LockView> {
        let claims = self.claims.into_iter().map(Claim::view).collect::<Result<_>>()?;
        Ok(LockView::new(self.name, claims))
    }
}

impl Claim {
    fn view(self) -> Result<ClaimView> {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let standing = if self.standing == "holds" { Standing::Holds } else { Standing::Waits };
        let demand =
            self.demand.parse().map_err(|error: String| Error::permanent(ENGINE, "read a claim", error))?;
        Ok(ClaimView::new(self.id, standing, demand, self.holder)
            .token(self.token)
            .age(self.age_seconds.and_then(seconds))
            .held_for(self.held_seconds.and_then(seconds))
            .ttl_left(self.ttl_left_seconds.and_then(seconds))
            .foreign(self.foreign))
    }
}
