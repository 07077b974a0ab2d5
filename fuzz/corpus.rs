//! What the tests of a parser read: every file of its corpus, and neighbours of each, which are cut, joined and have other bytes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Bytes that mean something to one parser or the other.
const TELLING: &[u8] = b"\0\x01\x7f\x80\xff%/:+-@?#,.0129{}[]\"\\ \n";

/// Feeds `fuzz/corpus/TARGET`. The neighbours are the same in every run; LOCKKEEPER_NEIGHBOURS says how many each file has.
pub(crate) fn feed(target: &str, parser: fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut files: Vec<Vec<u8>> =
        entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(!files.is_empty(), "{folder} is empty");
    files.sort();
    let neighbours =
        std::env::var("LOCKKEEPER_NEIGHBOURS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for file in &files {
        try_one(file, parser);
        for _ in 0..neighbours {
            let mut bytes = file.clone();
            for _ in 0..=dice.below(3) {
                change(&mut bytes, &files, &mut dice);
            }
            try_one(&bytes, parser);
        }
    }
}

fn try_one(bytes: &[u8], parser: fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| parser(bytes))) {
        eprintln!("with the input \"{}\"", bytes.escape_ascii());
        resume_unwind(panic);
    }
}

fn change(bytes: &mut Vec<u8>, files: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    match dice.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, TELLING[dice.below(TELLING.len())]),
        2 if at < bytes.len() => bytes[at] = TELLING[dice.below(TELLING.len())],
        3 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        4 => {
            let other = &files[dice.below(files.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[dice.below(other.len() + 1)..]);
        }
        _ => {
            let part = bytes[at..(at + dice.below(16)).min(bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// Numbers that look random and are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}
