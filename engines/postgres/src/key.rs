//! The key of an advisory lock: the server's own hash of the name, `hashtextextended(NAME, 0)`, reckoned here.
//!
//! It spares the server a statement: with the key at hand, a lock is freed by a bare call of the server's function. (The hash is
//! Jenkins' lookup3 on a machine that writes the low byte first; another server is noticed when connecting.)

/// The key of this name.
pub(crate) fn key(name: &str) -> i64 {
    let bytes = name.as_bytes();
    // Only the low 32 bits of the length count.
    let start = 0x9e37_79b9_u32.wrapping_add(3_923_095).wrapping_add(bytes.len() as u32);
    let mut state = State { a: start, b: start, c: start };
    let (blocks, rest) = bytes.as_chunks::<12>();
    for block in blocks {
        state.add(*block);
        state.mix();
    }
    let mut last = [0; 12];
    last[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    if let Some(end) = rest.get(8..) {
        // The lowest byte of `c` is left to the length.
        last[9..=8 + end.len()].copy_from_slice(end);
    }
    state.add(last);
    state.finish();
    (u64::from(state.b) << 32 | u64::from(state.c)).cast_signed()
}

struct State {
    a: u32,
    b: u32,
    c: u32,
}

impl State {
    fn add(&mut self, block: [u8; 12]) {
        let [a, b, c] =
            [0, 4, 8].map(|at| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]));
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
        self.c = self.c.wrapping_add(c);
    }

    fn mix(&mut self) {
        let Self { a, b, c } = self;
        for [first, second, third] in [[4, 6, 8], [16, 19, 4]] {
            *a = a.wrapping_sub(*c) ^ c.rotate_left(first);
            *c = c.wrapping_add(*b);
            *b = b.wrapping_sub(*a) ^ a.rotate_left(second);
            *a = a.wrapping_add(*c);
            *c = c.wrapping_sub(*b) ^ b.rotate_left(third);
            *b = b.wrapping_add(*a);
        }
    }

    fn finish(&mut self) {
        let Self { a, b, c } = self;
        *c = (*c ^ *b).wrapping_sub(b.rotate_left(14));
        *a = (*a ^ *c).wrapping_sub(c.rotate_left(11));
        *b = (*b ^ *a).wrapping_sub(a.rotate_left(25));
        *c = (*c ^ *b).wrapping_sub(b.rotate_left(16));
        *a = (*a ^ *c).wrapping_sub(c.rotate_left(4));
        *b = (*b ^ *a).wrapping_sub(a.rotate_left(14));
        *c = (*c ^ *b).wrapping_sub(b.rotate_left(24));
    }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn it_is_what_the_server_says() {
        // From a PostgreSQL 15: lengths around the ends of blocks, of words, and of the last block's hole.
        for (name, wanted) in [
            ("", -6939563903564495251),
            ("x", -474845166489675639),
            ("abab", -3522438484688866196),
            ("abababx", -2481096695896041542),
            ("abababab", -9150246385103373601),
            ("ababababx", -3426422386512976368),
            ("abababababx", -4409530574222915218),
            ("abababababab", 864737852053535012),
            ("ababababababx", -7886815144513150982),
            ("abababababababababababab", 8145705646987733768),
            ("ababababababababababababab", -4126614244963604950),
            ("lockkeeper/größe", 3772517526501622019),
        ] {
            assert_eq!(key(name), wanted, "{name}");
        }
    }
}
