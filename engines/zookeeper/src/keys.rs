//! How locks and claims are named in ZooKeeper's tree, by us and by Curator and kazoo.

use lockkeeper_core::Demand;
use lockkeeper_core::engine::ClaimId;
use std::cmp::Ordering;
use std::str::FromStr;

/// What stands just before the sequence in the names of claims.
const CURATOR_MUTEX: &str = "lock-";
const CURATOR_READER: &str = "__READ__";
const CURATOR_WRITER: &str = "__WRIT__";
const KAZOO_LOCK: &str = "__lock__";
const KAZOO_READER: &str = "__rlock__";
const CURATOR_START: &str = "_c_";
/// The directory of a lock's holder in the style 'plain', and its one node.
pub(crate) const PLAIN_NODE: &str = "plain-lock";
pub(crate) const HOLDER_NODE: &str = "holder";

/// As which client's our claims are named; we see everybody's whatever is chosen.
///
/// Curator's mutex and its read-write lock do not see each other on one path, and no name can be seen by
/// both: each sorts by what follows its own mark, and only one mark can stand just before the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Exclusive claims as Curator's InterProcessMutex names them.
    Curator,
    /// Exclusive claims as the writers of Curator's InterProcessReadWriteLock.
    CuratorReadWrite,
    /// As kazoo's Lock, WriteLock and ReadLock.
    Kazoo,
}

impl FromStr for Naming {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "curator" => Ok(Self::Curator),
            "curator-rw" => Ok(Self::CuratorReadWrite),
            "kazoo" => Ok(Self::Kazoo),
            _ => Err(()),
        }
    }
}

impl Naming {
    /// The name of a claim's node without the sequence, which the server appends.
    pub(crate) fn prefix(self, id: ClaimId, demand: Demand) -> String {
        let mark = match (self, demand) {
            (Self::Kazoo, Demand::Exclusive) => return format!("{id}{KAZOO_LOCK}"),
            (Self::Kazoo, Demand::Shared) => return format!("{id}{KAZOO_READER}"),
            // Our own layout in every naming: a mutex of Curator's waits for it as for any other.
            (_, Demand::Permits { want, of }) => format!("p{want}of{of}-{CURATOR_MUTEX}"),
            (_, Demand::Shared) => CURATOR_READER.to_owned(),
            (Self::Curator, Demand::Exclusive) => CURATOR_MUTEX.to_owned(),
            (Self::CuratorReadWrite, Demand::Exclusive) => CURATOR_WRITER.to_owned(),
        };
        format!("{CURATOR_START}{}-{mark}", dashed(id))
    }
}

/// The id as a UUID: 8-4-4-4-12 digits.
fn dashed(id: ClaimId) -> String {
    let hex = id.to_string();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

/// A place in the queue: ZooKeeper's sequence, a signed counter that wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sequence(pub(crate) i32);

impl Sequence {
    /// Which of two claims of one queue came first, across a wrap of the counter.
    pub(crate) fn order(self, other: Self) -> Ordering {
        self.0.wrapping_sub(other.0).cmp(&0)
    }

    pub(crate) fn is_before(self, other: Self) -> bool {
        self.order(other) == Ordering::Less
    }
}

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010}", self.0)
    }
}

/// What the name of a claim's node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeName {
    /// The claim, if its maker put a UUID there as we, Curator and kazoo do.
    pub(crate) id: Option<ClaimId>,
    pub(crate) demand: Demand,
    pub(crate) sequence: Sequence,
}

impl NodeName {
    /// Reads the name of a node, ours or another client's; `None` if it is no claim.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let marks = [
            (KAZOO_LOCK, Demand::Exclusive),
            (KAZOO_READER, Demand::Shared),
            (CURATOR_READER, Demand::Shared),
            (CURATOR_WRITER, Demand::Exclusive),
            (CURATOR_MUTEX, Demand::Exclusive),
        ];
        // Every lock and release reads a name: nothing is searched for that can only stand at the end.
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (start, demand, sequence) = [digits, digits + 1].into_iter().find_map(|length| {
            let (start, digits) = name.split_at_checked(name.len().checked_sub(length)?)?;
            let sequence = sequence(digits)?;
            let ends_with = |(mark, demand): &(&str, Demand)| Some((start.strip_suffix(mark)?, *demand));
            marks.iter().find_map(ends_with).map(|(start, demand)| (start, demand, sequence))
        })?;
        let (id, rest) = claim_id(start);
        let demand = rest.and_then(permits).unwrap_or(demand);
        Some(Self { id, demand, sequence })
    }
}

fn sequence(digits: &str) -> Option<Sequence> {
    // Exactly as the server writes it: filled up to ten characters, a sign among them.
    digits.parse().ok().map(Sequence).filter(|sequence| sequence.to_string() == digits)
}

