//! What `fuzz/` feeds with URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use lockkeeper_core::engine::Address;
use std::time::Duration;

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    // No files are read for certificates.
    if let Ok(address) = Address::parse(url)
        && ["ca", "cert", "key", "password_file"].iter().all(|key| address.get(key).is_none())
    {
        let _ = crate::read(address, Duration::from_secs(10));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
