//! Where a claim stands in etcd: `<name>//<kind>-<keeper>-<slot>`, under the prefix that other clients watch.
//!
//! Other clients (Go's concurrency package, `etcdctl lock`) use `<name>/<lease>` and wait for every key under
//! `<name>/`, ours included. No lock name has an empty segment, so `//` distinguishes our keys from those of a lock whose
//! name merely begins with `<name>/`. The kind comes first, so that one transaction can refuse a claim of another
//! shape and a reader need not read the other readers; the keeper next, so that one watch covers all claims
//! of a keeper on a lock. The slot is a small number that the keeper uses again: etcd remembers every key it
//! ever had until its history is compacted, and a look at a queue passes them all.

use lockkeeper_core::Demand;
use lockkeeper_core::Shape;
use lockkeeper_core::engine::{Claim, ClaimId, LockName};

/// A key.
pub(crate) type Key = Vec<u8>;

/// All keys from the first one up to the second, which is not included.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) start: Key,
    /// Empty if the span is the one key `start`.
    pub(crate) end: Key,
}

impl Span {
    fn new(start: String, end: String) -> Self {
        Self { start: start.into_bytes(), end: end.into_bytes() }
    }

    /// Every key that begins with the prefix.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Self { start: prefix.to_vec(), end };
            }
        }
        // The empty prefix: etcd's form of 'all keys' is a zero byte at both ends.
        Self { start: vec![0], end: vec![0] }
    }

    /// The one key.
    pub(crate) fn key(key: &[u8]) -> Self {
        Self { start: key.to_vec(), end: Key::new() }
    }
}

/// What the keys of a keeper's claims like this one begin with, on this lock.
pub(crate) fn stem(claim: &Claim) -> String {
    let kind = match claim.demand {
        Demand::Exclusive => "x".to_owned(),
        Demand::Shared => "r".to_owned(),
        Demand::Permits { of, .. } => format!("p{of}"),
    };
    format!("{}//{kind}-{}-", claim.name, claim.keeper)
}

/// The key of a claim. It does not change when the claim shrinks.
pub(crate) fn claim(stem: &str, slot: u32) -> Key {
    format!("{stem}{slot}").into_bytes()
}

/// What a tombstone's key has after the lock's name. It sorts just before the lock's queue, with nothing in between, since no
/// name has a byte that is not UTF-8; the control character keeps it out of every queue.
const TOMBSTONE: &[u8] = b".\xff\x01";

/// The key that forbids a join which may still be on its way.
pub(crate) fn tombstone(name: &LockName, id: ClaimId) -> Key {
    [name.as_str().as_bytes(), TOMBSTONE, id.to_string().as_bytes()].concat()
}

/// The key by which somebody asks for a claim to be released. It stands beside the queue, where no client takes it for a claim.
pub(crate) fn ask(name: &LockName, id: ClaimId) -> Key {
    format!("{name}\x01{id}").into_bytes()
}

/// The claim that such a key asks for.
pub(crate) fn asked(key: &[u8]) -> Option<ClaimId> {
    let (_, id) = std::str::from_utf8(key).ok()?.split_once('\x01')?;
    id.parse().ok()
}

/// Everything that may forbid or hold up a claim: tombstones, and whatever may stand in the lock's queue.
pub(crate) fn in_the_way(name: &LockName) -> Span {
    let start = [name.as_str().as_bytes(), TOMBSTONE].concat();
    Span { start, end: queue(name).end }
}

/// Everything that may stand in the queue of the lock (and claims of locks below it, which do not).
pub(crate) fn queue(name: &LockName) -> Span {
    Span::new(format!("{name}/"), format!("{name}0"))
}

/// Our claims on the lock.
pub(crate) fn ours(name: &LockName) -> Span {
    Span::new(format!("{name}//"), format!("{name}/0"))
}

/// Where whatever can hold up a claim of this demand is found: for a reader, all but the readers.
pub(crate) fn ahead(name: &LockName, demand: Demand) -> Vec<Span> {
    match demand {
        Demand::Exclusive | Demand::Permits { .. } => vec![queue(name)],
        Demand::Shared => vec![
            Span::new(format!("{name}/"), format!("{name}//r-")),
            Span::new(format!("{name}//r."), format!("{name}0")),
        ],
    }
}

