//! What `fuzz/` feeds with keys and values that another client may have stored, and URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::config::Config;
use crate::generated::{KeyValue, RangeResponse};
use crate::keys;
use crate::look;
use crate::value::Value;
use crate::view;
use lockkeeper_core::engine::{Address, Claim, ClaimId, LockName};
use lockkeeper_core::{Demand, Holder};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A key and, after a line break, its value: shown to operators, and judged by one who waits behind it.
pub fn stored(data: &[u8]) {
    let (key, value) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let value = value.strip_prefix(b"\n").unwrap_or(value);
    let found =
        KeyValue { key: key.to_vec(), create_revision: 2, mod_revision: 3, value: value.to_vec(), lease: 1 };
    if let Some(read) = Value::decode(value) {
        let again = serde_json::to_vec(&read).expect("a value of ours");
        assert_eq!(Value::decode(&again), Some(read));
    }
    let _ = keys::asked(key);
    let parsed = keys::parse(key);
    assert!(parsed.as_ref().is_none_or(|parsed| !parsed.name.contains(char::is_control)));
    view::view("a".into(), vec![found.clone()], &HashMap::new());
    let is_ahead = keys::is_in_queue(&LockName::from_engine("a"), key);
    for demand in [Demand::Exclusive, Demand::Shared, Demand::Permits { want: 2, of: 3 }] {
        let reply = RangeResponse { kvs: vec![found.clone()], ..RangeResponse::default() };
        let look = look::judge(&claim(demand), 5, 7, &[reply]).expect("nothing is cut");
        assert_eq!(look.ahead > 0, is_ahead, "what stands in the queue has a weight");
    }
}

fn claim(demand: Demand) -> Claim {
    Claim {
        id: ClaimId(1),
        name: LockName::from_engine("a"),
        demand,
        holder: Arc::new(Holder { text: "fuzz".into(), host: String::new(), pid: 0 }),
        keeper: ClaimId(7),
        ttl: Duration::from_secs(10),
    }
}

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    // No files are read for certificates.
    if let Ok(address) = Address::parse(url)
        && ["ca", "cert", "key", "password_file"].iter().all(|key| address.get(key).is_none())
    {
        let _ = Config::new(address, Duration::from_secs(10));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn stored_values_of_the_corpus() {
        super::corpus::feed("etcd_stored", super::stored);
    }

    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
