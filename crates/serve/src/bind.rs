//! Where to listen: an address or a Unix socket, with or without TLS.

use crate::listen::Listener;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};

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
        if path.exists() && tokio::net::UnixStream::connect(path).await.is_err() {
            // Only a socket is removed: any other file is somebody's.
            use std::os::unix::fs::FileTypeExt as _;
            if std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
                let _ = std::fs::remove_file(path);
            }
        }
        let listener =
            UnixListener::bind(path).map_err(|error| format!("cannot listen on {place}: {error}"))?;
        // The socket is the right to use it: its owner's alone, unless the operator changes that.
        use std::os::unix::fs::PermissionsExt as _;
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
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
