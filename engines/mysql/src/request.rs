//! What is sent to the server: a command in a packet of its own.

use crate::packets::put_text;
use mysql_async::Params;
use mysql_async::consts::ColumnType;
use std::borrow::Cow;

const EXECUTE: u8 = 0x17;

/// A packet of this length would be continued in the next one; none of ours comes near.
pub(crate) const TOO_LONG: usize = 0xff_ffff;

/// A value for a question mark.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(Cow<'a, [u8]>),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes().into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Bytes(text.into_bytes().into())
    }
}

impl From<Value<'_>> for mysql_async::Value {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Number(number) => number.into(),
            Value::Bytes(bytes) => bytes.into_owned().into(),
        }
    }
}

/// The same for the driver.
pub(crate) fn params(values: &[Value<'_>]) -> Params {
    Params::Positional(values.iter().cloned().map(Into::into).collect())
}

impl Value<'_> {
    /// Its type, as the protocol has it.
    fn kind(&self) -> [u8; 2] {
        const UNSIGNED: u8 = 0x80;
        match self {
            Self::Number(_) => [ColumnType::MYSQL_TYPE_LONGLONG as u8, UNSIGNED],
            Self::Bytes(_) => [ColumnType::MYSQL_TYPE_VAR_STRING as u8, 0],
        }
    }
}

/// Writes a packet with what `fill` writes.
pub(crate) fn put_packet(buffer: &mut Vec<u8>, sequence: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = buffer.len();
    buffer.extend([0; 4]);
    fill(buffer);
    let length = buffer.len() - begin - 4;
    let [one, two, three, ..] = length.to_le_bytes();
    buffer[begin..begin + 4].copy_from_slice(&[one, two, three, sequence]);
}

/// Writes the wish to execute a prepared statement.
pub(crate) fn put_execute(buffer: &mut Vec<u8>, statement: u32, values: &[Value<'_>]) {
    put_packet(buffer, 0, |buffer| {
        buffer.push(EXECUTE);
        buffer.extend(statement.to_le_bytes());
        // No cursor, once.
        buffer.extend([0, 1, 0, 0, 0]);
        if values.is_empty() {
            return;
        }
        // None of them is NULL, and their types follow.
        buffer.resize(buffer.len() + values.len().div_ceil(8), 0);
        buffer.push(1);
        buffer.extend(values.iter().flat_map(|value| value.kind()));
        for value in values {
            match value {
                Value::Number(number) => buffer.extend(number.to_le_bytes()),
                Value::Bytes(bytes) => put_text(buffer, bytes),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_one_after_the_other_with_their_lengths() {
        let mut buffer = Vec::new();
        put_execute(&mut buffer, 3, &[Value::Number(9), "x".into()]);
        let begin = [EXECUTE, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 8, 0x80, 253, 0];
        let content = [&begin[..], &9_u64.to_le_bytes(), b"\x01x"].concat();
        let first = [&[26, 0, 0, 0][..], &content].concat();
        assert_eq!(buffer, first);
        put_execute(&mut buffer, 4, &[]);
        assert_eq!(buffer, [&first[..], &[10, 0, 0, 0, EXECUTE, 4, 0, 0, 0, 0, 1, 0, 0, 0]].concat());
    }
}