/// Where our claims of other shapes would stand (Law 6).
pub(crate) fn other_shapes(name: &LockName, shape: Shape) -> Vec<Span> {
    match shape {
        Shape::ReadWrite => vec![Span::new(format!("{name}//p"), format!("{name}//q"))],
        Shape::Permits { of } => vec![
            Span::new(format!("{name}//"), format!("{name}//p{of}-")),
            Span::new(format!("{name}//p{of}."), format!("{name}/0")),
        ],
    }
}

/// What to watch in order to see this claim leave: all claims of its keeper, or another client's single key.
pub(crate) fn watched(key: &[u8]) -> Span {
    match parse(key) {
        Some(Parsed { ours: true, .. }) => {
            let end = key.iter().rposition(|byte| *byte == b'-').map_or(key.len(), |dash| dash + 1);
            Span::prefix(&key[..end])
        }
        _ => Span::key(key),
    }
}

/// A claim's key, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed<'a> {
    /// The lock.
    pub(crate) name: &'a str,
    /// Our claim's slot, or the other client's name for its claim.
    pub(crate) id: &'a str,
    /// Made by lockkeeper.
    pub(crate) ours: bool,
}

/// Takes a key apart; `None` if it cannot be a claim.
pub(crate) fn parse(key: &[u8]) -> Option<Parsed<'_>> {
    let key = std::str::from_utf8(key).ok()?;
    if key.contains(char::is_control) {
        return None;
    }
    if let Some((name, suffix)) = key.split_once("//") {
        if let Some((_, id)) = suffix.rsplit_once('-') {
            return Some(Parsed { name, id, ours: true });
        }
        // Another client that locks `<name>/` waits for all our keys, so we wait for its: `<name>//<lease>`.
        let is_claim = !name.is_empty() && !suffix.is_empty() && !suffix.contains('/');
        return is_claim.then_some(Parsed { name, id: suffix, ours: false });
    }
    let (name, id) = key.rsplit_once('/')?;
    (!name.is_empty() && !id.is_empty()).then_some(Parsed { name, id, ours: false })
}

