//! A connection while it is being set up: a statement, its answer, and so on.

use crate::answer::{Row, Rows, read, read_number};
use crate::config::Login;
use crate::login::log_in;
use crate::packets::{Endpoint, Packets};
use lockkeeper_core::drive::Moves;
use mysql_async::Result;

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;

/// One connection.
pub(crate) struct Line {
    packets: Packets,
    /// Results end without a packet of their own after the columns.
    pub(crate) without_eof: bool,
}

impl Line {
    /// Connects and logs in, on the runtime that this is called on.
    pub(crate) async fn open(login: &Login, moves: Moves) -> Result<Self> {
        let (packets, without_eof) = log_in(login, moves).await?;
        Ok(Self { packets, without_eof })
    }

    /// A statement as it is.
    pub(crate) async fn query(&mut self, text: &str) -> Result<Row> {
        self.send(QUERY, text).await?;
        let without_eof = self.without_eof;
        Ok(self.packets.whole(|bytes| read(bytes, Rows::Text, without_eof)).await?.row)
    }

    /// The number by which the server knows a statement from now on.
    pub(crate) async fn prepare(&mut self, text: &str) -> Result<u32> {
        self.send(PREPARE, text).await?;
        let without_eof = self.without_eof;
        self.packets.whole(|bytes| read_number(bytes, without_eof)).await
    }

    async fn send(&mut self, command: u8, text: &str) -> Result<()> {
        let fill = |buffer: &mut Vec<u8>| {
            buffer.push(command);
            buffer.extend_from_slice(text.as_bytes());
        };
        self.packets.command(fill).await
    }

    /// Leaves the connection to somebody else.
    pub(crate) fn leave(self) -> Result<Endpoint> {
        self.packets.leave()
    }
}