/// The id at the start of a name, and what stands between it and the mark.
fn claim_id(start: &str) -> (Option<ClaimId>, Option<&str>) {
    let parsed = match start.strip_prefix(CURATOR_START) {
        Some(rest) => rest.split_at_checked(36).map(|(uuid, rest)| (uuid.replace('-', ""), rest)),
        None => start.split_at_checked(32).map(|(hex, rest)| (hex.to_owned(), rest)),
    };
    let Some((hex, rest)) = parsed else { return (None, None) };
    let is_id = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id.then(|| hex.parse().ok()).flatten(), Some(rest))
}

/// Reads `-p2of4-`.
fn permits(text: &str) -> Option<Demand> {
    let (want, of) = text.strip_prefix("-p")?.strip_suffix('-')?.split_once("of")?;
    format!("{want}/{of}").parse().ok()
}

/// Put behind a part of a lock's name that would look like a claim, or end like this.
const ESCAPE: char = '~';

/// The node under which a lock's claims stand.
pub(crate) fn directory(chroot: &str, name: &str) -> String {
    let mut path = chroot.to_owned();
    for part in name.split('/').filter(|part| !part.is_empty()) {
        path.push('/');
        path.push_str(part);
        if is_claim(part) || part.ends_with(ESCAPE) {
            path.push(ESCAPE);
        }
    }
    path
}

/// The part of a lock's name that a node in its path stands for.
pub(crate) fn part_of_name(node: &str) -> &str {
    node.strip_suffix(ESCAPE).unwrap_or(node)
}

/// Whether a node is a claim, of either style and any client, and not a part of a lock's name.
pub(crate) fn is_claim(node: &str) -> bool {
    node == PLAIN_NODE || NodeName::parse(node).is_some()
}

/// Finds a claim's nodes among a lock's children. There is one, unless a create was repeated.
pub(crate) fn nodes_of(id: ClaimId, children: &[String]) -> impl Iterator<Item = &String> {
    children.iter().filter(move |child| NodeName::parse(child).is_some_and(|node| node.id == Some(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ClaimId = ClaimId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    #[test]
    fn our_names_read_back_in_every_naming() {
        let permits = Demand::Permits { want: 2, of: 4 };
        for naming in [Naming::Curator, Naming::CuratorReadWrite, Naming::Kazoo] {
            for demand in [Demand::Exclusive, Demand::Shared, permits] {
                for number in [0, 7, i32::MAX, i32::MIN, -1] {
                    let name = format!("{}{}", naming.prefix(ID, demand), Sequence(number));
                    let expected = NodeName { id: Some(ID), demand, sequence: Sequence(number) };
                    assert_eq!(NodeName::parse(&name), Some(expected), "{name}");
                }
            }
        }
    }

    #[test]
    fn names_are_as_the_other_clients_write_them() {
        assert_eq!(
            Naming::Curator.prefix(ID, Demand::Exclusive),
            "_c_01234567-89ab-cdef-0011-223344556677-lock-"
        );
        assert_eq!(
            Naming::CuratorReadWrite.prefix(ID, Demand::Exclusive),
            "_c_01234567-89ab-cdef-0011-223344556677-__WRIT__"
        );
        assert_eq!(Naming::Kazoo.prefix(ID, Demand::Shared), "0123456789abcdef0011223344556677__rlock__");
    }

    #[test]
    fn what_is_no_claim_is_left_alone() {
        for name in [
            "orders",
            "42",
            "plain-lock",
            "lock-12",
            "lock-00000000001",
            "x-lease-0000000001",
            "lock-+000000001",
        ] {
            assert_eq!(NodeName::parse(name), None, "{name}");
        }
        let foreign = NodeName::parse("x-lock-0000000001").unwrap();
        assert_eq!((foreign.id, foreign.demand), (None, Demand::Exclusive));
    }

    #[test]
    fn the_sequence_is_compared_across_its_wrap() {
        assert!(Sequence(1).is_before(Sequence(2)));
        assert!(Sequence(i32::MAX).is_before(Sequence(i32::MIN)));
        assert!(Sequence(-1).is_before(Sequence(0)));
        assert!(!Sequence(3).is_before(Sequence(3)));
    }

    #[test]
    fn a_name_that_looks_like_a_claim_gets_a_directory_that_does_not() {
        assert_eq!(directory("/team", "a/b"), "/team/a/b");
        assert_eq!(directory("/team", ""), "/team");
        for part in ["x-lock-0000000001", "plain-lock", "a~", "a~~", "plain-lock~"] {
            let path = directory("", part);
            assert!(!is_claim(&path[1..]), "{path}");
            assert_eq!(part_of_name(&path[1..]), part);
        }
    }
}