/// Whether a key found under the lock's prefix stands in its queue, and not in that of a lock below it.
pub(crate) fn is_in_queue(name: &LockName, key: &[u8]) -> bool {
    match parse(key) {
        Some(parsed) => parsed.name == name.as_str(),
        // Not ours, but other clients let anything under the prefix take part; so do we, but for tombstones.
        None => key
            .get(name.as_str().len() + 1..)
            .is_some_and(|suffix| !suffix.iter().any(|byte| *byte == b'/' || *byte < b' ')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::Holder;
    use std::sync::Arc;
    use std::time::Duration;

    fn a_claim(name: &str, demand: Demand) -> Claim {
        Claim {
            id: ClaimId(0xabc),
            name: LockName::new(name).unwrap(),
            demand,
            holder: Arc::new(Holder::here("test")),
            keeper: ClaimId(0xdef),
            ttl: Duration::from_secs(10),
        }
    }

    fn key_of(claim: &Claim) -> Key {
        super::claim(&stem(claim), 0)
    }

    fn holds(span: &Span, key: &[u8]) -> bool {
        if span.end.is_empty() { key == span.start } else { *key >= *span.start && *key < *span.end }
    }

    const DEMANDS: [Demand; 5] = [
        Demand::Exclusive,
        Demand::Shared,
        Demand::Permits { want: 1, of: 4 },
        Demand::Permits { want: 1, of: 44 },
        Demand::Permits { want: 1, of: 3 },
    ];

    #[test]
    fn a_request_to_release_stands_in_no_queue() {
        let (name, above) = (LockName::new("shop/a").unwrap(), LockName::new("shop").unwrap());
        let key = ask(&name, ClaimId(7));
        assert_eq!((asked(&key), parse(&key)), (Some(ClaimId(7)), None));
        assert!(!holds(&queue(&name), &key) && !holds(&in_the_way(&name), &key));
        assert!(!is_in_queue(&above, &key) && key.starts_with(b"shop/"));
    }

    #[test]
    fn a_key_reads_back_and_stands_in_its_own_queue_only() {
        for demand in DEMANDS {
            let key = key_of(&a_claim("a/b", demand));
            let parsed = parse(&key).unwrap();
            assert_eq!((parsed.name, parsed.id, parsed.ours), ("a/b", "0", true));
            let names = ["a/b", "a", "a/b/c"].map(|name| LockName::new(name).unwrap());
            assert_eq!(names.map(|name| is_in_queue(&name, &key)), [true, false, false]);
            assert!(holds(&watched(&key), &key));
        }
    }

    #[test]
    fn other_clients_keys_take_part_and_tombstones_do_not() {
        let name = LockName::new("a/b").unwrap();
        assert_eq!(parse(b"a/b/694d7f2c"), Some(Parsed { name: "a/b", id: "694d7f2c", ours: false }));
        assert!(is_in_queue(&name, b"a/b/694d7f2c"));
        assert_eq!(parse(b"a/b//694d7f2c"), Some(Parsed { name: "a/b", id: "694d7f2c", ours: false }));
        assert!(is_in_queue(&name, b"a/b//694d7f2c"), "of a client that locks 'a/b/'");
        assert!(is_in_queue(&name, b"a/b/\xff\xfe"));
        assert!(!is_in_queue(&name, b"a/b/c/694d7f2c"));
        let grave = tombstone(&LockName::new("a/b/c").unwrap(), ClaimId(1));
        assert!(!is_in_queue(&name, &grave) && parse(&grave).is_none());
        assert_eq!(watched(b"a/b/694d7f2c"), Span::key(b"a/b/694d7f2c"));
    }

    #[test]
    fn in_the_way_are_tombstones_and_the_queue_and_nothing_else() {
        let name = LockName::new("a/b").unwrap();
        let is_in_the_way = |key: &[u8]| holds(&in_the_way(&name), key);
        for demand in DEMANDS {
            assert!(is_in_the_way(&key_of(&a_claim("a/b", demand))));
            for other in ["a", "a/b.", "a/b.c", "a/b.\u{10ffff}", "a/b-1", "a/b0", "a/c"] {
                assert!(!is_in_the_way(&key_of(&a_claim(other, demand))), "{other}");
                assert!(!is_in_the_way(&tombstone(&LockName::new(other).unwrap(), ClaimId(1))), "{other}");
            }
        }
        assert!(is_in_the_way(b"a/b/694d7f2c") && is_in_the_way(&tombstone(&name, ClaimId(1))));
    }

    #[test]
    fn a_claim_of_another_shape_is_seen_and_one_of_the_same_is_not() {
        let name = LockName::new("a").unwrap();
        for mine in DEMANDS {
            for theirs in DEMANDS {
                let key = key_of(&a_claim("a", theirs));
                let seen = other_shapes(&name, mine.shape()).iter().any(|span| holds(span, &key));
                assert_eq!(seen, mine.shape() != theirs.shape(), "{mine} and {theirs}");
            }
        }
    }

    #[test]
    fn a_reader_sees_writers_and_strangers_but_not_readers() {
        let name = LockName::new("a").unwrap();
        let sees = |key: &[u8]| ahead(&name, Demand::Shared).iter().any(|span| holds(span, key));
        assert!(sees(&key_of(&a_claim("a", Demand::Exclusive))));
        assert!(!sees(&key_of(&a_claim("a", Demand::Shared))));
        assert!(
            sees(b"a/694d7f2c")
                && sees(b"a//694d7f2c")
                && sees(b"a/!odd")
                && sees(b"a/zebra")
                && !sees(b"ab/1")
        );
    }

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(Span::prefix(b"a-").end, b"a.");
        assert_eq!(Span::prefix(b"a\xff").end, b"b");
        assert_eq!(Span::prefix(b""), Span { start: vec![0], end: vec![0] });
    }
}
