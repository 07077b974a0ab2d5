//! What the URL says: where the server is, who we are, which style.

use crate::error::ENGINE;
use lockkeeper_core::engine::Address;
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
    /// How many connections a style whose locks live on connections may open.
    pub(crate) connections: usize,
    /// The server, for messages.
    pub(crate) server: String,
    pub(crate) backends: Backends,
}

/// Where a server is.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// A process of the server. A server that is restarted in a container gives out the same numbers again, so the time of
/// its start belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Backend {
    pub(crate) pid: i32,
    pub(crate) started: String,
}

impl Backend {
    /// A statement's text with the number of the process in the place of `:backend`.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace(":backend", &self.pid.to_string())
    }
}

/// The server's processes behind this keeper's open connections. The same one behind two of them means that there is a
/// transaction pooler in between, which gives it to each of them in turn.
#[derive(Clone, Default)]
pub(crate) struct Backends(Arc<Mutex<HashSet<Backend>>>);

impl Backends {
    fn set(&self) -> MutexGuard<'_, HashSet<Backend>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the process behind a new connection; `false` if another connection has it already.
    pub(crate) fn insert(&self, backend: &Backend) -> bool {
        self.set().insert(backend.clone())
    }

    pub(crate) fn remove(&self, backend: &Backend) {
        self.set().remove(backend);
    }
}

impl Settings {
    /// Takes the parameters and refuses what is left.
    pub(crate) fn from_address(mut address: Address, ttl: Duration, connections: usize) -> Result<Self> {
        let limits = Limits::for_ttl(ttl);
        let mut driver = tokio_postgres::Config::new();
        // The client's side of a connection that holds locks lives as long as the server's.
        driver
            .keepalives_idle(whole_seconds(limits.takeover / 2))
            .keepalives_interval(whole_seconds(limits.takeover / 8))
            .tcp_user_timeout(limits.takeover)
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
        Ok(Self { hosts, driver, tls, limits, connections, server: address.redacted(), backends })
    }
}

/// The system counts keepalive times in seconds, of which there must be one at least.
pub(crate) fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_same_number_after_a_restart_is_another_one() {
        let backends = Backends::default();
        let [first, second] = ["09:00", "09:01"].map(|at| Backend { pid: 42, started: at.into() });
        assert!(backends.insert(&first));
        assert!(!backends.insert(&first), "two connections, one process: a transaction pooler");
        assert!(backends.insert(&second));
        backends.remove(&first);
        assert!(!backends.insert(&second));
    }
}
