//! The handle of a detached hold: all that another process needs to take it over, in one line of text.

use crate::claim::{ClaimId, Demand, Token};
use crate::error::{Error, Result};
use crate::name::{LockName, check_namespace};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// What the text begins with: the version of its form.
const VERSION: &str = "lockkeeper1";
/// How many fields follow.
const FIELDS: usize = 8;
/// The longest text that is read: a name, a namespace and the rest, each byte escaped.
const LONGEST_BYTES: usize = 4096;

/// A detached hold; see [`Guard::detach`](crate::Guard::detach) and [`Keeper::attach`](crate::Keeper::attach).
///
/// It is written as one line without spaces, quotes or characters that a shell expands, and reads back; serde uses the same
/// text. It is the right to renew and to release the hold: give it to nobody else.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, Handle, engine::Memory};
/// # use std::time::Duration;
/// # let keeper = Keeper::builder().build(Memory::engine())?;
/// let guard = keeper.mutex("deploy").lock().await?;
/// let handle = guard.detach(Duration::from_secs(1800)).await?;
/// let text = handle.to_string(); // goes into a job, a variable, a file
/// let guard = keeper.attach(&text.parse()?).await?;
/// assert_eq!(guard.token()?, handle.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Handle {
    pub(crate) engine: String,
    pub(crate) style: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) claim: ClaimId,
    pub(crate) demand: Demand,
    pub(crate) token: Token,
    /// In seconds since 1970, by the clock of the process that detached it.
    pub(crate) until_seconds: u64,
}

impl Handle {
    /// The lock's name, without its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of the keeper that detached it.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The engine, such as `redis`.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The engine's style, such as `queue`.
    pub fn style(&self) -> &str {
        &self.style
    }

    /// The claim's id, as `inspect` shows it.
    pub fn claim(&self) -> String {
        self.claim.to_string()
    }

    /// How much of the lock it holds.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// The fencing token. Whether the hold still exists is known after [`Keeper::attach`](crate::Keeper::attach) only.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Until when the engine keeps the hold without a renewal, by the clock of the process that detached it. For people: the
    /// engine's clock decides.
    pub fn until(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.until_seconds)
    }

    /// How much is left until then, by this machine's clock.
    pub fn left(&self) -> Duration {
        self.until().duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// `lockkeeper1:ENGINE:STYLE:NAMESPACE:NAME:CLAIM:DEMAND:TOKEN:UNTIL`. What is no letter, digit or one of `._/-` is
/// written as `%XX`.
impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        for text in [&self.engine, &self.style, &self.namespace, &self.name] {
            f.write_str(":")?;
            escape(text, f)?;
        }
        let until = humantime::format_rfc3339_seconds(self.until());
        write!(f, ":{}:{}:{}:{until}", self.claim, self.demand, self.token)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._/-".contains(&byte)
}

