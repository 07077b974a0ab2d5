//! The format of a claim's file, which only this engine has: a name with what a look needs, a head with the rest.

use crate::counter::{boot, fingerprint};
use lockkeeper_core::Demand;
use lockkeeper_core::engine::{Claim, ClaimId, Moment};
use rustix::fd::AsFd;
use rustix::io::Errno;

/// The name of a claim's file: `PLACE.HASH.DEMAND.ID`. It never changes and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimName {
    pub(crate) place: u64,
    /// The hash of the lock's name.
    pub(crate) hash: u64,
    /// The demand it joined with; the head says whether it has shrunk since.
    pub(crate) demand: Demand,
    pub(crate) id: ClaimId,
}

/// The hash of a lock's name; its last two hex digits name the shard.
pub(crate) fn hash_of(name: &str) -> u64 {
    fingerprint(name.as_bytes())
}

/// No counter gets there; a file with such a name is not ours, and must not make ours overflow.
const HIGHEST_PLACE: u64 = 1 << 62;

impl ClaimName {
    pub(crate) fn file_name(&self) -> String {
        let Self { place, hash, demand, id } = self;
        match demand {
            Demand::Exclusive => format!("{place:020}.{hash:016x}.x.{id}"),
            Demand::Shared => format!("{place:020}.{hash:016x}.s.{id}"),
            Demand::Permits { want, of } => format!("{place:020}.{hash:016x}.p{want}of{of}.{id}"),
        }
    }

    /// Reads a name; `None` for a file that is no claim.
    pub(crate) fn parse(file_name: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(file_name).ok()?;
        let mut parts = text.split('.');
        let place = fixed(parts.next()?, 20)?.parse().ok().filter(|place| *place < HIGHEST_PLACE)?;
        let hash = u64::from_str_radix(fixed(parts.next()?, 16)?, 16).ok()?;
        let demand = parse_demand(parts.next()?)?;
        let id = ClaimId(u128::from_str_radix(fixed(parts.next()?, 32)?, 16).ok()?);
        parts.next().is_none().then_some(Self { place, hash, demand, id })
    }
}

fn fixed(text: &str, length: usize) -> Option<&str> {
    (text.len() == length).then_some(text)
}

fn parse_demand(text: &str) -> Option<Demand> {
    match text {
        "x" => Some(Demand::Exclusive),
        "s" => Some(Demand::Shared),
        _ => {
            let (want, of) = text.strip_prefix('p')?.split_once("of")?;
            permits(want.parse().ok()?, of.parse().ok()?)
        }
    }
}

fn permits(want: u32, of: u32) -> Option<Demand> {
    (0 < want && want <= of).then_some(Demand::Permits { want, of })
}

const MAGIC: &[u8; 8] = b"lkclaim1";
const EXPIRY_AT: usize = 8;
const DEMAND_AT: usize = 24;
const JOINED_AT: usize = 40;
const NAME_LENGTH_AT: usize = 48;
const HOLDER_LENGTH_AT: usize = 52;
const HEAD: usize = 56;
/// The end of a claim's file says until when the claim survives the end of its owner, and in which run of the machine.
const SURVIVAL: usize = 32;
/// After that it says when the claim was granted, for those who look; a file of an earlier release ends before.
const GRANT: usize = 16;
/// And last a byte that others set to ask for the claim to be released.
const ASKED: u8 = 1;
/// More than the longest name and holder that pass the core's checks.
const LONGEST: usize = 8 * 1024;

/// What a claim's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) expires_at: Moment,
    /// The demand now; `None` while its owner is changing it.
    pub(crate) demand: Option<Demand>,
    pub(crate) joined_at: Moment,
    /// Until when it lives even if nobody has it locked; the clock's origin if it does not.
    pub(crate) survives_until: Moment,
    /// When it was granted, as far as its owner has noted it.
    pub(crate) granted_at: Option<Moment>,
    pub(crate) name: String,
    /// One line, as `Holder::encode` writes it.
    pub(crate) holder: String,
}

/// The whole content of a new claim, which holds at once if nothing is ahead of it.
pub(crate) fn encode(claim: &Claim, joined_at: Moment, expires_at: Moment, holds: bool) -> Vec<u8> {
    let (name, holder) = (claim.name.as_str(), claim.holder.encode());
    let mut bytes = Vec::with_capacity(HEAD + name.len() + holder.len() + SURVIVAL + GRANT + 1);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&expiry_field(expires_at));
    bytes.extend_from_slice(&demand_field(claim.demand));
    bytes.extend_from_slice(&joined_at.as_nanos().to_le_bytes());
    bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(holder.len() as u32).to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(holder.as_bytes());
    bytes.extend_from_slice(&survival_field(Moment::ORIGIN));
    bytes.extend_from_slice(&expiry_field(if holds { joined_at } else { Moment::ORIGIN }));
    bytes.push(0);
    bytes
}

