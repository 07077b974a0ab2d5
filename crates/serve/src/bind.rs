//! Where to listen: an address or a Unix socket, with or without TLS.

use crate::listen::Listener;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};

/// How many connections the system keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// The file of a socket: device and inode, since another server may have put its own at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketFile(u64, u64);

impl SocketFile {
    /// The one at this path. Any other file is somebody's.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok().filter(|file| file.file_type().is_socket())?;
        Some(Self(file.dev(), file.ino()))
    }

    /// Removes it, if it is still there.
    pub(crate) fn remove(self, path: &Path) {
        if Self::at(path) == Some(self) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the file of a socket that nobody listens on any more. Every other error than this refusal may come from a live server,
/// such as one that has no time to accept.
async fn remove_stale(path: &Path) {
    let Some(file) = SocketFile::at(path) else { return };
    let connected = UnixStream::connect(path).await;
    if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        file.remove(path);
    }
}

/// The socket is the right to use it: its owner's alone, unless the operator changes that. Before it listens nobody can connect,
/// so there is no moment at which others can.
fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)
}

impl Listener {
    /// Listens on `ADDRESS:PORT` (port 0 for a free one) or `unix:PATH`. The file of a socket that nobody listens on any more is
    /// replaced.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub async fn bind(place: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Result<Self, String> {
        let Some(path) = place.strip_prefix("unix:") else {
            let cannot = |error| {
                format!(
                    "cannot listen on {place}: {error}\n  Give ADDRESS:PORT such as 127.0.0.1:0, or unix:PATH"
                )
            };
            return Ok(Self::Tcp(TcpListener::bind(place).await.map_err(cannot)?, tls));
        };
        if tls.is_some() {
            return Err("a Unix socket needs no TLS: leave --tls-cert and --tls-key out".into());
        }
        let path = Path::new(path);
        remove_stale(path).await;
        let listener =
            listen_privately(path).map_err(|error| format!("cannot listen on {place}: {error}"))?;
        Ok(Self::Unix(listener, path.into()))
    }

    /// Whether other machines may reach it.
    pub fn is_beyond_loopback(&self) -> bool {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().is_ok_and(|address| !address.ip().is_loopback()),
            Self::Unix(..) => false,
        }
    }

    /// Whether it speaks TLS.
    pub fn has_tls(&self) -> bool {
        matches!(self, Self::Tcp(_, Some(_)))
    }
}

/// The URL by which it is reached.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener, tls) => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                match listener.local_addr() {
                    Ok(address) => write!(f, "{scheme}://{address}"),
                    Err(_) => f.write_str(scheme),
                }
            }
            Self::Unix(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A TLS set-up from the files of a certificate chain and its key, both PEM.
///
/// # Errors
/// A sentence, when a file cannot be read or is of no use.
pub fn tls_from_files(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, String> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate)?).collect();
    let chain =
        chain.map_err(|error| format!("{} is no certificate in PEM: {error}", certificate.display()))?;
    let private = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|error| format!("{} is no private key in PEM: {error}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set TLS up: {error}"))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| format!("cannot use {} with {}: {error}", certificate.display(), key.display()))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Server, Settings};
    use lockkeeper_core::Keeper;
    use lockkeeper_core::engine::Memory;
    use std::os::unix::net::UnixDatagram;

    #[tokio::test]
    async fn the_file_of_a_socket_that_does_not_refuse_connections_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let place = format!("unix:{}", path.display());
        // Of another kind, so that connecting fails with another error.
        let theirs = UnixDatagram::bind(&path).unwrap();
        let file = SocketFile::at(&path);
        assert!(Listener::bind(&place, None).await.is_err());
        assert_eq!(SocketFile::at(&path), file);
        drop(theirs);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a text").unwrap();
        assert!(Listener::bind(&place, None).await.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a text");
    }

    #[tokio::test]
    async fn a_server_that_ends_leaves_the_socket_of_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let place = format!("unix:{}", path.display());
        let server = Server::new(Keeper::builder().build(Memory::engine()).unwrap(), Settings::default());
        let (end, ends) = tokio::sync::oneshot::channel();
        let first = Listener::bind(&place, None).await.unwrap();
        let first = tokio::spawn(async move { server.serve(first, async { drop(ends.await) }).await });
        // It serves once it has accepted this.
        let stream = UnixStream::connect(&path).await.unwrap();
        stream.writable().await.unwrap();
        stream.try_write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.readable().await.unwrap();
        drop(stream);
        std::fs::remove_file(&path).unwrap();
        let next = Listener::bind(&place, None).await.unwrap();
        end.send(()).unwrap();
        first.await.unwrap();
        assert!(UnixStream::connect(&path).await.is_ok());
        drop(next);
    }
}
