//! One connection's statements: prepared once, then a request and an answer each.

use crate::config::Login;
use crate::login::{Manners, log_in};
use crate::packets::{Packets, Reader, put_text, unexpected};
use mysql_async::Result;
use mysql_async::consts::{ColumnType, StatusFlags};

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

/// One value, there or back.
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

    /// Its type, as the protocol has it.
    fn kind(&self) -> [u8; 2] {
        const UNSIGNED: u8 = 0x80;
        match self {
            Self::Null => [ColumnType::MYSQL_TYPE_NULL as u8, 0],
            Self::Number(_) => [ColumnType::MYSQL_TYPE_LONGLONG as u8, UNSIGNED],
            Self::Bytes(_) => [ColumnType::MYSQL_TYPE_VAR_STRING as u8, 0],
        }
    }
}

/// The first row of an answer; none if it has none.
pub(crate) type Row = Vec<Cell>;

/// A statement that the server knows by a number.
struct Prepared {
    text: &'static str,
    number: u32,
    columns: Vec<u8>,
    /// The types of the values that the server has been told, two bytes each.
    types: Vec<u8>,
}

/// One connection.
pub(crate) struct Line {
    packets: Packets,
    manners: Manners,
    prepared: Vec<Prepared>,
}

impl Line {
    /// Connects and logs in.
    pub(crate) async fn open(login: &Login) -> Result<Self> {
        let (packets, manners) = log_in(login).await?;
        Ok(Self { packets, manners, prepared: Vec::new() })
    }

    /// A statement as it is.
    pub(crate) async fn query(&mut self, text: &str) -> Result<Row> {
        let fill = |buffer: &mut Vec<u8>| {
            buffer.push(QUERY);
            buffer.extend_from_slice(text.as_bytes());
        };
        self.packets.command(fill).await?;
        self.answer(None).await
    }

    /// A statement with values in the places of its question marks.
    pub(crate) async fn execute(&mut self, text: &'static str, values: &[Cell]) -> Result<Row> {
        let known = self.prepared.iter().position(|known| std::ptr::eq(known.text, text));
        let index = match known {
            Some(index) => index,
            None => self.prepare(text).await?,
        };
        let Prepared { number, types, .. } = &mut self.prepared[index];
        self.packets.command(|buffer| put_execute(buffer, *number, types, values)).await?;
        self.answer(Some(index)).await
    }

    async fn prepare(&mut self, text: &'static str) -> Result<usize> {
        let fill = |buffer: &mut Vec<u8>| {
            buffer.push(PREPARE);
            buffer.extend_from_slice(text.as_bytes());
        };
        self.packets.command(fill).await?;
        let packet = self.packets.next_good().await?;
        let mut reader = Reader(packet.get(1..).unwrap_or_default());
        let numbers = || Some((reader.number(4)?, reader.number(2)?, reader.number(2)?));
        let (number, columns, params) = { numbers }().ok_or_else(|| unexpected(packet))?;
        self.columns(params).await?;
        let columns = self.columns(columns).await?;
        let number = u32::try_from(number).unwrap_or_default();
        self.prepared.push(Prepared { text, number, columns, types: Vec::new() });
        Ok(self.prepared.len() - 1)
    }

    /// The types of so many columns.
    async fn columns(&mut self, count: u64) -> Result<Vec<u8>> {
        /// From the end of a column's description.
        const TYPE: usize = 6;
        let mut types = Vec::new();
        for _ in 0..count {
            let packet = self.packets.next_good().await?;
            let at = packet.len().checked_sub(TYPE).ok_or_else(|| unexpected(packet))?;
            types.push(packet[at]);
        }
        if count > 0 && !self.manners.without_eof {
            self.packets.next_good().await?;
        }
        Ok(types)
    }

