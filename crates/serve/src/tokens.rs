//! Tokens: who may do what, from a file of hashes that is read again when it changes.

use crate::error::Problem;
use axum::http::StatusCode;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Look,
    Hold,
    Evict,
}

impl Right {
    const ALL: [Self; 3] = [Self::Look, Self::Hold, Self::Evict];

    fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Hold => "hold",
            Self::Evict => "evict",
        }
    }
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The token's name; empty where no tokens are asked for.
    pub(crate) name: Arc<str>,
    rights: Vec<Right>,
    /// Begin the names that it may use; `None` for all.
    prefixes: Option<Vec<String>>,
}

impl Caller {
    /// Everybody, where no tokens are asked for.
    pub(crate) fn anybody() -> Self {
        Self { name: "".into(), rights: Right::ALL.to_vec(), prefixes: None }
    }

    pub(crate) fn may(&self, right: Right) -> Result<(), Problem> {
        if self.rights.contains(&right) {
            return Ok(());
        }
        let detail = format!(
            "the token '{}' has not the right '{}': use another token, or add the right in the token file",
            self.name,
            right.word()
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    pub(crate) fn sees(&self, lock: &str) -> bool {
        self.prefixes
            .as_ref()
            .is_none_or(|prefixes| prefixes.iter().any(|prefix| lock.starts_with(prefix.as_str())))
    }

    /// The prefixes of the locks that it may see among those that begin with this one.
    pub(crate) fn seen_within(&self, prefix: &str) -> Vec<String> {
        let Some(prefixes) = &self.prefixes else { return vec![prefix.to_owned()] };
        if self.sees(prefix) {
            return vec![prefix.to_owned()];
        }
        prefixes.iter().filter(|own| own.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn may_on(&self, right: Right, lock: &str) -> Result<(), Problem> {
        self.may(right)?;
        if self.sees(lock) {
            return Ok(());
        }
        let detail = format!(
            "the token '{}' is not for the lock '{lock}': use a name that begins with one of its prefixes, or add a prefix \
             in the token file",
            self.name
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

/// A token as the file has it.
struct Entry {
    hash: [u8; 32],
    caller: Caller,
}

/// The tokens of a file, each on a line: `NAME sha256:HEX RIGHTS PREFIX…`. A file that changes is read again; one that cannot
/// be read, or has no token, keeps the tokens that were read before.
#[derive(Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    path: PathBuf,
    read: Mutex<Read>,
}

struct Read {
    entries: Arc<Vec<Entry>>,
    /// What told that the file is the same: its time and its length.
    version: Option<(SystemTime, u64)>,
    looked_at: Instant,
}

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// A sentence, when the file cannot be read, has no token, or a line of it is wrong.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self, String> {
        let path = path.into();
        let (entries, version) = read(&path)?;
        let read = Read { entries: Arc::new(entries), version, looked_at: Instant::now() };
        Ok(Self(Arc::new(Inner { path, read: Mutex::new(read) })))
    }

    /// A new token of this name: the token itself, to be given to the client, and the line for the file.
    ///
    /// # Errors
    /// A sentence, for a name with other characters than letters, digits, `-`, `_` and `.`.
    pub fn generate(name: &str) -> Result<(String, String), String> {
        check_name(name)?;
        let token = format!("lk_{}", hex(&rand::random::<[u8; 32]>()));
        let line = format!("{name} sha256:{} look,hold *", hex(&hash(&token)));
        Ok((token, line))
    }

    fn entries(&self) -> Arc<Vec<Entry>> {
        let mut now = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked_at.elapsed() >= LOOK_EVERY {
            now.looked_at = Instant::now();
            if version(&self.0.path) != now.version {
                match read(&self.0.path) {
                    Ok((entries, version)) => (now.entries, now.version) = (Arc::new(entries), version),
                    Err(error) => {
                        tracing::error!(%error, "the token file changed, and the tokens before are kept")
                    }
                }
            }
        }
        Arc::clone(&now.entries)
    }

    /// Whose token this is.
    pub(crate) fn caller(&self, token: &str) -> Option<Caller> {
        let hash = hash(token);
        let entries = self.entries();
        // All are compared, each in constant time: how long it takes says nothing about the tokens there are.
        let found = entries
            .iter()
            .fold(None, |found, entry| if same(&entry.hash, &hash) { Some(entry) } else { found });
        found.map(|entry| entry.caller.clone())
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.path.display())
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn version(path: &Path) -> Option<(SystemTime, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

type Parsed = (Vec<Entry>, Option<(SystemTime, u64)>);

fn read(path: &Path) -> Result<Parsed, String> {
    let before = version(path);
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the token file {shown}: {error}"))?;
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let entry =
                parse(line).map_err(|why| format!("line {} of the token file {shown}: {why}", number + 1))?;
            if entries.iter().any(|other: &Entry| other.caller.name == entry.caller.name) {
                return Err(format!(
                    "line {} of the token file {shown}: '{}' is there twice",
                    number + 1,
                    entry.caller.name
                ));
            }
            entries.push(entry);
        }
    }
    // Also what is left of one that is being written.
    if entries.is_empty() {
        return Err(format!("the token file {shown} has no token: add one with --new-token NAME"));
    }
    Ok((entries, before))
}

fn parse(line: &str) -> Result<Entry, String> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(hash), Some(rights)) = (words.next(), words.next(), words.next()) else {
        return Err(
            "expected NAME sha256:HEX RIGHTS PREFIX…, such as 'ci sha256:9f86… look,hold builds/'".into()
        );
    };
    check_name(name)?;
    let digits = hash.strip_prefix("sha256:").filter(|digits| digits.len() == 64 && digits.is_ascii());
    let bytes =
        digits.map(|digits| (0..32).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16)).collect());
    let Some(Ok::<Vec<u8>, _>(bytes)) = bytes else {
        return Err(format!("bad hash of '{name}': expected 'sha256:' and 64 hexadecimal digits"));
    };
    let rights = rights.split(',').map(|word| {
        let found = Right::ALL.into_iter().find(|right| right.word() == word);
        found.ok_or_else(|| format!("unknown right '{word}' of '{name}': use look, hold, evict"))
    });
    let rights = rights.collect::<Result<_, _>>()?;
    let prefixes: Vec<String> = words.map(str::to_owned).collect();
    if prefixes.is_empty() {
        return Err(format!("'{name}' has no prefix: give those of the locks it may use, or * for all"));
    }
    let prefixes = (!prefixes.iter().any(|prefix| prefix == "*")).then_some(prefixes);
    let hash = bytes.try_into().map_err(|_| "bad hash".to_owned())?;
    Ok(Entry { hash, caller: Caller { name: name.into(), rights, prefixes } })
}

fn check_name(name: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
        return Err(format!("bad name of a token {name:?}: use up to 64 letters, digits, '-', '_' and '.'"));
    }
    Ok(())
}
