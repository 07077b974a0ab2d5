//! Tables by claim. An identity is random bits already, so nothing is won by hashing it.

use crate::claim::ClaimId;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A table with an entry for each of some claims.
pub type ClaimMap<V> = HashMap<ClaimId, V, BuildHasherDefault<Bits>>;

/// Some claims.
pub type ClaimSet = HashSet<ClaimId, BuildHasherDefault<Bits>>;

/// Takes random bits as they are.
#[derive(Debug, Default)]
pub struct Bits(u64);

impl Hasher for Bits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, bits: u128) {
        self.0 ^= bits as u64 ^ (bits >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher as _;

    #[test]
    fn every_claim_is_found_again() {
        let ids: Vec<ClaimId> = (0..1000).map(|_| ClaimId::random()).collect();
        let map: ClaimMap<usize> = ids.iter().copied().zip(0..).collect();
        assert!(ids.iter().enumerate().all(|(index, id)| map[id] == index));
    }

    #[test]
    fn all_bits_count() {
        let hash = |bits| BuildHasherDefault::<Bits>::default().hash_one(ClaimId(bits));
        assert_ne!(hash(1), hash(2));
        assert_ne!(hash(1 << 64), hash(2 << 64));
        assert_ne!(hash(1), hash(1 << 127));
    }
}