    /// Reads all that the server says to one statement.
    async fn answer(&mut self, prepared: Option<usize>) -> Result<Row> {
        let mut first = None;
        loop {
            let (row, status) = self.result(prepared).await?;
            first = first.or(row);
            if !status.contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS) {
                return Ok(first.unwrap_or_default());
            }
        }
    }

    /// One of the results: a procedure has several.
    async fn result(&mut self, prepared: Option<usize>) -> Result<(Option<Row>, StatusFlags)> {
        let manners = self.manners;
        let packet = self.packets.next_good().await?;
        if packet.first() == Some(&0x00) {
            return Ok((tracked(packet), manners.status(packet)));
        }
        let mut reader = Reader(packet);
        let count = reader.length().ok_or_else(|| unexpected(packet))?;
        if !manners.known_columns || reader.number(1) != Some(0) {
            let columns = self.columns(count).await?;
            if let Some(prepared) = prepared {
                self.prepared[prepared].columns = columns;
            }
        }
        let mut first = None;
        loop {
            let packet = self.packets.next_good().await?;
            if packet.first() == Some(&0xfe) && packet.len() < 0xff_ffff {
                return Ok((first, manners.status(packet)));
            }
            if first.is_none() {
                let row = match prepared {
                    Some(prepared) => binary_row(packet, &self.prepared[prepared].columns),
                    None => text_row(packet, count),
                };
                first = Some(row.ok_or_else(|| unexpected(packet))?);
            }
        }
    }
}

impl Manners {
    /// What the last packet of a result says.
    fn status(self, packet: &[u8]) -> StatusFlags {
        let mut reader = Reader(packet.get(1..).unwrap_or_default());
        let is_eof = packet.first() == Some(&0xfe) && !self.without_eof;
        let skipped = if is_eof { reader.number(2) } else { reader.length().and(reader.length()) };
        let status = skipped.and(reader.number(2)).and_then(|status| u16::try_from(status).ok());
        StatusFlags::from_bits_truncate(status.unwrap_or_default())
    }
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

/// The types are said only when they are not those of the last time: the server remembers them.
fn put_execute(buffer: &mut Vec<u8>, number: u32, types: &mut Vec<u8>, values: &[Cell]) {
    buffer.push(EXECUTE);
    buffer.extend(number.to_le_bytes());
    buffer.extend([0, 1, 0, 0, 0]);
    if values.is_empty() {
        return;
    }
    let nulls = buffer.len();
    buffer.resize(nulls + values.len().div_ceil(8), 0);
    for (index, _) in values.iter().enumerate().filter(|(_, value)| **value == Cell::Null) {
        buffer[nulls + index / 8] |= 1 << (index % 8);
    }
    let are_new = !values.iter().flat_map(Cell::kind).eq(types.iter().copied());
    buffer.push(u8::from(are_new));
    if are_new {
        *types = values.iter().flat_map(Cell::kind).collect();
        buffer.extend_from_slice(types);
    }
    for value in values {
        match value {
            Cell::Null => {}
            Cell::Number(number) => buffer.extend(number.to_le_bytes()),
            Cell::Bytes(bytes) => put_text(buffer, bytes),
        }
    }
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
    fn values_are_written_one_after_the_other_and_their_types_once() {
        let (mut buffer, mut types) = (Vec::new(), Vec::new());
        let values = [Cell::Null, Cell::Number(9), Cell::Bytes(b"x".into())];
        put_execute(&mut buffer, 3, &mut types, &values);
        let (begin, end) = ([EXECUTE, 3, 0, 0, 0, 0, 1, 0, 0, 0, 1], [&9_u64.to_le_bytes()[..], b"\x01x"]);
        assert_eq!(buffer, [&begin[..], &[1, 6, 0, 8, 0x80, 253, 0], &end.concat()].concat());
        buffer.clear();
        put_execute(&mut buffer, 3, &mut types, &values);
        assert_eq!(buffer, [&begin[..], &[0], &end.concat()].concat());
        buffer.clear();
        put_execute(&mut buffer, 3, &mut types, &[Cell::Number(9)]);
        assert_eq!(buffer[11..14], [1, 8, 0x80], "others than the last time");
    }
}
