//! What the scripts reply, as values and views of ours.

use crate::config::ENGINE;
use crate::error::error;
use lockkeeper_core::engine::Claim;
use lockkeeper_core::{ClaimView, Demand, Holder, LockView, Result, Standing, Token};
use redis::Value;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A whole number.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// A text.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// A token, which a script replies as text.
pub(crate) fn token(value: &Value) -> Option<Token> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok().map(Token),
        _ => None,
    }
}

/// What claims say of their holder, encoded once: all claims of a keeper have the same one.
#[derive(Debug, Default)]
pub struct HolderText(OnceLock<(Arc<Holder>, Arc<str>)>);

impl HolderText {
    /// The text of the claim's holder.
    pub fn of(&self, claim: &Claim) -> Arc<str> {
        let (holder, text) = self.0.get_or_init(|| (Arc::clone(&claim.holder), claim.holder.encode().into()));
        if Arc::ptr_eq(holder, &claim.holder) { Arc::clone(text) } else { claim.holder.encode().into() }
    }
}

/// A lock of the style 'queue'.
pub(crate) fn queue(name: &str, reply: Value) -> Result<LockView> {
    let claims: Vec<(String, String, u64, u64)> =
        redis::from_redis_value(reply).map_err(|cause| error(ENGINE, "read a lock", cause.into()))?;
    let mut claims: Vec<ClaimView> = claims
        .into_iter()
        .filter_map(|(id, claim, age_us, left_us)| claim_view(id, &claim, age_us, left_us))
        .collect();
    claims.sort_by_key(|claim| claim.token);
    Ok(LockView::from_queue(name, claims))
}

/// Reads `<place> <weight> <shape> <channel> <demand> <holder>`.
fn claim_view(id: String, claim: &str, age_us: u64, left_us: u64) -> Option<ClaimView> {
    let words: Vec<&str> = claim.splitn(6, ' ').collect();
    let [place, _, _, _, demand, holder] = words[..] else { return None };
    Some(ClaimView {
        id,
        standing: Standing::Waits,
        demand: demand.parse().ok()?,
        holder: Holder::decode(holder),
        token: Some(Token(place.parse().ok()?)),
        age: Some(Duration::from_micros(age_us)),
        ttl_left: Some(Duration::from_micros(left_us)),
        foreign: false,
    })
}

/// A lock of the style 'plain'; `None` if it is free.
pub(crate) fn plain(name: &str, reply: &Value) -> Option<LockView> {
    let Value::Array(words) = reply else { return None };
    let value = words.first().and_then(text)?;
    let left_ms = words.get(1).and_then(integer).and_then(|ms| u64::try_from(ms).ok());
    let (id, holder, token) = match value.splitn(3, ' ').collect::<Vec<&str>>()[..] {
        [id, token, holder] => (id, holder, token.parse().ok().map(Token)),
        _ => (&*value, &*value, None),
    };
    let claim = ClaimView {
        id: id.to_owned(),
        standing: Standing::Holds,
        demand: Demand::Exclusive,
        holder: Holder::decode(holder),
        token,
        age: None,
        ttl_left: left_ms.map(Duration::from_millis),
        foreign: token.is_none(),
    };
    Some(LockView { name: name.to_owned(), claims: vec![claim] })
}