fn escape(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in text.bytes() {
        match is_plain(byte) {
            true => write!(f, "{}", char::from(byte))?,
            false => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

fn unescape(field: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else if is_plain(*first) {
            bytes.push(*first);
            rest = after;
        } else {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

impl FromStr for Handle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let bad = |why: &str| {
            Error::invalid(format!("bad handle: {why}; give the whole line that acquire printed"))
        };
        if text.len() > LONGEST_BYTES {
            return Err(bad("it is too long"));
        }
        let (version, fields) = text.split_once(':').ok_or_else(|| bad("it is not one of lockkeeper's"))?;
        if version != VERSION {
            return Err(match version.strip_prefix("lockkeeper") {
                Some(_) => bad("it was made by another version of lockkeeper"),
                None => bad("it is not one of lockkeeper's"),
            });
        }
        // The time, which is last, has colons of its own.
        let fields: Vec<&str> = fields.splitn(FIELDS, ':').collect();
        let [engine, style, namespace, name, claim, demand, token, until] = fields[..] else {
            return Err(bad("a part of it is missing"));
        };
        let text =
            |field: &str, what: &str| unescape(field).ok_or_else(|| bad(&format!("its {what} is damaged")));
        let (namespace, name) = (text(namespace, "namespace")?, text(name, "name")?);
        check_namespace(&namespace)?;
        LockName::new(&name)?;
        let is_id = claim.len() == 32 && claim.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
        let claim = claim.parse().ok().filter(|_| is_id).ok_or_else(|| bad("its claim is damaged"))?;
        let until = humantime::parse_rfc3339(until).map_err(|_| bad("its time is damaged"))?;
        let until = until.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| bad("its time is damaged"))?;
        let is_number = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        Ok(Self {
            engine: text(engine, "engine")?,
            style: text(style, "style")?,
            namespace,
            name,
            claim,
            demand: demand.parse().map_err(|_| bad("its demand is damaged"))?,
            token: token.parse().ok().filter(|_| is_number).ok_or_else(|| bad("its token is damaged"))?,
            until_seconds: until.as_secs(),
        })
    }
}

impl TryFrom<String> for Handle {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Handle> for String {
    fn from(handle: Handle) -> Self {
        handle.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(name: &str) -> Handle {
        Handle {
            engine: "redis".into(),
            style: "queue".into(),
            namespace: "shop".into(),
            name: name.into(),
            claim: ClaimId(0xabc),
            demand: Demand::Permits { want: 1, of: 4 },
            token: Token(118),
            until_seconds: 1_790_000_000,
        }
    }

    #[test]
    fn a_handle_reads_back_and_needs_no_quotes_in_a_shell() {
        for name in ["deploy/prod", "a b:c%d$e`f'g\"*?[x]~&;|<>(){}#!\\", "größe/漢字", &"\u{fe}".repeat(256)]
        {
            let handle = handle(name);
            let text = handle.to_string();
            assert_eq!(text.parse::<Handle>().unwrap(), handle);
            assert_eq!(format!(" {text}\n").parse::<Handle>().unwrap(), handle);
            assert!(text.bytes().all(|byte| is_plain(byte) || b":%".contains(&byte)), "{text}");
        }
        let bare = Handle { namespace: String::new(), ..handle("a") };
        assert_eq!(bare.to_string().parse::<Handle>().unwrap(), bare);
        assert_eq!(
            handle("a b").to_string(),
            "lockkeeper1:redis:queue:shop:a%20b:00000000000000000000000000000abc:1/4:118:2026-09-21T14:13:20Z"
        );
    }

    #[test]
    fn serde_uses_the_text() {
        let json = serde_json::to_string(&handle("a b")).unwrap();
        assert_eq!(json, format!("\"{}\"", handle("a b")));
        assert_eq!(serde_json::from_str::<Handle>(&json).unwrap(), handle("a b"));
        assert!(serde_json::from_str::<Handle>("\"lockkeeper1:\"").is_err());
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let good = handle("a b").to_string();
        let changed = |from: &str, to: &str| good.replacen(from, to, 1);
        for (bad, why) in [
            (String::new(), "not one of lockkeeper's"),
            ("deploy".into(), "not one of lockkeeper's"),
            ("redis://host".into(), "not one of lockkeeper's"),
            (changed("lockkeeper1", "lockkeeper2"), "another version"),
            (changed("%20b", "%2"), "name is damaged"),
            (changed("%20", "%+2"), "name is damaged"),
            (changed("%20", "%ff"), "name is damaged"),
            (changed("%20", " "), "name is damaged"),
            (changed("%20", "%0A"), "control character"),
            (changed("a%20b", "../x"), "not allowed"),
            (changed("shop", "a//b"), "bad namespace"),
            (changed("0abc", "0ABC"), "claim is damaged"),
            (changed("0abc", "abc"), "claim is damaged"),
            (changed("1/4", "5/4"), "demand is damaged"),
            (changed(":118:", ":-1:"), "token is damaged"),
            (changed(":118:", ":+1:"), "token is damaged"),
            (changed(":118:", ":99999999999999999999:"), "token is damaged"),
            (changed("2026", "20z6"), "time is damaged"),
            (good[..40].into(), "missing"),
            (good[..good.len() - 3].into(), "time is damaged"),
            (format!("{good}:x"), "time is damaged"),
            (format!("lockkeeper1:{}", "a".repeat(5000)), "too long"),
        ] {
            let error = bad.parse::<Handle>().unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
