//! What a server replies, read from bytes as they come.

use crate::link::io_error;
use redis::{PushKind, RedisResult, Value};
use std::io::ErrorKind;

/// How deep lists may be nested: ours are two deep.
const DEEPEST: usize = 16;

/// The first reply in these bytes, and how many of them it takes; `None` if it is not whole yet.
///
/// # Errors
/// When this is no reply of a Redis server.
pub(crate) fn first(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.value(DEEPEST)?.map(|value| (value, reader.at)))
}

/// The same for a [`Wire`](lockkeeper_core::drive::Wire); what the server says unasked nobody hears there.
pub(crate) fn reads(bytes: &[u8]) -> std::io::Result<Option<(Option<Value>, usize)>> {
    let heard = first(bytes).map_err(std::io::Error::other)?;
    Ok(heard
        .map(|(value, length)| (Some(value).filter(|value| !matches!(value, Value::Push { .. })), length)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next value. What scripts seldom reply, such as errors, the driver reads.
    fn value(&mut self, deepest: usize) -> RedisResult<Option<Value>> {
        let start = self.at;
        let Some((kind, line)) = self.line()? else { return Ok(None) };
        let value = match kind {
            b':' => Value::Int(number(line)?),
            b'_' => Value::Nil,
            b'+' if line == b"OK" => Value::Okay,
            b'$' => match length(line)? {
                None => Value::Nil,
                Some(length) => match self.take(length)? {
                    Some(text) => Value::BulkString(text.to_vec()),
                    None => return Ok(None),
                },
            },
            b'*' | b'>' | b'%' => {
                let Some(length) = length(line)? else { return Ok(Some(Value::Nil)) };
                let length = if kind == b'%' { length.saturating_mul(2) } else { length };
                let Some(list) = self.list(length, deepest)? else { return Ok(None) };
                match kind {
                    b'*' => Value::Array(list),
                    b'%' => Value::Map(in_twos(list)),
                    // Nobody reads it here.
                    _ => Value::Push { kind: PushKind::Other(String::new()), data: list },
                }
            }
            b'+' | b'-' | b'#' | b',' | b'(' => redis::parse_redis_value(&self.bytes[start..self.at])?,
            _ => return Err(no_reply()),
        };
        Ok(Some(value))
    }

    fn list(&mut self, length: usize, deepest: usize) -> RedisResult<Option<Vec<Value>>> {
        let deepest = deepest.checked_sub(1).ok_or_else(no_reply)?;
        // Each takes three bytes at least, so this asks for no more memory than came.
        let mut list = Vec::with_capacity(length.min(self.bytes.len() / 3));
        for _ in 0..length {
            let Some(value) = self.value(deepest)? else { return Ok(None) };
            list.push(value);
        }
        Ok(Some(list))
    }

    /// The next line: its first byte and the rest.
    fn line(&mut self) -> RedisResult<Option<(u8, &'a [u8])>> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        self.at += end + 1;
        match rest[..end].strip_suffix(b"\r").and_then(<[u8]>::split_first) {
            Some((kind, line)) => Ok(Some((*kind, line))),
            None => Err(no_reply()),
        }
    }

    /// So many bytes and the end of their line.
    fn take(&mut self, length: usize) -> RedisResult<Option<&'a [u8]>> {
        let rest = &self.bytes[self.at..];
        let Some(text) = rest.get(..length) else { return Ok(None) };
        match rest.get(length..length.saturating_add(2)) {
            Some(b"\r\n") => {
                self.at += length + 2;
                Ok(Some(text))
            }
            Some(_) => Err(no_reply()),
            None => Ok(None),
        }
    }
}

fn number(line: &[u8]) -> RedisResult<i64> {
    let (digits, is_negative) = match line.split_first() {
        Some((b'-', digits)) => (digits, true),
        _ => (line, false),
    };
    let add = |number: i64, byte: &u8| {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        let digit = Some(digit).filter(|digit| *digit < 10)?;
        // Downwards, where there is room for one more.
        number.checked_mul(10)?.checked_sub(digit)
    };
    let number = digits.iter().try_fold(0, add).filter(|_| !digits.is_empty());
    let number = if is_negative { number } else { number.and_then(i64::checked_neg) };
    number.ok_or_else(no_reply)
}

/// `None` for what there is not.
fn length(line: &[u8]) -> RedisResult<Option<usize>> {
    match number(line)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| no_reply()),
    }
}

fn in_twos(list: Vec<Value>) -> Vec<(Value, Value)> {
    let mut list = list.into_iter();
    std::iter::from_fn(|| list.next().zip(list.next())).collect()
}

fn no_reply() -> redis::RedisError {
    io_error(ErrorKind::InvalidData, "the server sent what is no reply of Redis")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[&str] = &[
        ":17\r\n",
        ":-3\r\n",
        ":9223372036854775807\r\n",
        ":-9223372036854775808\r\n",
        "_\r\n",
        "+OK\r\n",
        "+PONG\r\n",
        "$3\r\na\r\n\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*3\r\n:1\r\n_\r\n*2\r\n$2\r\nab\r\n:5\r\n",
        "%2\r\n+role\r\n$6\r\nmaster\r\n+proto\r\n:3\r\n",
        "*2\r\n-NOSCRIPT No matching script.\r\n:1\r\n",
        "-WRONGPASS invalid\r\n",
        "#t\r\n",
        ",1.5\r\n",
    ];

    #[test]
    fn a_reply_is_read_as_the_driver_reads_it_once_it_is_whole() {
        for text in WHOLE {
            let bytes = text.as_bytes();
            for end in 0..bytes.len() {
                assert!(first(&bytes[..end]).unwrap().is_none(), "{text:?} up to {end}");
            }
            let theirs = redis::parse_redis_value(bytes).unwrap();
            let with_more = [bytes, b":1"].concat();
            assert_eq!(first(&with_more).unwrap(), Some((theirs, bytes.len())), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let deep = "*1\r\n".repeat(100) + ":1\r\n";
        for text in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            ":x\r\n",
            ":\r\n",
            ":-\r\n",
            ":9223372036854775808\r\n",
            "$2\r\nabc\r\n",
            "*-7\r\n",
            "$9999999999999999999\r\n",
            &deep,
        ] {
            assert!(first(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_the_server_says_unasked_can_be_told_from_a_reply() {
        let push = ">2\r\n+invalidate\r\n_\r\n";
        assert!(
            matches!(first(push.as_bytes()).unwrap(), Some((Value::Push { .. }, length)) if length == push.len())
        );
    }
}