/// Where the survival of a claim of this name and holder stands.
pub(crate) fn survival_at(name: &str, holder: &str) -> u64 {
    (HEAD + name.len() + holder.len()) as u64
}

/// Writes when the claim was granted.
pub(crate) fn write_grant(file: impl AsFd, survival_at: u64, granted_at: Moment) -> Result<(), Errno> {
    write_at(file, &expiry_field(granted_at), survival_at + SURVIVAL as u64)
}

/// Writes until when the claim survives the end of its owner.
pub(crate) fn write_survival(file: impl AsFd, at: u64, until: Moment) -> Result<(), Errno> {
    // After a start of the machine nobody could know that it means nothing any more.
    if boot() == 0 {
        return Err(Errno::NOSYS);
    }
    write_at(file, &survival_field(until), at)
}

/// Asks for a claim to be released.
pub(crate) fn write_ask(file: impl AsFd, content: &Content) -> Result<(), Errno> {
    write_at(file, &[ASKED], asked_at(survival_at(&content.name, &content.holder)))
}

/// Whether somebody has asked for the claim to be released.
pub(crate) fn is_asked(file: impl AsFd, survival_at: u64) -> Result<bool, Errno> {
    let mut byte = [0];
    Ok(rustix::io::pread(file, &mut byte, asked_at(survival_at))? == 1 && byte == [ASKED])
}

fn asked_at(survival_at: u64) -> u64 {
    survival_at + (SURVIVAL + GRANT) as u64
}

/// Writes a new expiry in place. No watch is set off by it.
pub(crate) fn write_expiry(file: impl AsFd, expires_at: Moment) -> Result<(), Errno> {
    write_at(file, &expiry_field(expires_at), EXPIRY_AT as u64)
}

/// Writes a smaller demand in place.
pub(crate) fn write_demand(file: impl AsFd, demand: Demand) -> Result<(), Errno> {
    write_at(file, &demand_field(demand), DEMAND_AT as u64)
}

/// Writes all of it or fails: a part of it means that the disk is full.
pub(crate) fn write_at(file: impl AsFd, bytes: &[u8], at: u64) -> Result<(), Errno> {
    if rustix::io::pwrite(file, bytes, at)? == bytes.len() { Ok(()) } else { Err(Errno::NOSPC) }
}

/// Reads a claim; `None` while it is being made (or if its maker died over it).
pub(crate) fn read(file: impl AsFd) -> Result<Option<Content>, Errno> {
    let mut bytes = [0; LONGEST];
    let length = rustix::io::pread(file, &mut bytes, 0)?;
    Ok(decode(&bytes[..length]))
}

/// The moment like an expiry, and the run of the machine in which it means something.
fn survival_field(until: Moment) -> [u8; SURVIVAL] {
    let mut field = [0; SURVIVAL];
    field[..16].copy_from_slice(&expiry_field(until));
    field[16..].copy_from_slice(&boot().to_le_bytes());
    field
}

/// The expiry with its complement beside it, so that a read in the middle of a write is noticed.
fn expiry_field(expires_at: Moment) -> [u8; 16] {
    let nanos = expires_at.as_nanos();
    let mut field = [0; 16];
    field[..8].copy_from_slice(&nanos.to_le_bytes());
    field[8..].copy_from_slice(&(!nanos).to_le_bytes());
    field
}

