//! What `fuzz/` feeds with URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::config::Config;
use lockkeeper_core::engine::Address;

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    if let Ok(address) = Address::parse(url) {
        let _ = Config::from(address);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
