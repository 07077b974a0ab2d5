//! The server's packets over a stream that can move: a number, a length, and what belongs together.

use crate::answer::Whole;
use crate::request::{TOO_LONG, put_packet};
use lockkeeper_core::drive::Stream;
use mysql_async::{DriverError, Error, IoError, ServerError};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;

type Result<T, E = Error> = std::result::Result<T, E>;

/// What packets go over.
pub(crate) enum Endpoint {
    Plain(Stream),
    Tls(Box<TlsStream<Stream>>),
}

/// Packets to and from the server, as long as a connection is being set up.
pub(crate) struct Packets {
    endpoint: Endpoint,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// How much of what has come in was read.
    read: usize,
    sequence: u8,
}

pub(crate) fn broken(error: io::Error) -> Error {
    Error::Io(IoError::Io(error))
}

/// The error for something that the protocol does not allow here.
pub(crate) fn unexpected(packet: &[u8]) -> Error {
    Error::Driver(DriverError::UnexpectedPacket { payload: packet.to_vec() })
}

impl Packets {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            endpoint: Endpoint::Plain(stream),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            read: 0,
            sequence: 0,
        }
    }

    /// The same, from now on encrypted.
    pub(crate) async fn secure(self, connector: &tokio_rustls::TlsConnector, server: &str) -> Result<Self> {
        let Endpoint::Plain(stream) = self.endpoint else { return Ok(self) };
        let name = rustls::pki_types::ServerName::try_from(server.to_owned());
        let name = name.map_err(|error| broken(io::Error::other(error)))?;
        let stream = connector.connect(name, stream).await.map_err(broken)?;
        Ok(Self { endpoint: Endpoint::Tls(Box::new(stream)), ..self })
    }

    pub(crate) fn is_secure(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tls(_))
    }

    /// What it went over, for somebody else.
    pub(crate) fn leave(self) -> Result<Endpoint> {
        match self.incoming.get(self.read..) {
            None | Some([]) => Ok(self.endpoint),
            Some(unasked) => Err(unexpected(unasked)),
        }
    }

    /// Begins a conversation with this.
    pub(crate) async fn command(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.sequence = 0;
        self.send(fill).await
    }

    /// Goes on with this.
    pub(crate) async fn send(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.outgoing.clear();
        put_packet(&mut self.outgoing, self.sequence, fill);
        if self.outgoing.len() >= TOO_LONG {
            return Err(broken(io::Error::other("a request that is too long")));
        }
        self.sequence = self.sequence.wrapping_add(1);
        match &mut self.endpoint {
            Endpoint::Plain(stream) => stream.write_all(&self.outgoing).await.map_err(broken),
            Endpoint::Tls(stream) => {
                stream.write_all(&self.outgoing).await.map_err(broken)?;
                stream.flush().await.map_err(broken)
            }
        }
    }

    /// The next packet, unless it is an error.
    pub(crate) async fn next_good(&mut self) -> Result<&[u8]> {
        const HEADER: usize = 4;
        let (begin, end) = loop {
            self.forget_read();
            let unread = &self.incoming[self.read..];
            if let Some((packet, _)) = split(unread) {
                self.sequence = unread[HEADER - 1].wrapping_add(1);
                break (self.read + HEADER, self.read + HEADER + packet.len());
            }
            self.more().await?;
        };
        self.read = end;
        let packet = &self.incoming[begin..end];
        good(packet).map_err(Error::Server)
    }

    /// What `read` reads, and how long it was, when all of it has come.
    pub(crate) async fn whole<T>(&mut self, read: impl Fn(&[u8]) -> Whole<T>) -> Result<T> {
        loop {
            self.forget_read();
            if let Some((it, length)) = read(&self.incoming[self.read..]).map_err(broken)? {
                self.read += length;
                return it.map_err(Error::Server);
            }
            self.more().await?;
        }
    }

    fn forget_read(&mut self) {
        if self.read == self.incoming.len() {
            self.incoming.clear();
            self.read = 0;
        }
    }

    /// Waits until more has come.
    async fn more(&mut self) -> Result<()> {
        const ROOM: usize = 4096;
        self.incoming.reserve(ROOM);
        let count = match &mut self.endpoint {
            Endpoint::Plain(stream) => stream.read_buf(&mut self.incoming).await,
            Endpoint::Tls(stream) => stream.read_buf(&mut self.incoming).await,
        };
        match count.map_err(broken)? {
            0 => Err(Error::Driver(DriverError::ConnectionClosed)),
            _ => Ok(()),
        }
    }
}

/// The first packet's content, if all of it has come, and what is behind it.
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([one, two, three, _sequence], rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes([*one, *two, *three, 0]) as usize)
}

/// The packet, unless it is an error.
pub(crate) fn good(packet: &[u8]) -> Result<&[u8], ServerError> {
    if packet.first() == Some(&0xff) { Err(told(packet)) } else { Ok(packet) }
}

/// What the server said in an error packet: a number, and, once both know each other, a state.
fn told(packet: &[u8]) -> ServerError {
    let mut reader = Reader(packet.get(1..).unwrap_or_default());
    let code = reader.number(2).unwrap_or_default();
    let state = match reader.0.split_first_chunk::<6>() {
        Some((state, rest)) if state[0] == b'#' => {
            reader.0 = rest;
            String::from_utf8_lossy(&state[1..]).into_owned()
        }
        _ => "HY000".into(),
    };
    let message = String::from_utf8_lossy(reader.0).into_owned();
    ServerError { code: u16::try_from(code).unwrap_or_default(), message, state }
}

/// What is left to read of a packet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A number of so many bytes, at most eight.
    pub(crate) fn number(&mut self, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        number.get_mut(..bytes)?.copy_from_slice(self.bytes(bytes)?);
        Some(u64::from_le_bytes(number))
    }

    /// A number whose first byte says how long it is.
    pub(crate) fn length(&mut self) -> Option<u64> {
        match self.number(1)? {
            0xfc => self.number(2),
            0xfd => self.number(3),
            0xfe => self.number(8),
            small @ 0..=0xfa => Some(small),
            _ => None,
        }
    }

    /// Bytes after their length.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.length()?).ok()?;
        self.bytes(length)
    }
}

/// Writes bytes after their length.
pub(crate) fn put_text(buffer: &mut Vec<u8>, text: &[u8]) {
    match (u8::try_from(text.len()), u16::try_from(text.len())) {
        (Ok(length @ 0..=0xfa), _) => buffer.push(length),
        (_, Ok(length)) => {
            buffer.push(0xfc);
            buffer.extend(length.to_le_bytes());
        }
        _ => {
            buffer.push(0xfe);
            buffer.extend((text.len() as u64).to_le_bytes());
        }
    }
    buffer.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_written() {
        for length in [0, 1, 250, 251, 255, 256, 65_535, 65_536] {
            let (mut buffer, text) = (Vec::new(), vec![7; length]);
            put_text(&mut buffer, &text);
            let mut reader = Reader(&buffer);
            assert_eq!(reader.text(), Some(&text[..]), "{length}");
            assert!(reader.0.is_empty());
            assert_eq!(Reader(&buffer[..length]).text(), None, "{length}: there is less than it says");
        }
    }

    #[test]
    fn an_error_is_read_with_its_state_and_without() {
        for packet in [&b"\xff\x15\x04#28000No"[..], b"\xff\x15\x04No"] {
            let told = told(packet);
            assert_eq!((told.code, told.message.as_str()), (1045, "No"));
        }
    }
}
