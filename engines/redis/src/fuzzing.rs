//! What `fuzz/` feeds with values that another client may have stored, names of keys, and URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::config::Config;
use crate::keys::{PlainKeys, QueueKeys};
use crate::redisson;
use crate::view;
use lockkeeper_core::engine::Address;
use redis::Value;

/// The lines are words of a script's reply: a line of digits is a number, any other a text.
pub fn stored(data: &[u8]) {
    let words: Vec<Value> = data
        .split(|byte| *byte == b'\n')
        .map(|word| match std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()) {
            Some(number) => Value::Int(number),
            None => Value::BulkString(word.to_vec()),
        })
        .collect();
    let key =
        String::from_utf8_lossy(data.split(|byte| *byte == b'\n').next().unwrap_or_default()).into_owned();
    if let Some(name) = QueueKeys::name(&key) {
        assert_eq!(QueueKeys::name(&QueueKeys::of(&name).0[0]), Some(name));
    }
    let _ = (PlainKeys::is_beside(&key), PlainKeys::of(&key).in_one_slot());
    let reply = Value::Array(words.clone());
    if let Some(lock) = view::plain("a", &reply) {
        assert_eq!(lock.claims.len(), 1);
        assert_eq!(lock.claims[0].foreign, lock.claims[0].token.is_none());
    }
    let _ = view::redisson("a", &reply, redisson::id_of);
    let claims = words.chunks_exact(5).map(|claim| Value::Array(claim.to_vec())).collect();
    let _ = view::queue("a", Value::Array(claims));
    for word in &words {
        let _ = view::token(word);
    }
}

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    // No files are read for certificates.
    if let Ok(address) = Address::parse(url)
        && ["ca", "cert", "key", "password_file"].iter().all(|key| address.get(key).is_none())
    {
        let _ = Config::read(address);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn stored_values_of_the_corpus() {
        super::corpus::feed("redis_stored", super::stored);
    }

    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
