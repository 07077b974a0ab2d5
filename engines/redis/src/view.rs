//! What the scripts reply, as values and views of ours.

use crate::config::ENGINE;
use crate::failure::failure;
use lockkeeper_core::{ClaimView, Demand, Holder, LockView, Result, Standing, Token};
use redis::Value;
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

/// A token, as the clock gives it or the fence counts it.
pub(crate) fn token(value: &Value) -> Option<Token> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
    .map(Token)
}

/// A lock of the style 'queue'.
pub(crate) fn queue(name: &str, reply: Value) -> Result<LockView> {
    let claims: Vec<(String, String, u64, u64)> =
        redis::from_redis_value(reply).map_err(|error| failure(ENGINE, "read a lock", error.into()))?;
    let mut claims: Vec<ClaimView> = claims
        .into_iter()
        .filter_map(|(id, claim, age_us, left_us)| claim_view(id, &claim, age_us, left_us))
        .collect();
    claims.sort_by_key(|claim| claim.token);
    Ok(LockView::from_queue(name, claims))
}

/// Reads `<weight> <place> <channel> <demand> <holder>`.
fn claim_view(id: String, claim: &str, age_us: u64, left_us: u64) -> Option<ClaimView> {
    let mut words = claim.splitn(5, ' ');
    let place = words.nth(1)?.parse().ok()?;
    let demand: Demand = words.nth(1)?.parse().ok()?;
    Some(ClaimView {
        id,
        standing: Standing::Waits,
        demand,
        holder: Holder::decode(words.next()?),
        token: Some(Token(place)),
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
    let token = words.get(2).and_then(token);
    let (id, holder, foreign) = match value.split_once(' ') {
        // A '*' says that somebody waits.
        Some((id, holder)) => (id.to_owned(), Holder::decode(holder.trim_end_matches('*')), false),
        None => (value.clone(), Holder::decode(&value), true),
    };
    let claim = ClaimView {
        id,
        standing: Standing::Holds,
        demand: Demand::Exclusive,
        holder,
        // Another client's hold did not raise our fence.
        token: token.filter(|_| !foreign),
        age: None,
        ttl_left: left_ms.map(Duration::from_millis),
        foreign,
    };
    Some(LockView { name: name.to_owned(), claims: vec![claim] })
}
