//! What `fuzz/` feeds with URLs, and with lines that other keepers send about their holds.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::config::Settings;
use crate::view::read_hold;
use lockkeeper_core::engine::Address;
use lockkeeper_sql_common::lock_views;
use std::time::Duration;

/// A line for each hold.
pub fn holds(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let rows: Vec<_> = text.lines().filter_map(read_hold).collect();
    let count = rows.len();
    let views = lock_views(rows);
    assert_eq!(views.iter().map(|lock| lock.claims.len()).sum::<usize>(), count);
}

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    // No files are read for certificates.
    if let Ok(address) = Address::parse(url)
        && ["sslrootcert", "sslcert", "sslkey"].iter().all(|key| address.get(key).is_none())
    {
        let _ = Settings::from_address(address, Duration::from_secs(10), 8);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn holds_of_the_corpus() {
        super::corpus::feed("postgres_holds", super::holds);
    }

    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
