//! TLS as all engines have it: the authorities they trust, what they check of a server, the certificate they present.
//!
//! Trusted are the authorities of the operating system (of `SSL_CERT_FILE` and `SSL_CERT_DIR`, if these are set), or
//! those in the file that the URL names. No list is compiled in. A driver that takes no configuration of ours (etcd) loads
//! the same store by itself when it is given no authority.

mod verify;

use lockkeeper_core::engine::Address;
use lockkeeper_core::{Error, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::sync::Arc;

/// What is checked of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Nothing: the connection is encrypted, but anybody could be at its other end.
    Nothing,
    /// That a trusted authority has signed it, for whatever name.
    Authority,
    /// That it is for the server's name, too.
    Name,
}

/// What a URL says of authorities and client certificates.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    authority: Authority,
    identity: Option<Identity>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Authority {
    #[default]
    Unnamed,
    System,
    File(Pem),
}

#[derive(Debug, Clone)]
struct Identity {
    certificate: Pem,
    key: Pem,
}

/// The content of a file in PEM.
#[derive(Clone, PartialEq, Eq)]
struct Pem {
    path: String,
    bytes: Vec<u8>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        write!(f, "Pem({})", self.path)
    }
}

impl Pem {
    fn read(parameter: &str, path: String) -> Result<Self> {
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self { path, bytes }),
            Err(error) => Err(Error::invalid(format!("cannot read the file of {parameter}={path}: {error}"))),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| self.unusable(&error))?;
        if found.is_empty() { Err(self.unusable(&"it has no certificate")) } else { Ok(found) }
    }

    fn unusable(&self, error: &dyn fmt::Display) -> Error {
        Error::invalid(format!("cannot use the PEM file {}: {error}", self.path))
    }
}

impl Tls {
    /// Takes the parameters of these names: the authority (a file, or `system`), the client's certificate and its key.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that cannot be used, or a certificate without a key.
    pub fn take(address: &mut Address, [authority, certificate, key]: [&'static str; 3]) -> Result<Self> {
        let authority = match address.take(authority) {
            None => Authority::Unnamed,
            Some(name) if name == "system" => Authority::System,
            Some(path) => Authority::File(Pem::read(authority, path)?),
        };
        let identity = match (address.take(certificate), address.take(key)) {
            (None, None) => None,
            (Some(path), Some(key_path)) => {
                Some(Identity { certificate: Pem::read(certificate, path)?, key: Pem::read(key, key_path)? })
            }
            _ => {
                return Err(Error::invalid(format!(
                    "a client certificate needs both parameters: {certificate} and {key}"
                )));
            }
        };
        Ok(Self { authority, identity })
    }

    /// Whether the URL says nothing of TLS.
    pub fn is_empty(&self) -> bool {
        self.authority == Authority::Unnamed && self.identity.is_none()
    }

    /// Whether the URL names the system's authorities.
    pub fn names_system(&self) -> bool {
        self.authority == Authority::System
    }

    /// The authorities' certificates in PEM, if the URL names a file.
    pub fn authority(&self) -> Option<&[u8]> {
        match &self.authority {
            Authority::File(pem) => Some(&pem.bytes),
            _ => None,
        }
    }

    /// The client's certificate and key in PEM, if the URL names them.
    pub fn identity(&self) -> Option<(&[u8], &[u8])> {
        self.identity.as_ref().map(|identity| (&*identity.certificate.bytes, &*identity.key.bytes))
    }

    /// The certificates of the authorities: those in the file, or the system's.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are none.
    pub fn authorities(&self) -> Result<Vec<CertificateDer<'static>>> {
        if let Authority::File(pem) = &self.authority {
            return pem.certificates();
        }
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            return Err(Error::invalid(format!(
                "the system trusts no authority: install its certificates (ca-certificates), set SSL_CERT_FILE, or name a \
                 file in the URL{}{}",
                if why.is_empty() { "" } else { "; " },
                why.join("; ")
            )));
        }
        Ok(found.certs)
    }

    /// A configuration of rustls. The provider is named, since an application may have several compiled in.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no authority is known but one is needed, or a file cannot be used.
    pub fn client(&self, check: Check) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let impossible = |error: rustls::Error| Error::invalid(format!("TLS is not possible: {error}"));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(impossible)?;
        let builder = match check {
            Check::Name => builder.with_root_certificates(self.roots()?),
            Check::Authority => {
                let verifier = verify::Chain::new(self.roots()?, provider);
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            Check::Nothing => {
                let verifier = verify::Chain::unchecked(provider);
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let Some(Identity { certificate, key }) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| key.unusable(&error))?;
        builder
            .with_client_auth_cert(certificate.certificates()?, private)
            .map_err(|error| certificate.unusable(&error))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Authority::File(pem) => {
                for certificate in pem.certificates()? {
                    roots.add(certificate).map_err(|error| pem.unusable(&error))?;
                }
            }
            // One certificate of the system's that rustls cannot read is no reason to trust none.
            _ => drop(roots.add_parsable_certificates(self.authorities()?)),
        }
        Ok(roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(url: &str) -> Result<Tls> {
        let mut address = Address::parse(url)?;
        let tls = Tls::take(&mut address, ["ca", "cert", "key"])?;
        address.finish()?;
        Ok(tls)
    }

    #[test]
    fn the_system_is_trusted_unless_a_file_is_named() {
        assert!(take("x://h").unwrap().is_empty());
        assert!(take("x://h?ca=system").unwrap().names_system());
        for check in [Check::Nothing, Check::Authority, Check::Name] {
            take("x://h").unwrap().client(check).unwrap();
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let here = file!().rsplit('/').next().unwrap();
        let source = format!("{}/src/{here}", env!("CARGO_MANIFEST_DIR"));
        for (url, why) in [
            ("x://h?ca=/nowhere".to_owned(), "cannot read the file of ca=/nowhere"),
            ("x://h?cert=/nowhere".to_owned(), "both parameters: cert and key"),
            (format!("x://h?ca={source}"), "has no certificate"),
        ] {
            let error = take(&url).and_then(|tls| tls.client(Check::Name)).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
