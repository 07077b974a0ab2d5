//! Names as the server sees them: user locks, and lists of names and ids inside statements.

use lockkeeper_core::engine::{ClaimId, LockName};
use mysql_async::Value;
use sha2::{Digest, Sha256};

/// The user lock of a lock. User locks belong to the server, hence the database in the name; a name that is too long, or
/// that the server could take for another one, is replaced by a hash. `schema_advisory.sql` does the same.
pub(crate) fn user_lock(database: &str, name: &LockName) -> String {
    const LONGEST: usize = 61;
    const HASH: usize = 60;
    let full = [database, "/", name.as_str()].concat();
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-');
    if full.len() <= LONGEST && full.bytes().all(plain) {
        return format!("lk:{full}");
    }
    let hash = format!("{:x}", Sha256::digest(full));
    format!("lk:{}", &hash[..HASH])
}

/// A list of names as hexadecimal literals, so that whatever they contain is data.
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| hexadecimal(name.as_bytes())).collect::<Vec<_>>().join(",")
}

/// A list of claim ids, which are hexadecimal digits.
pub(crate) fn ids(ids: impl IntoIterator<Item = ClaimId>) -> String {
    ids.into_iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",")
}

/// Puts the values in the places of the question marks, where a statement has too many for parameters.
pub(crate) fn fill(statement: &str, values: &[Value]) -> String {
    let mut filled = String::with_capacity(statement.len() * 2);
    for (index, part) in statement.split('?').enumerate() {
        match index.checked_sub(1).and_then(|index| values.get(index)) {
            Some(Value::Bytes(bytes)) => filled.push_str(&hexadecimal(bytes)),
            Some(number) => filled.push_str(&number.as_sql(true)),
            None => {}
        }
        filled.push_str(part);
    }
    filled
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut literal = String::with_capacity(bytes.len() * 2 + 3);
    literal.push_str("x'");
    for byte in bytes {
        literal.push(char::from(DIGITS[usize::from(byte >> 4)]));
        literal.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_data_whatever_it_contains() {
        assert_eq!(names(["a'b", "ü"]), "x'612762',x'c3bc'");
        assert_eq!(fill("(?, 1, ?)", &["a'b".into(), 7_u64.into()]), "(x'612762', 1, 7)");
    }

    #[test]
    fn a_name_that_the_server_could_take_for_another_is_hashed() {
        let key = |name: &str| user_lock("shop", &LockName::from_engine(name));
        assert_eq!(key("orders/1"), "lk:shop/orders/1");
        assert_eq!(key("Orders"), "lk:cfcccd382620db951641dc30bed0105ba49c9d297c16a79a136d7742c99d");
        assert_eq!(key(&"x".repeat(56)).len(), 64, "as it is");
        for odd in ["orders ", "ümlaut", &"x".repeat(57)] {
            let key = key(odd);
            assert!(key.len() == 63 && key[3..].bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        }
    }
}
