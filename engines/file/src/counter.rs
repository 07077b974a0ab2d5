//! The content of a gate: places only grow, also across a crash of the machine (Law 8). Only here no server counts.

/// How many numbers are reserved with one write to the disk.
pub(crate) const BLOCK: u64 = 1 << 20;

/// How many bytes a gate holds.
pub(crate) const SIZE: usize = 48;

/// No gate of ours gets there; one that says so must not make a place overflow.
const UNREADABLE: u64 = 1 << 63;

const MAGIC: u64 = u64::from_le_bytes(*b"lkgate1\n");

/// What a gate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    /// In which run of the machine `next` was written; zero if the system does not say.
    pub(crate) boot: u128,
    /// The next place.
    pub(crate) next: u64,
    /// The disk is known to hold this: no number from here on was ever given.
    pub(crate) reserved: u64,
}

impl Counter {
    /// Counter for a gate that is new, or unreadable.
    pub(crate) fn starting_at(boot: u128, next: u64) -> Self {
        Self { boot, next, reserved: next }
    }

    /// The same after a start of the machine: what was given before it may not have reached the disk, but was
    /// below the reserve.
    pub(crate) fn in_boot(self, boot: u128) -> Self {
        if boot == self.boot { self } else { Self { boot, next: self.reserved.max(self.next), ..self } }
    }

    /// Takes the next number; says whether the reserve was moved, so that the disk must know before it is used.
    pub(crate) fn take(&mut self) -> (u64, bool) {
        let place = self.next;
        self.next += 1;
        let moved = self.next > self.reserved;
        if moved {
            self.reserved = self.next + BLOCK;
        }
        (place, moved)
    }

    pub(crate) fn encode(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.boot.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.next.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.reserved.to_le_bytes());
        let check = fingerprint(&bytes[..40]);
        bytes[40..48].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are short or damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if number(0)? != MAGIC || number(40)? != fingerprint(&bytes[..40]) {
            return None;
        }
        let boot = u128::from_le_bytes(bytes.get(8..24)?.try_into().ok()?);
        let place = |at: usize| number(at).filter(|place| *place < UNREADABLE);
        Some(Self { boot, next: place(24)?, reserved: place(32)? })
    }
}

/// A 64-bit hash (FNV-1a) that is the same for ever and everywhere: names and gates on disk depend on it.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Which run of the machine this is; zero if the system does not say.
pub(crate) fn boot() -> u128 {
    static BOOT: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
    })
}

/// Microseconds since the epoch: where a new gate starts, so that numbers grow even when the old one was deleted.
pub(crate) fn wall_microseconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn numbers_read_back_and_damage_is_noticed() {
        let numbers = Counter { boot: 7, next: 1 << 50, reserved: (1 << 50) + 5 };
        let bytes = numbers.encode();
        assert_eq!(Counter::decode(&bytes), Some(numbers));
        for at in 0..SIZE {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Counter::decode(&damaged), None, "byte {at}");
            assert_eq!(Counter::decode(&bytes[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn the_disk_is_written_once_per_block_and_before_a_number_above_the_reserve_is_used() {
        let mut numbers = Counter::starting_at(1, 100);
        assert_eq!(numbers.take(), (100, true));
        let mut moves = 0;
        for expected in 101..101 + BLOCK {
            let (place, moved) = numbers.take();
            assert_eq!(place, expected);
            assert!(place < numbers.reserved);
            moves += u32::from(moved);
        }
        assert_eq!(moves, 0);
        assert!(numbers.take().1);
    }

    #[test]
    fn after_a_start_of_the_machine_nothing_below_the_reserve_is_used_again() {
        let mut before = Counter::starting_at(1, 100);
        before.take();
        let on_disk = before;
        let last = (0..1000).map(|_| before.take().0).max().unwrap();
        let mut after = on_disk.in_boot(2);
        let (place, moved) = after.take();
        assert!(place > last && moved);
    }
}
