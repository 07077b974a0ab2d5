//! What `fuzz/` feeds with URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::config::Settings;
use lockkeeper_core::engine::Address;
use std::time::Duration;

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    // No files are read for certificates.
    if let Ok(address) = Address::parse(url)
        && ["ssl-ca", "ssl_ca", "ssl-cert", "ssl_cert", "ssl-key", "ssl_key"]
            .iter()
            .all(|key| address.get(key).is_none())
    {
        let _ = Settings::from_address(address, Duration::from_secs(10), "queue");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
