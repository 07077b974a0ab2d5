//! The connection's two directions, with or without TLS.

use crate::config::Settings;
use crate::wire::Shared;
use lockkeeper_core::drive::{Moves, Stream};
use std::io;
use std::net::TcpStream as Socket;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// So much room is made for what arrives: most answers are much smaller.
const ROOM: usize = 4096;

/// The direction from the server.
pub(crate) enum Incoming {
    Plain(Stream),
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// The direction to the server.
pub(crate) enum Outgoing {
    /// Never blocks, and belongs to no runtime: anybody may write it at any time.
    Plain(Arc<Socket>),
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// Connects to one server of the address.
pub(crate) async fn connect(
    settings: &Settings,
    server: usize,
    moves: Moves,
) -> io::Result<(Incoming, Outgoing)> {
    let (host, port) = &settings.servers[server];
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    // A create and the look behind it must not wait for each other's acknowledgement.
    stream.set_nodelay(true)?;
    match &settings.tls {
        None => {
            let same = Socket::from(stream.as_fd().try_clone_to_owned()?);
            Ok((Incoming::Plain(Stream::new(stream, moves)), Outgoing::Plain(Arc::new(same))))
        }
        Some(connector) => {
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let (incoming, outgoing) = tokio::io::split(connector.connect(name, stream).await?);
            Ok((Incoming::Tls(incoming), Outgoing::Tls(outgoing)))
        }
    }
}

impl Incoming {
    /// Appends what has arrived; an error at the end of the stream. Dropping the future loses nothing.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.reserve(ROOM);
        let count = match self {
            Self::Tls(stream) => stream.read_buf(buffer).await?,
            Self::Plain(stream) => stream.read_buf(buffer).await?,
        };
        if count == 0 { Err(io::Error::other("the server closed the connection")) } else { Ok(()) }
    }
}

impl Outgoing {
    /// The socket, if anybody may write it at any time.
    pub(crate) fn shared_socket(&self) -> Option<Arc<Socket>> {
        match self {
            Self::Plain(socket) => Some(Arc::clone(socket)),
            Self::Tls(_) => None,
        }
    }

    /// Writes bytes that belong to nobody else yet: the greeting.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            Self::Plain(socket) => known_here(socket)?.write_all(bytes).await,
        }
    }

    /// Writes whatever waits, for ever.
    pub(crate) async fn pump(&mut self, shared: &Shared) -> io::Error {
        loop {
            if let Err(error) = self.flush(shared).await {
                return error;
            }
            shared.bytes_wait.notified().await;
        }
    }

    async fn flush(&mut self, shared: &Shared) -> io::Result<()> {
        match self {
            Self::Plain(socket) => {
                while shared.wire().flush(socket)? {
                    known_here(socket)?.writable().await?;
                }
                Ok(())
            }
            Self::Tls(_) => {
                let bytes = shared.wire().take_bytes();
                self.write_all(&bytes).await
            }
        }
    }
}

/// The socket as the runtime knows it that this is called on. Only for a moment: as long as it is known here, each answer
/// wakes this thread.
fn known_here(socket: &Socket) -> io::Result<TcpStream> {
    TcpStream::from_std(socket.try_clone()?)
}
