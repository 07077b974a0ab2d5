//! What a client asks for: a claim on a lock, with its demand, its holder and its identity.

use crate::name::LockName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How many readers may share a lock, and so the limit of every read-write shape.
///
/// A million waiting writers still sum up to less than 2^53, which is as far as Redis' Lua counts exactly.
pub const SHARED_LIMIT: u64 = 1_000_000_000;

/// The identity of one claim: 128 random bits, chosen before anything is sent (Law 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub u128);

impl ClaimId {
    /// A new identity.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// It as 32 hexadecimal digits.
    pub fn hex(self) -> Hex {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (digits, byte) in hex.chunks_exact_mut(2).zip(self.0.to_be_bytes()) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        Hex(hex)
    }
}

/// A claim's identity as text: every request carries one, and this way of writing it is the quick one.
#[derive(Clone, Copy)]
pub struct Hex([u8; 32]);

impl Hex {
    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hex().as_str())
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ClaimId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// The identity of one keeper, so that an engine knows its claims and can reach it with one message.
pub type KeeperId = ClaimId;

/// A fencing token: larger at every grant of the same lock (Law 8).
///
/// Send it with every access to what the lock protects, reads included, and let the resource refuse a
/// smaller one than it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Token {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl From<u64> for Token {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

/// For a `BIGINT` column, which most databases have no unsigned form of. Tokens of all engines fit.
///
/// ```
/// use lockkeeper_core::Token;
/// let column = i64::try_from(Token(118))?;
/// assert_eq!(Token::try_from(column)?, Token(118));
/// # Ok::<(), std::num::TryFromIntError>(())
/// ```
impl TryFrom<Token> for i64 {
    type Error = std::num::TryFromIntError;

    fn try_from(token: Token) -> Result<Self, Self::Error> {
        token.0.try_into()
    }
}

/// Fails for a negative number.
impl TryFrom<i64> for Token {
    type Error = std::num::TryFromIntError;

    fn try_from(number: i64) -> Result<Self, Self::Error> {
        number.try_into().map(Self)
    }
}

/// How much of a lock a claim wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Demand {
    /// All of it: a mutex or a writer.
    Exclusive,
    /// A part that any number of others may share: a reader.
    Shared,
    /// `want` of `of` permits: a semaphore.
    Permits {
        /// How many permits this claim wants.
        want: u32,
        /// How many there are in all; every user of the lock must agree.
        of: u32,
    },
}

impl Demand {
    /// How much room the claim takes.
    pub fn weight(self) -> u64 {
        match self {
            Self::Exclusive => SHARED_LIMIT,
            Self::Shared => 1,
            Self::Permits { want, .. } => want.into(),
        }
    }

    /// How much room there is.
    pub fn limit(self) -> u64 {
        match self {
            Self::Exclusive | Self::Shared => SHARED_LIMIT,
            Self::Permits { of, .. } => of.into(),
        }
    }

    /// What everybody who uses the lock must agree on (Law 6).
    pub fn shape(self) -> Shape {
        match self {
            Self::Exclusive | Self::Shared => Shape::ReadWrite,
            Self::Permits { of, .. } => Shape::Permits { of },
        }
    }

    /// Whether a holder with this demand may shrink to `to`: same shape, no more weight.
    pub fn may_shrink_to(self, to: Demand) -> bool {
        self.shape() == to.shape() && to.weight() <= self.weight()
    }
}

/// `exclusive`, `shared` or `2/4`: the form engines store and the command line prints.
impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { want, of } => write!(f, "{want}/{of}"),
        }
    }
}

impl FromStr for Demand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("bad demand {text:?}: expected 'exclusive', 'shared' or 'WANT/OF' such as '1/4'");
        match text {
            "exclusive" => Ok(Self::Exclusive),
            "shared" => Ok(Self::Shared),
            _ => {
                let (want, of) = text.split_once('/').ok_or_else(bad)?;
                let want: u32 = want.parse().map_err(|_| bad())?;
                let of: u32 = of.parse().map_err(|_| bad())?;
                if want == 0 || want > of {
                    return Err(format!("bad demand {text:?}: want 1 to {of} of {of} permits"));
                }
                Ok(Self::Permits { want, of })
            }
        }
    }
}

/// The kind of lock a name is in use as; the oldest live claim's rules (Law 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shape {
    /// Exclusive and shared claims.
    ReadWrite,
    /// A semaphore of `of` permits.
    Permits {
        /// How many permits there are in all.
        of: u32,
    },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadWrite => f.write_str("a mutex or read-write lock"),
            Self::Permits { of } => write!(f, "a semaphore of {of} permits"),
        }
    }
}

/// Who made a claim, as shown to operators.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Free text: a service, a job, a person.
    #[serde(rename = "who")]
    pub text: String,
    /// The machine; within a command of `lockkeeper run`, with the process that runs it: `app in run 4711`.
    pub host: String,
    /// The process.
    pub pid: u32,
}

/// The variable by which a command knows the processes of `lockkeeper run` around it: numbers separated by commas, the
/// outermost first.
pub const RUN_VARIABLE: &str = "LOCKKEEPER_RUN";

/// Between the machine and the process of the run around the holder.
const IN_RUN: &str = " in run ";

