//! What the scripts reply, as values and views of ours.

use crate::config::ENGINE;
use crate::error::error;
use lockkeeper_core::engine::{Claim, ClaimId};
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

/// Another client's value, and so the name of its claim: the text that it is, or its bytes in hexadecimal digits.
pub fn foreign_text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
        }),
        other => text(other),
    }
}

/// The bytes of a value that is no text, from what [`foreign_text`] makes of it.
pub fn foreign_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> =
        text.strip_prefix("0x")?.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
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
    let claims: Vec<(String, String, u64, u64, u64)> =
        redis::from_redis_value(reply).map_err(|cause| error(ENGINE, "read a lock", cause.into()))?;
    let mut claims: Vec<ClaimView> = claims
        .into_iter()
        .filter_map(|(id, claim, age_us, left_us, held_us)| {
            claim_view(id, &claim, [age_us, left_us, held_us])
        })
        .collect();
    claims.sort_by_key(|claim| claim.token);
    Ok(LockView::from_queue(name, claims))
}

/// Reads `<place> <weight> <shape> <channel> <demand> <holder>`.
fn claim_view(id: String, claim: &str, times_us: [u64; 3]) -> Option<ClaimView> {
    let words: Vec<&str> = claim.splitn(6, ' ').collect();
    let [place, _, _, _, demand, holder] = words[..] else { return None };
    let [age, left, held_for] = times_us.map(Duration::from_micros);
    Some(
        ClaimView::new(id, Standing::Waits, demand.parse().ok()?, Holder::decode(holder))
            .token(Some(Token(place.parse().ok()?)))
            .age(Some(age))
            .held_for(Some(held_for))
            .ttl_left(Some(left)),
    )
}

/// A lock of the style 'plain'; `None` if it is free.
pub(crate) fn plain(name: &str, reply: &Value) -> Option<LockView> {
    let Value::Array(words) = reply else { return None };
    let value = words.first().and_then(foreign_text)?;
    let number = |at: usize| words.get(at).and_then(positive);
    let (left_ms, age_us) = (number(1), number(2));
    let (id, holder, token) = match value.splitn(3, ' ').collect::<Vec<&str>>()[..] {
        // A request to release stands behind the holder (plain_ask.lua).
        [id, token, holder] if id.len() == 32 && id.parse::<ClaimId>().is_ok() => {
            (id, holder.strip_suffix(" ?").unwrap_or(holder), token.parse().ok().map(Token))
        }
        _ => (&*value, &*value, None),
    };
    let claim = ClaimView::new(id.to_owned(), Standing::Holds, Demand::Exclusive, Holder::decode(holder))
        .token(token)
        .age(age_us.map(Duration::from_micros))
        .ttl_left(left_ms.map(Duration::from_millis))
        .foreign(token.is_none());
    Some(LockView::new(name.to_owned(), vec![claim]))
}

fn positive(number: &Value) -> Option<u64> {
    integer(number).and_then(|number| u64::try_from(number).ok())
}

/// A lock of Redisson's; `None` if it is free or no lock. `id_of` reads the claim's id from its field.
pub(crate) fn redisson(
    name: &str,
    reply: &Value,
    id_of: impl Fn(&str) -> Option<ClaimId>,
) -> Option<LockView> {
    let Value::Array(words) = reply else { return None };
    let [lock_ms, mode, holders @ ..] = &words[..] else { return None };
    let mode = text(mode)?;
    let mut claims = Vec::new();
    for holder in holders.chunks_exact(5) {
        let [field, count, reader_ms, note, age_us] = holder else { return None };
        let (field, count, note) = (text(field)?, text(count)?, text(note)?);
        let is_reader = mode == "read" || (mode == "write" && !field.ends_with(":write"));
        let left_ms = if is_reader { reader_ms } else { lock_ms };
        let ours =
            note.split_once(' ').and_then(|(token, holder)| Some((Token(token.parse().ok()?), holder)));
        // A request to release stands behind the holder (redisson_ask.lua).
        let ours = ours.map(|(token, holder)| (token, holder.strip_suffix(" ?").unwrap_or(holder)));
        let (client, thread) = field.trim_end_matches(":write").rsplit_once(':')?;
        let stranger = format!("Redisson client {client}, thread {thread}, hold count {count}");
        let holder = Holder::decode(ours.map_or(&stranger, |(_, holder)| holder));
        let demand = if is_reader { Demand::Shared } else { Demand::Exclusive };
        let view = ClaimView::new(id_of(&field)?.to_string(), Standing::Holds, demand, holder)
            .token(ours.map(|(token, _)| token))
            .age(positive(age_us).map(Duration::from_micros))
            .ttl_left(positive(left_ms).map(Duration::from_millis))
            .foreign(ours.is_none());
        claims.push(view);
    }
    claims.sort_by(|one, other| one.token.cmp(&other.token).then_with(|| one.id.cmp(&other.id)));
    (!claims.is_empty()).then(|| LockView::new(name.to_owned(), claims))
}