/// `want` and `of` (zero for a read-write lock) with their complement.
fn demand_field(demand: Demand) -> [u8; 16] {
    let (want, of) = match demand {
        Demand::Exclusive => (0u32, 0u32),
        Demand::Shared => (1, 0),
        Demand::Permits { want, of } => (want, of),
    };
    let both = u64::from(want) | u64::from(of) << 32;
    let mut field = [0; 16];
    field[..8].copy_from_slice(&both.to_le_bytes());
    field[8..].copy_from_slice(&(!both).to_le_bytes());
    field
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Content> {
    if bytes.get(..8)? != MAGIC {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let length = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let guarded = |at: usize| Some(number(at)?).filter(|value| number(at + 8) == Some(!value));
    let name_ends = HEAD + length(NAME_LENGTH_AT)?;
    let holder_ends = name_ends.checked_add(length(HOLDER_LENGTH_AT)?)?;
    let survival_boot = bytes.get(holder_ends + 16..holder_ends + SURVIVAL)?;
    let survives = guarded(holder_ends).filter(|_| survival_boot == boot().to_le_bytes());
    let granted = guarded(holder_ends + SURVIVAL).map(Moment::from_nanos);
    let text = |from: usize, to: usize| Some(String::from_utf8_lossy(bytes.get(from..to)?).into_owned());
    Some(Content {
        // A read in the middle of a renewal: alive, since its owner writes.
        expires_at: guarded(EXPIRY_AT).map_or(Moment::NEVER, Moment::from_nanos),
        demand: guarded(DEMAND_AT).and_then(decode_demand),
        joined_at: Moment::from_nanos(number(JOINED_AT)?),
        survives_until: survives.map_or(Moment::ORIGIN, Moment::from_nanos),
        granted_at: granted.filter(|granted_at| *granted_at != Moment::ORIGIN),
        name: text(HEAD, name_ends)?,
        holder: text(name_ends, holder_ends)?,
    })
}

fn decode_demand(both: u64) -> Option<Demand> {
    match (both as u32, (both >> 32) as u32) {
        (0, 0) => Some(Demand::Exclusive),
        (1, 0) => Some(Demand::Shared),
        (want, of) => permits(want, of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::Holder;
    use lockkeeper_core::engine::LockName;
    use std::sync::Arc;
    use std::time::Duration;

    const DEMANDS: [Demand; 3] = [Demand::Exclusive, Demand::Shared, Demand::Permits { want: 2, of: 4 }];

    fn claim(demand: Demand) -> Claim {
        Claim {
            id: ClaimId(77),
            name: LockName::new("größe/漢字").unwrap(),
            demand,
            holder: Arc::new(Holder::here("a \"test\"")),
            keeper: ClaimId(1),
            ttl: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_file_name_reads_back() {
        for demand in DEMANDS {
            let name = ClaimName { place: 1_790_000_000_000_000, hash: 0xab, demand, id: ClaimId(u128::MAX) };
            assert_eq!(ClaimName::parse(name.file_name().as_bytes()), Some(name));
        }
    }

    #[test]
    fn other_files_are_no_claims() {
        let far = ClaimName { place: HIGHEST_PLACE, hash: 2, demand: Demand::Shared, id: ClaimId(3) };
        assert_eq!(ClaimName::parse(far.file_name().as_bytes()), None);
        let good = ClaimName { place: 1, hash: 2, demand: Demand::Shared, id: ClaimId(3) }.file_name();
        for other in
            [".", "..", "gate", "gate.old", "", &good[1..], &format!("{good}.x"), &good.replace('s', "p0of4")]
        {
            assert_eq!(ClaimName::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn names_sort_by_place() {
        let name = |place| ClaimName { place, hash: 2, demand: Demand::Shared, id: ClaimId(3) }.file_name();
        assert!(name(9) < name(10) && name(10) < name(HIGHEST_PLACE));
    }

    #[test]
    fn the_content_reads_back_and_a_part_of_it_does_not() {
        for demand in DEMANDS {
            let claim = claim(demand);
            let bytes = encode(&claim, Moment::from_nanos(5), Moment::from_nanos(9), true);
            let content = decode(&bytes).unwrap();
            assert_eq!((content.joined_at.as_nanos(), content.expires_at.as_nanos()), (5, 9));
            assert_eq!((content.demand, content.granted_at), (Some(demand), Some(Moment::from_nanos(5))));
            assert_eq!(content.name, claim.name.as_str());
            assert_eq!(Holder::decode(&content.holder), *claim.holder);
            let earlier = bytes.len() - GRANT - 1;
            for length in 0..earlier {
                assert_eq!(decode(&bytes[..length]), None, "{length} bytes");
            }
            let ungranted = Content { granted_at: None, ..content };
            assert_eq!(decode(&bytes[..earlier]), Some(ungranted), "a file of an earlier release");
        }
    }

    #[test]
    fn a_half_written_expiry_counts_as_alive() {
        let mut bytes = encode(&claim(Demand::Exclusive), Moment::ORIGIN, Moment::from_nanos(0x01ff), true);
        bytes[EXPIRY_AT] = 0;
        assert_eq!(decode(&bytes).unwrap().expires_at, Moment::NEVER);
    }
}
