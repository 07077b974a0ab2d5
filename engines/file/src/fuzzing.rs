//! What `fuzz/` feeds with bytes of a shared directory: names and contents of claims, and gates; and with URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::claim_file::{self, ClaimName};
use crate::config::Config;
use crate::counter::{Counter, SIZE, fingerprint};
use lockkeeper_core::engine::{Address, Clock, Moment};

/// The name of a claim's file and, after a line break, its content.
pub fn claim_files(data: &[u8]) {
    let (name, content) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let content = content.strip_prefix(b"\n").unwrap_or(content);
    if let Some(parsed) = ClaimName::parse(name) {
        let again = ClaimName::parse(parsed.file_name().as_bytes());
        assert_eq!(again, Some(parsed), "{}", String::from_utf8_lossy(name));
        assert!(parsed.demand.weight() <= parsed.demand.limit());
    }
    if let Some(content) = claim_file::decode(content) {
        let now = Clock::Boot.now();
        let _ = content.expires_at.min(content.survives_until).plus(crate::look::GRACE) > now;
        let _ = now.since(content.granted_at.unwrap_or(Moment::ORIGIN).max(content.joined_at));
        assert!(content.demand.is_none_or(|demand| demand.weight() <= demand.limit()));
    }
    gate(content);
}

/// A gate with these numbers, and the right checksum: no number that it gives out begins again.
fn gate(data: &[u8]) {
    let _ = Counter::decode(data);
    let mut bytes = [0; SIZE];
    bytes[..8].copy_from_slice(&Counter::starting_at(0, 0).encode()[..8]);
    let length = data.len().min(32);
    bytes[8..8 + length].copy_from_slice(&data[..length]);
    let check = fingerprint(&bytes[..40]).to_le_bytes();
    bytes[40..].copy_from_slice(&check);
    for boot in [0, 1] {
        if let Some(counter) = Counter::decode(&bytes) {
            let mut counter = counter.in_boot(boot);
            let ((first, _), (second, _)) = (counter.take(), counter.take());
            assert!(first < second && counter.next <= counter.reserved);
        }
    }
}

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    if let Ok(address) = Address::parse(url) {
        let _ = Config::take(address);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }

    #[test]
    fn claim_files_of_the_corpus() {
        super::corpus::feed("claim_files", super::claim_files);
    }

    #[test]
    fn a_gate_at_the_end_of_the_numbers_is_unreadable() {
        for number in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
            super::gate(&[&[1; 16][..], &number.to_le_bytes(), &number.to_le_bytes()].concat());
        }
    }
}
