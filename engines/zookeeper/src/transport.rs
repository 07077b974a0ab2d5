//! The connection's two directions, with or without TLS.

use crate::config::Settings;
use crate::wire::Shared;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// The direction from the server.
pub(crate) enum Incoming {
    Plain(Arc<TcpStream>),
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// The direction to the server.
pub(crate) enum Outgoing {
    Plain(Arc<TcpStream>),
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// Connects to one server of the address.
pub(crate) async fn connect(settings: &Settings, server: usize) -> io::Result<(Incoming, Outgoing)> {
    let (host, port) = &settings.servers[server];
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    // A create and the look behind it must not wait for each other's acknowledgement.
    stream.set_nodelay(true)?;
    match &settings.tls {
        None => {
            let stream = Arc::new(stream);
            Ok((Incoming::Plain(Arc::clone(&stream)), Outgoing::Plain(stream)))
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
        let count = match self {
            Self::Tls(stream) => stream.read_buf(buffer).await?,
            Self::Plain(stream) => loop {
                stream.readable().await?;
                match stream.try_read_buf(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => break done?,
                }
            },
        };
        if count == 0 { Err(io::Error::other("the server closed the connection")) } else { Ok(()) }
    }
}

impl Outgoing {
    /// The socket, if anybody may write it at any time.
    pub(crate) fn shared_stream(&self) -> Option<Arc<TcpStream>> {
        match self {
            Self::Plain(stream) => Some(Arc::clone(stream)),
            Self::Tls(_) => None,
        }
    }

    /// Writes bytes that belong to nobody else yet: the greeting.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            Self::Plain(stream) => {
                while !bytes.is_empty() {
                    stream.writable().await?;
                    match stream.try_write(bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        written => bytes = &bytes[written?..],
                    }
                }
                Ok(())
            }
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
            Self::Plain(stream) => {
                while shared.wire().has_bytes() {
                    stream.writable().await?;
                    shared.wire().flush(stream)?;
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
