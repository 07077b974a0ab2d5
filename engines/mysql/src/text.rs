//! Statements with lists of names and ids, which the server's protocol cannot take as parameters.

use crate::request::Value;

/// A list of names as hexadecimal literals, so that whatever they contain is data.
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| hexadecimal(name.as_bytes())).collect::<Vec<_>>().join(",")
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

/// Puts the values in the places of the question marks, where a statement has too many for parameters.
pub(crate) fn fill(statement: &str, values: &[Value<'_>]) -> String {
    let mut filled = String::with_capacity(statement.len() * 2);
    for (index, part) in statement.split('?').enumerate() {
        match index.checked_sub(1).and_then(|index| values.get(index)) {
            Some(Value::Bytes(bytes)) => filled.push_str(&hexadecimal(bytes)),
            Some(Value::Number(number)) => filled.push_str(&number.to_string()),
            None => {}
        }
        filled.push_str(part);
    }
    filled
}

/// A list of claim ids, which are hexadecimal digits.
pub(crate) fn ids(ids: impl IntoIterator<Item = lockkeeper_core::ClaimId>) -> String {
    ids.into_iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_data_whatever_it_contains() {
        assert_eq!(super::names(["a'b", "ü"]), "x'612762',x'c3bc'");
        assert_eq!(super::fill("(?, 1, ?)", &["a'b".into(), super::Value::Number(7)]), "(x'612762', 1, 7)");
    }
}
