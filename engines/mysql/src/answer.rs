//! What the server answers to a statement: several packets, read when all of them have come.

use crate::packets::{Reader, good, split};
use mysql_async::ServerError;
use mysql_async::consts::{ColumnType, StatusFlags};
use std::io;

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Number(u64),
    Bytes(Vec<u8>),
}

impl Cell {
    /// The number that it is or that it spells.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Null => None,
            Self::Number(number) => Some(*number),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        }
    }
}

/// The first row of an answer; empty if it has none.
pub(crate) type Row = Vec<Cell>;

/// What comes of a statement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) row: Row,
    /// How many rows it has changed, and the number that it gave, if it has no result.
    pub(crate) changed: u64,
    pub(crate) number: u64,
}

/// What the server says to a statement.
pub(crate) type Answer = Result<Said, ServerError>;

/// How rows are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows {
    /// To a statement as it is.
    Text,
    /// To a prepared one.
    Binary,
}

/// Why there is no answer to be read.
enum Stop {
    /// Not all of it has come.
    Unfinished,
    Refused(ServerError),
    Nonsense,
}

/// What was read, or refused, and how many bytes that took; nothing if not all of it has come.
pub(crate) type Whole<T> = io::Result<Option<(Result<T, ServerError>, usize)>>;

/// Reads one answer, if it is there. `without_eof`: results end without a packet of their own after the
/// columns.
pub(crate) fn read(bytes: &[u8], rows: Rows, without_eof: bool) -> Whole<Said> {
    whole(bytes, |packets| packets.answer(rows, without_eof))
}

/// The same for a wire on which all statements are prepared.
pub(crate) fn reads<const WITHOUT_EOF: bool>(bytes: &[u8]) -> io::Result<Option<(Option<Answer>, usize)>> {
    let read = read(bytes, Rows::Binary, WITHOUT_EOF)?;
    Ok(read.map(|(answer, length)| (Some(answer), length)))
}

/// Reads what the server says to the wish to prepare a statement: its number.
pub(crate) fn read_number(bytes: &[u8], without_eof: bool) -> Whole<u32> {
    whole(bytes, |packets| packets.number(without_eof))
}

fn whole<T>(bytes: &[u8], read: impl FnOnce(&mut Unread<'_>) -> Result<T, Stop>) -> Whole<T> {
    let mut packets = Unread(bytes);
    let outcome = match read(&mut packets) {
        Ok(it) => Ok(it),
        Err(Stop::Refused(error)) => Err(error),
        Err(Stop::Unfinished) => return Ok(None),
        Err(Stop::Nonsense) => {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that makes no sense"));
        }
    };
    Ok(Some((outcome, bytes.len() - packets.0.len())))
}

/// The packets that have come.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn next(&mut self) -> Result<&'a [u8], Stop> {
        let (packet, rest) = split(self.0).ok_or(Stop::Unfinished)?;
        self.0 = rest;
        good(packet).map_err(Stop::Refused)
    }

    fn answer(&mut self, rows: Rows, without_eof: bool) -> Result<Said, Stop> {
        let mut said = Said::default();
        while self.result(&mut said, rows, without_eof)?.contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS) {}
        Ok(said)
    }

    /// One of the results: a procedure has several.
    fn result(&mut self, said: &mut Said, rows: Rows, without_eof: bool) -> Result<StatusFlags, Stop> {
        let packet = self.next()?;
        if let [0x00, counts @ ..] = packet {
            let mut counts = Reader(counts);
            (said.changed, said.number) = counts.length().zip(counts.length()).ok_or(Stop::Nonsense)?;
            if said.row.is_empty() {
                said.row = tracked(packet).unwrap_or_default();
            }
            return Ok(status(packet, true));
        }
        let count = Reader(packet).length().ok_or(Stop::Nonsense)?;
        let columns = self.columns(count, without_eof)?;
        loop {
            let packet = self.next()?;
            if packet.first() == Some(&0xfe) && packet.len() < 0xff_ffff {
                return Ok(status(packet, without_eof));
            }
            if said.row.is_empty() {
                let row = match rows {
                    Rows::Text => text_row(packet, count),
                    Rows::Binary => binary_row(packet, &columns),
                };
                said.row = row.ok_or(Stop::Nonsense)?;
            }
        }
    }

    /// The types of so many columns.
    fn columns(&mut self, count: u64, without_eof: bool) -> Result<Vec<u8>, Stop> {
        /// From the end of a column's description.
        const TYPE: usize = 6;
        let mut types = Vec::new();
        for _ in 0..count {
            let packet = self.next()?;
            let at = packet.len().checked_sub(TYPE).ok_or(Stop::Nonsense)?;
            types.push(packet[at]);
        }
        if count > 0 && !without_eof {
            self.next()?;
        }
        Ok(types)
    }

    fn number(&mut self, without_eof: bool) -> Result<u32, Stop> {
        let mut reader = Reader(self.next()?.get(1..).unwrap_or_default());
        let numbers = || Some((reader.number(4)?, reader.number(2)?, reader.number(2)?));
        let (number, columns, params) = { numbers }().ok_or(Stop::Nonsense)?;
        self.columns(params, without_eof)?;
        self.columns(columns, without_eof)?;
        u32::try_from(number).map_err(|_| Stop::Nonsense)
    }
}