impl Holder {
    /// This process, under the given text (or its program's name if that is empty).
    pub fn here(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.is_empty() {
            text = program_name();
        }
        let mut host = host_name();
        if let Some(run) = runs_around().first() {
            host = format!("{host}{IN_RUN}{run}");
        }
        Self { text, host, pid: std::process::id() }
    }

    /// The machine alone.
    pub fn machine(&self) -> &str {
        self.host.split_once(IN_RUN).map_or(&self.host, |(machine, _)| machine)
    }

    /// The process of the outermost `lockkeeper run` whose command made the claim, on the same machine.
    pub fn run(&self) -> Option<u32> {
        self.host.split_once(IN_RUN).and_then(|(_, run)| run.parse().ok())
    }

    /// One line that engines store beside the claim.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`encode`](Self::encode) wrote; anything else is shown as text of a foreign client.
    pub fn decode(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|_| Self { text: line.into(), host: String::new(), pid: 0 })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.as_str(), self.pid) {
            // Another client says neither.
            ("", 0) => f.write_str(&self.text),
            ("", pid) => write!(f, "{} (pid {pid})", self.text),
            (host, 0) => write!(f, "{} ({host})", self.text),
            (host, pid) => write!(f, "{} ({host}, pid {pid})", self.text),
        }
    }
}

/// The processes of `lockkeeper run` around this one, the outermost first.
pub fn runs_around() -> Vec<u32> {
    let runs = std::env::var(RUN_VARIABLE).unwrap_or_default();
    runs.split(',').filter_map(|run| run.parse().ok()).collect()
}

fn program_name() -> String {
    std::env::args_os()
        .next()
        .and_then(|path| {
            std::path::Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "unnamed".into())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// One client's place in one lock's queue, from before it is sent until it has left.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its identity: join, keep and leave are idempotent by it.
    pub id: ClaimId,
    /// The lock, with its namespace.
    pub name: LockName,
    /// How much it wants.
    pub demand: Demand,
    /// Who wants it.
    pub holder: Arc<Holder>,
    /// Which keeper renews it and is notified when it fits.
    pub keeper: KeeperId,
    /// How long it lives without a renewal.
    pub ttl: Duration,
}

impl Claim {
    /// [`Error::Lost`](crate::Error::Lost) for this claim, since the engine does not have it any more.
    pub fn gone(&self) -> crate::Error {
        crate::Error::Lost { name: self.name.to_string(), reason: crate::LostReason::Gone }
    }

    /// [`Error::Mismatch`](crate::Error::Mismatch) for this claim, if the ruling shape is another (Law 6).
    ///
    /// # Errors
    /// When the shapes differ.
    pub fn check_shape(&self, ruling: Shape) -> crate::Result<()> {
        let wanted = self.demand.shape();
        if wanted == ruling {
            return Ok(());
        }
        Err(crate::Error::Mismatch { name: self.name.to_string(), wanted, ruling })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_reads_back_what_it_prints() {
        for demand in [Demand::Exclusive, Demand::Shared, Demand::Permits { want: 2, of: 4 }] {
            assert_eq!(demand.to_string().parse::<Demand>().unwrap(), demand);
        }
        for bad in ["", "0/4", "5/4", "x/4", "4", "write"] {
            assert!(bad.parse::<Demand>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_holder_reads_back_and_foreign_text_is_kept() {
        let holder = Holder::here("nightly \"job\"");
        assert_eq!(Holder::decode(&holder.encode()), holder);
        assert_eq!(Holder::decode("10.0.0.7").text, "10.0.0.7");
    }

    #[test]
    fn a_holder_without_host_and_pid_is_its_text() {
        let holder = |host: &str, pid| Holder { text: "kz".into(), host: host.into(), pid }.to_string();
        assert_eq!(holder("", 0), "kz");
        assert_eq!(holder("app", 7), "kz (app, pid 7)");
        assert_eq!(holder("app", 0), "kz (app)");
    }

    #[test]
    fn a_holder_knows_its_machine_and_the_run_around_it() {
        let holder = |host: &str| Holder { text: "kz".into(), host: host.into(), pid: 7 };
        assert_eq!((holder("app").machine(), holder("app").run()), ("app", None));
        let inner = holder("app in run 4711");
        assert_eq!((inner.machine(), inner.run()), ("app", Some(4711)));
        assert_eq!(inner.to_string(), "kz (app in run 4711, pid 7)");
    }

    #[test]
    fn a_token_goes_to_i64_and_back_or_says_that_it_does_not_fit() {
        assert_eq!(Token::try_from(i64::try_from(Token(7)).unwrap()).unwrap(), Token(7));
        assert_eq!(i64::try_from(Token(i64::MAX as u64)).unwrap(), i64::MAX);
        assert!(i64::try_from(Token(u64::MAX)).is_err());
        assert!(Token::try_from(-1_i64).is_err());
        assert_eq!("118".parse::<Token>().unwrap().to_string(), "118");
        assert_eq!(u64::from(Token::from(118)), 118);
    }

    #[test]
    fn a_holder_may_shrink_but_not_grow() {
        assert!(Demand::Exclusive.may_shrink_to(Demand::Shared));
        assert!(!Demand::Shared.may_shrink_to(Demand::Exclusive));
        assert!(!Demand::Exclusive.may_shrink_to(Demand::Permits { want: 1, of: 1 }));
    }
}
