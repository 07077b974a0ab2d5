//! What goes to and fro on a connection of ours: a prepared statement with at most one text, or a call of a function with a number,
//! and the numbers that either answers with.
//!
//! In version 3 of the server's protocol, of which this is a small part.

use std::io::{self, ErrorKind};

/// The first columns of the first row; those that are not there, are null or are no numbers are `None`.
pub(crate) type Numbers = [Option<i64>; 2];

/// What the server says to one request.
pub(crate) type Answer = Result<Numbers, Box<Refusal>>;

/// The server's own words when it refuses a request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Refusal {}

/// More than any answer to our statements has.
const LONGEST: usize = 1 << 24;

/// Writes a request: the prepared statement of this name with this text, if it has one. The numbers come in binary form.
pub(crate) fn put_request(out: &mut Vec<u8>, name: &[u8], text: Option<&str>) {
    put(out, b'B', |out| {
        out.push(0);
        out.extend_from_slice(name);
        // The values are texts, however many there are.
        out.extend_from_slice(&[0, 0, 0, u8::from(text.is_some())]);
        if let Some(text) = text {
            out.extend_from_slice(&length(text.len()));
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(&[0, 1, 0, 1]);
    });
    put(out, b'E', |out| out.extend_from_slice(&[0; 5]));
    put(out, b'S', |_| {});
}

/// Writes a call of the server's function with this number, without a statement.
pub(crate) fn put_call(out: &mut Vec<u8>, function: u32, value: i64) {
    put(out, b'F', |out| {
        out.extend_from_slice(&function.to_be_bytes());
        // One value, in binary form.
        out.extend_from_slice(&[0, 1, 0, 1, 0, 1]);
        out.extend_from_slice(&length(size_of_val(&value)));
        out.extend_from_slice(&value.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
    });
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn put(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[kind, 0, 0, 0, 0]);
    let start = out.len();
    body(out);
    let all = length(out.len() - start + 4);
    out[start - 4..start].copy_from_slice(&all);
}

/// The first answer in these bytes, and how many of them it takes; `None` if it is not whole yet.
///
/// # Errors
/// When this is nothing that a PostgreSQL server says.
pub(crate) fn reads(bytes: &[u8]) -> io::Result<Option<(Option<Answer>, usize)>> {
    let mut rest = Reader(bytes);
    let (mut row, mut refusal) = (None, None);
    while let Some(head) = rest.bytes(5) {
        let length = Reader(&head[1..]).number(4).unwrap_or_default();
        let length = usize::try_from(length).ok().filter(|length| (4..LONGEST).contains(length));
        let Some(length) = length.filter(|_| head[0].is_ascii_alphanumeric()) else {
            return Err(nonsense());
        };
        let Some(body) = rest.bytes(length - 4) else { return Ok(None) };
        match head[0] {
            b'D' if row.is_none() => row = Some(numbers(body).ok_or_else(nonsense)?),
            b'V' => row = Some([value(&mut Reader(body)).ok_or_else(nonsense)?, None]),
            b'E' => refusal = Some(Box::new(self::refusal(body))),
            b'Z' => {
                let answer = refusal.map_or(Ok(row.unwrap_or_default()), Err);
                return Ok(Some((Some(answer), bytes.len() - rest.0.len())));
            }
            // Everything else only says that all goes well, or is not about the request.
            _ => {}
        }
    }
    Ok(None)
}

fn nonsense() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "this is not what a PostgreSQL server says")
}

fn numbers(row: &[u8]) -> Option<Numbers> {
    let mut reader = Reader(row);
    let columns = reader.number(2)?;
    let mut numbers = Numbers::default();
    for column in 0..usize::try_from(columns).ok()? {
        let value = value(&mut reader)?;
        if let Some(number) = numbers.get_mut(column) {
            *number = value;
        }
    }
    Some(numbers)
}

/// The next value behind its length, which is negative for null: the number that it is.
fn value(reader: &mut Reader<'_>) -> Option<Option<i64>> {
    match usize::try_from(reader.number(4)?) {
        Ok(length) => reader.bytes(length).map(number),
        Err(_) => Some(None),
    }
}

/// The number that a value in binary form is, if it is one: a truth, or a whole number of any size.
pub(crate) fn number(value: &[u8]) -> Option<i64> {
    match value.len() {
        1 | 2 | 4 | 8 => Reader(value).number(value.len()),
        _ => None,
    }
}