/// What the last packet of a result says; not all servers end it in the new way.
fn status(packet: &[u8], is_new: bool) -> StatusFlags {
    let mut reader = Reader(packet.get(1..).unwrap_or_default());
    let skipped = if is_new { reader.length().and(reader.length()) } else { reader.number(2) };
    let status = skipped.and(reader.number(2)).and_then(|status| u16::try_from(status).ok());
    StatusFlags::from_bits_truncate(status.unwrap_or_default())
}

/// The new value of the variable that is tracked, if a statement without a result has set it.
fn tracked(packet: &[u8]) -> Option<Row> {
    const VARIABLE: u64 = 0;
    let mut reader = Reader(packet.get(1..)?);
    let _affected_and_inserted = (reader.length()?, reader.length()?);
    let status = StatusFlags::from_bits_truncate(u16::try_from(reader.number(2)?).ok()?);
    if !status.contains(StatusFlags::SERVER_SESSION_STATE_CHANGED) {
        return None;
    }
    let _warnings_and_message = (reader.number(2)?, reader.text()?);
    let mut changes = Reader(reader.text()?);
    while let (kind, Some(change)) = (changes.number(1)?, changes.text()) {
        if kind == VARIABLE {
            let mut change = Reader(change);
            let _name = change.text()?;
            return Some(vec![Cell::Bytes(change.text()?.to_vec())]);
        }
    }
    None
}

fn text_row(packet: &[u8], count: u64) -> Option<Row> {
    const NULL: u8 = 0xfb;
    let mut reader = Reader(packet);
    let mut cell = || {
        if reader.0.first() == Some(&NULL) {
            reader.bytes(1)?;
            return Some(Cell::Null);
        }
        Some(Cell::Bytes(reader.text()?.to_vec()))
    };
    (0..count).map(|_| cell()).collect()
}

fn binary_row(packet: &[u8], columns: &[u8]) -> Option<Row> {
    let mut reader = Reader(packet.get(1..)?);
    // Its first two bits mean nothing.
    let nulls = reader.bytes((columns.len() + 2).div_ceil(8))?;
    let cell = |(index, column): (usize, &u8)| {
        if nulls[(index + 2) / 8] & (1 << ((index + 2) % 8)) != 0 {
            return Some(Cell::Null);
        }
        Some(match size(*column) {
            Some(bytes) => Cell::Number(reader.number(bytes)?),
            None => Cell::Bytes(reader.text()?.to_vec()),
        })
    };
    columns.iter().enumerate().map(cell).collect()
}

