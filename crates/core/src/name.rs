//! The name of a lock: one rule for every engine, checked before anything is sent.

use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes.
const LONGEST_BYTES: usize = 512;

/// A checked lock name: path-like, 1 to 512 bytes of UTF-8, no control characters, no empty segment, no
/// `.` or `..`.
///
/// ```
/// use lockkeeper_core::engine::LockName;
/// assert!(LockName::new("orders/42").is_ok());
/// assert!(LockName::new("orders//42").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Invalid`], saying which rule is broken.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        check_name(name.as_ref())?;
        Ok(Self(name.as_ref().into()))
    }

    /// Checks a name and puts it under a namespace: `namespace/name`, or the bare name if the namespace is empty.
    pub(crate) fn under(namespace: &str, name: &str) -> Result<Self> {
        if namespace.is_empty() {
            return Self::new(name);
        }
        check_name(name)?;
        let mut full = String::with_capacity(namespace.len() + 1 + name.len());
        full.push_str(namespace);
        full.push('/');
        full.push_str(name);
        Ok(Self(full.into()))
    }

    /// A name an engine read back from its own store, which was checked when it was written.
    pub fn from_engine(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_name(name: &str) -> Result<()> {
    check(name, LONGEST_BYTES).map_err(|why| Error::invalid(format!("bad lock name {name:?}: {why}")))
}

/// Checks a namespace: empty, or like a name of at most 64 bytes.
pub(crate) fn check_namespace(namespace: &str) -> Result<()> {
    if namespace.is_empty() {
        return Ok(());
    }
    check(namespace, 64).map_err(|why| Error::invalid(format!("bad namespace {namespace:?}: {why}")))
}

fn check(name: &str, longest_bytes: usize) -> Result<(), String> {
    if name.is_empty() {
        return Err("it is empty; give it at least one character".into());
    }
    if name.len() > longest_bytes {
        return Err(format!("it has {} bytes; at most {longest_bytes} are allowed", name.len()));
    }
    // Most names are plain ASCII, which is seen byte by byte: every lock comes through here.
    let plain = |byte: u8| (b' '..=b'~').contains(&byte);
    if !name.bytes().all(plain)
        && let Some(bad) = name.chars().find(|c| c.is_control())
    {
        return Err(format!("it has the control character {bad:?}; remove it"));
    }
    for segment in name.as_bytes().split(|byte| *byte == b'/') {
        match segment {
            b"" => return Err(empty_segment(name)),
            b"." => return Err("the segment '.' is not allowed".into()),
            b".." => return Err("the segment '..' is not allowed".into()),
            _ => {}
        }
    }
    Ok(())
}

/// Says what to write instead. Names with such slashes are in much code for etcd.
fn empty_segment(name: &str) -> String {
    let segments: Vec<&str> = name.split('/').filter(|segment| !segment.is_empty()).collect();
    let without = segments.join("/");
    let instead = if without.is_empty() {
        String::new()
    } else {
        format!(
            ": write {without:?}, also in other clients that share the lock (for etcd, ?prefix=/ is another way)"
        )
    };
    format!("it has an empty segment; no '/' at the start, at the end or doubled{instead}")
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        for name in ["a", "orders/42", "größe/漢字", "with space", &"x".repeat(512)] {
            assert!(LockName::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn bad_names_say_why() {
        for (name, why) in [
            ("", "empty"),
            ("/a", "empty segment"),
            ("a/", "empty segment"),
            ("/my-lock/", "write \"my-lock\", also in other clients"),
            ("/", "doubled"),
            ("a//b", "empty segment"),
            ("a/./b", "not allowed"),
            ("..", "not allowed"),
            ("a\nb", "control"),
            ("a\u{7f}", "control"),
            ("größe\u{85}", "control"),
            (&"x".repeat(513), "513 bytes"),
        ] {
            let error = LockName::new(name).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_namespace_goes_in_front_and_an_empty_one_leaves_the_name_bare() {
        assert_eq!(LockName::under("shop", "a/b").unwrap().as_str(), "shop/a/b");
        assert_eq!(LockName::under("", "a/b").unwrap().as_str(), "a/b");
        assert!(["shop", ""].iter().all(|namespace| LockName::under(namespace, "a//b").is_err()));
    }
}