fn refusal(body: &[u8]) -> Refusal {
    let mut refusal = Refusal::default();
    for field in body.split(|byte| *byte == 0) {
        let Some((kind, text)) = field.split_first() else { continue };
        let text = || String::from_utf8_lossy(text).into_owned();
        match kind {
            b'C' => refusal.code = text(),
            b'M' => refusal.message = text(),
            _ => {}
        }
    }
    refusal
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A whole number with its sign.
    fn number(&mut self, bytes: usize) -> Option<i64> {
        let bytes = self.bytes(bytes)?;
        let sign = if bytes.first()? & 0x80 == 0 { 0 } else { -1 };
        Some(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, kind, |out| out.extend_from_slice(body));
        out
    }

    fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut body = vec![0, u8::try_from(values.len()).unwrap()];
        for value in values {
            body.extend(value.map_or(u32::MAX.to_be_bytes(), |value| length(value.len())));
            body.extend_from_slice(value.unwrap_or_default());
        }
        message(b'D', &body)
    }

    #[test]
    fn a_request_says_where_everything_ends() {
        let mut out = Vec::new();
        put_request(&mut out, b"lk0\0", Some("ab"));
        let bind = b"B\0\0\0\x17\0lk0\0\0\0\0\x01\0\0\0\x02ab\0\x01\0\x01";
        assert_eq!(bind.len(), 0x17 + 1);
        let rest = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        assert_eq!(out, [&bind[..], rest].concat());
        out.clear();
        put_request(&mut out, b"lk1\0", None);
        assert_eq!(out[..18], *b"B\0\0\0\x11\0lk1\0\0\0\0\0\0\x01\0\x01");
    }

    #[test]
    fn a_call_has_one_number_and_is_answered_with_one() {
        let mut out = Vec::new();
        put_call(&mut out, 0x102, -2);
        let wanted =
            b"F\0\0\0\x1c\0\0\x01\x02\0\x01\0\x01\0\x01\0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xfe\0\x01";
        assert_eq!((out, wanted.len()), (wanted.to_vec(), 0x1c + 1));
        let ready = message(b'Z', b"I");
        for (said, number) in [(&b"\0\0\0\x01\x01"[..], Some(1)), (b"\xff\xff\xff\xff", None)] {
            let said = [message(b'V', said), ready.clone()].concat();
            assert_eq!(reads(&said).unwrap().unwrap().0, Some(Ok([number, None])));
        }
    }

    #[test]
    fn an_answer_is_read_when_it_is_whole_and_not_before() {
        let minus_two = (-2_i64).to_be_bytes();
        let said = [
            message(b'2', b""),
            message(b'N', b"SNOTICE\0\0"),
            row(&[Some(&minus_two), Some(&[0, 0, 1, 0]), Some(b"more than we read")]),
            row(&[Some(&[1])]),
            message(b'C', b"SELECT 2\0"),
            message(b'Z', b"I"),
        ]
        .concat();
        for length in 0..said.len() {
            assert!(reads(&said[..length]).unwrap().is_none(), "cut after {length}");
        }
        let wanted = Some((Some(Ok([Some(-2), Some(256)])), said.len()));
        assert_eq!(reads(&said).unwrap(), wanted);
        assert_eq!(reads(&[&said[..], b"2\0\0"].concat()).unwrap(), wanted, "the next one has begun");
    }

    #[test]
    fn what_is_not_there_or_no_number_is_none() {
        let ready = message(b'Z', b"T");
        for (said, wanted) in [
            (row(&[Some(&[1]), None]), [Some(1), None]),
            (row(&[Some(b""), Some(b"three")]), [None, None]),
            (message(b'C', b"SELECT 0\0"), [None, None]),
        ] {
            let said = [said, ready.clone()].concat();
            assert_eq!(reads(&said).unwrap().unwrap().0, Some(Ok(wanted)));
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let said = [message(b'E', b"SERROR\0C42P01\0Mno such table\0\0"), message(b'Z', b"I")].concat();
        let Some((Some(Err(refusal)), _)) = reads(&said).unwrap() else { panic!("no refusal") };
        assert_eq!(refusal.to_string(), "no such table (42P01)");
    }

    #[test]
    fn what_no_server_says_is_an_error() {
        for said in [
            &b"HTTP/1.1 400 Bad Request"[..],
            b"D\0\0\0\x03",
            b"D\xff\xff\xff\xff",
            b"\0\0\0\0\x04",
            &row(&[Some(&[1])])[..10].iter().copied().chain([9; 8]).collect::<Vec<u8>>(),
        ] {
            assert!(reads(said).is_err(), "{said:?}");
        }
    }
}