/// How many bytes a number of this type has; `None` if it is not a whole number.
fn size(column: u8) -> Option<usize> {
    match ColumnType::try_from(column).ok()? {
        ColumnType::MYSQL_TYPE_TINY => Some(1),
        ColumnType::MYSQL_TYPE_SHORT | ColumnType::MYSQL_TYPE_YEAR => Some(2),
        ColumnType::MYSQL_TYPE_LONG | ColumnType::MYSQL_TYPE_INT24 => Some(4),
        ColumnType::MYSQL_TYPE_LONGLONG => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_in_both_ways() {
        let columns = [ColumnType::MYSQL_TYPE_LONGLONG as u8, ColumnType::MYSQL_TYPE_LONG as u8, 253];
        let packet = [&[0, 0b100][..], &7_u32.to_le_bytes(), b"\x02ab"].concat();
        let wanted = vec![Cell::Null, Cell::Number(7), Cell::Bytes(b"ab".into())];
        assert_eq!(binary_row(&packet, &columns), Some(wanted));
        assert_eq!(binary_row(&packet[..5], &columns), None);
        let wanted = vec![Cell::Null, Cell::Bytes(b"12".into())];
        assert_eq!(text_row(b"\xfb\x0212", 2), Some(wanted));
        assert_eq!(text_row(b"\xfb\x0212", 3), None);
        assert_eq!(Cell::Bytes(b"12".into()).number(), Some(12));
    }

    #[test]
    fn a_tracked_value_is_read_from_an_answer_without_a_result() {
        let answer = b"\x00\x00\x00\x02\x40\x00\x00\x00\x15\x01\x01x\x00\x10\x0elast_insert_id";
        let whole = [&answer[..], b"\x0212"].concat();
        assert_eq!(tracked(&whole), None, "a length that is not true");
        let mut whole = whole;
        (whole[8], whole[13]) = (0x17, 0x12);
        assert_eq!(tracked(&whole), Some(vec![Cell::Bytes(b"12".into())]));
        assert_eq!(tracked(b"\x00\x00\x00\x02\x00\x00\x00"), None);
        for length in 0..whole.len() {
            assert_eq!(tracked(&whole[..length]), None, "cut after {length}");
        }
    }

    #[test]
    fn an_answer_without_a_result_tells_what_was_changed_and_which_number_was_given() {
        let bytes = packet(1, &[0, 1, 0xfc, 0x2c, 0x01, 2, 0, 0, 0]);
        let said = Said { row: Vec::new(), changed: 1, number: 300 };
        assert_eq!(read(&bytes, Rows::Binary, true).unwrap(), Some((Ok(said), bytes.len())));
    }

    fn packet(sequence: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("a short one");
        [&[length, 0, 0, sequence], content].concat()
    }

    /// Two columns and a row of a procedure, and then its own end.
    fn of_a_procedure(without_eof: bool) -> Vec<u8> {
        let column = |kind: ColumnType| [b"\x03def".as_slice(), &[kind as u8, 0, 0, 0, 0, 0]].concat();
        let mut packets = vec![
            vec![2],
            column(ColumnType::MYSQL_TYPE_LONGLONG),
            column(ColumnType::MYSQL_TYPE_LONG),
            [&[0, 0][..], &9_u64.to_le_bytes(), &4_u32.to_le_bytes()].concat(),
        ];
        let more = StatusFlags::SERVER_MORE_RESULTS_EXISTS.bits().to_le_bytes();
        if without_eof {
            packets.push([&[0xfe, 0, 0][..], &more, &[0, 0]].concat());
        } else {
            packets.insert(3, vec![0xfe, 0, 0, 0, 0]);
            packets.push([&[0xfe, 0, 0][..], &more].concat());
        }
        packets.push(vec![0, 0, 0, 2, 0, 0, 0]);
        packets.iter().zip(1..).flat_map(|(content, sequence)| packet(sequence, content)).collect()
    }

    #[test]
    fn an_answer_is_read_when_all_of_it_has_come() {
        for without_eof in [true, false] {
            let bytes = of_a_procedure(without_eof);
            for length in 0..bytes.len() {
                assert_eq!(read(&bytes[..length], Rows::Binary, without_eof).unwrap(), None, "{length}");
            }
            let after = [bytes.as_slice(), b"next"].concat();
            let row = vec![Cell::Number(9), Cell::Number(4)];
            let wanted = Some((Ok(Said { row, changed: 0, number: 0 }), bytes.len()));
            assert_eq!(read(&after, Rows::Binary, without_eof).unwrap(), wanted);
        }
    }

    #[test]
    fn a_refusal_ends_an_answer_wherever_it_comes() {
        let refusal = packet(4, b"\xff\x15\x04#28000No");
        let column = packet(2, b"\x03def\x08\x00\x00\x00\x00\x00");
        for before in [Vec::new(), packet(1, &[1]), [packet(1, &[1]), column].concat()] {
            let bytes = [before, refusal.clone()].concat();
            let (answer, length) = read(&bytes, Rows::Binary, true).unwrap().expect("an answer");
            assert_eq!((answer.unwrap_err().code, length), (1045, bytes.len()));
        }
        assert!(read(&packet(1, &[0xfb, 1]), Rows::Binary, true).is_err(), "it wants a file");
    }

    #[test]
    fn a_prepared_statement_has_a_number_behind_which_its_columns_come() {
        for without_eof in [true, false] {
            let end = if without_eof { Vec::new() } else { packet(3, &[0xfe, 0, 0, 0, 0]) };
            let column = [packet(2, b"\x03def\x08\x00\x00\x00\x00\x00"), end].concat();
            let ok = packet(1, &[0, 7, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
            let bytes = [ok, column.clone(), column].concat();
            for length in 0..bytes.len() {
                assert_eq!(read_number(&bytes[..length], without_eof).unwrap(), None, "{length}");
            }
            assert_eq!(read_number(&bytes, without_eof).unwrap(), Some((Ok(7), bytes.len())));
        }
    }
}
