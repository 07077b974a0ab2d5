//! What the URL says: where the server is, who we are, which style.

use crate::fault::ENGINE;
use lockkeeper_core::address::Address;
use lockkeeper_core::drive::Watch;
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Limits;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Everything an engine needs to open connections.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The servers to try, in this order.
    pub(crate) hosts: Vec<Host>,
    pub(crate) driver: tokio_postgres::Config,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) limits: Limits,
    /// How many connections may share the work of a queue, or may be held by a style with sessions.
    pub(crate) connections: usize,
    /// The server, for messages.
    pub(crate) server: String,
    pub(crate) backends: Backends,
    pub(crate) watch: Watch,
}

/// Where a server is.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// The server's processes behind this keeper's open connections. The same one behind two of them means that a
/// transaction pooler stands in between, which gives it now to one and now to the other.
#[derive(Clone, Default)]
pub(crate) struct Backends(Arc<Mutex<HashSet<i32>>>);

impl Backends {
    fn book(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the process behind a new connection; `false` if another one has it already.
    pub(crate) fn enter(&self, backend: i32) -> bool {
        self.book().insert(backend)
    }

    pub(crate) fn forget(&self, backend: i32) {
        self.book().remove(&backend);
    }
}

impl Settings {
    /// Whether what goes over a socket is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.driver.get_ssl_mode() != SslMode::Disable
    }

    /// Takes the parameters and refuses what is left.
    pub(crate) fn from_address(mut address: Address, ttl: Duration, connections: usize) -> Result<Self> {
        let limits = Limits::for_ttl(ttl);
        let mut driver = tokio_postgres::Config::new();
        driver
            .user(address.user.clone().unwrap_or_else(|| "postgres".into()))
            .dbname(address.path.trim_start_matches('/'))
            .application_name("lockkeeper");
        if address.path.trim_start_matches('/').is_empty() {
            driver.dbname(address.user.clone().unwrap_or_else(|| "postgres".into()));
        }
        if let Some(password) = &address.password {
            driver.password(password);
        }
        if address.hosts.is_empty() {
            return Err(Error::invalid(
                "bad engine URL: postgres needs a server, such as postgres://user@host/database",
            ));
        }
        let hosts = address.hosts.iter();
        let hosts =
            hosts.map(|host| Host { name: host.name.clone(), port: host.port.unwrap_or(5432) }).collect();
        let tls = take_tls(&mut address, &mut driver)?;
        let connections =
            address.take_parsed("connections", "a number from 1 to 1000")?.unwrap_or(connections);
        if !(1..=1000).contains(&connections) {
            return Err(Error::invalid(format!(
                "bad parameter connections={connections}: expected 1 to 1000"
            )));
        }
        address.finish()?;
        let backends = Backends::default();
        // The server ends a statement by itself at its limit; a little later the line must be dead.
        let watch = Watch::new(limits.request + limits.request / 4);
        Ok(Self { hosts, driver, tls, limits, connections, server: address.redacted(), backends, watch })
    }
}

/// `sslmode=disable` (default) or `sslmode=verify-full`, with `sslrootcert=FILE` for a private authority.
fn take_tls(address: &mut Address, driver: &mut tokio_postgres::Config) -> Result<MakeRustlsConnect> {
    let mode = address.take("sslmode").unwrap_or_else(|| "disable".into());
    let authority = address.take("sslrootcert");
    driver.ssl_mode(match mode.as_str() {
        "disable" => SslMode::Disable,
        "verify-full" => SslMode::Require,
        other => {
            return Err(Error::invalid(format!(
                "bad parameter sslmode={other}: expected disable or verify-full (a connection that is not verified protects nobody)"
            )));
        }
    });
    let mut roots = rustls::RootCertStore::empty();
    match authority {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let bad = |error: &dyn std::fmt::Display| {
                Error::invalid(format!("bad parameter sslrootcert={path}: {error}"))
            };
            use rustls::pki_types::{CertificateDer, pem::PemObject};
            let found = CertificateDer::pem_file_iter(&path).map_err(|error| bad(&error))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| bad(&error))?;
                roots.add(certificate).map_err(|error| bad(&error))?;
            }
        }
    }
    // The provider is named, since an application may have several compiled in.
    let client =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::permanent(ENGINE, "set up TLS", error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
    Ok(MakeRustlsConnect::new(client))
}
