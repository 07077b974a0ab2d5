//! What the URL says: where the server is, who we are.

use crate::fault::ENGINE;
use lockkeeper_core::address::Address;
use lockkeeper_core::drive::Watch;
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Limits;
use mysql_async::{Opts, OptsBuilder, SslOpts};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

const SETUP: &str = include_str!("sql/setup.sql");

/// Everything an engine needs to open connections.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) driver: Opts,
    /// The same for the connections that hold locks.
    pub(crate) login: Arc<Login>,
    pub(crate) limits: Limits,
    /// Looks after the requests of those connections.
    pub(crate) watch: Watch,
    /// How many connections may share the work of a queue, or may be held by a style with sessions.
    pub(crate) connections: usize,
    pub(crate) server: String,
}

/// Where the server is and who we are.
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    pub(crate) tls: Option<TlsConnector>,
}

impl Settings {
    /// The error for a server that cannot give locks.
    pub(crate) fn read_only(&self) -> Error {
        let why = format!("{} is read-only, so it must not give locks: name the primary", self.server);
        Error::permanent(ENGINE, "use this server", why)
    }

    /// Takes the parameters and refuses what is left.
    pub(crate) fn from_address(mut address: Address, ttl: Duration, connections: usize) -> Result<Self> {
        let [host] = address.hosts.as_slice() else {
            return Err(Error::invalid(
                "bad engine URL: mysql needs one server, such as mysql://user@host/database",
            ));
        };
        let database = address.path.trim_start_matches('/').to_owned();
        if database.is_empty() {
            return Err(Error::invalid(
                "bad engine URL: mysql needs a database, such as mysql://user@host/database",
            ));
        }
        let mut login = Login {
            host: host.name.clone(),
            port: host.port.unwrap_or(3306),
            user: address.user.clone().unwrap_or_else(|| "root".into()),
            password: address.password.clone(),
            database,
            tls: None,
        };
        let mut driver = OptsBuilder::default()
            .ip_or_hostname(login.host.clone())
            .tcp_port(login.port)
            .user(Some(login.user.clone()))
            .pass(login.password.clone())
            .db_name(Some(login.database.clone()))
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(3)))
            // An update of what is there already counts, too.
            .client_found_rows(true)
            .setup(SETUP.lines().collect());
        if let Some((ssl, connector)) = take_tls(&mut address)? {
            driver = driver.ssl_opts(ssl);
            login.tls = Some(connector);
        }
        let connections =
            address.take_parsed("connections", "a number from 1 to 1000")?.unwrap_or(connections);
        if !(1..=1000).contains(&connections) {
            return Err(Error::invalid(format!(
                "bad parameter connections={connections}: expected 1 to 1000"
            )));
        }
        address.finish()?;
        let limits = Limits::for_ttl(ttl);
        let (login, watch) = (Arc::new(login), Watch::new(limits.request));
        Ok(Self { driver: driver.into(), login, limits, watch, connections, server: address.redacted() })
    }
}

/// `ssl-mode=disabled` (default) or `ssl-mode=verify`, with `ssl-ca=FILE` for a private authority.
fn take_tls(address: &mut Address) -> Result<Option<(SslOpts, TlsConnector)>> {
    let mode = address.take("ssl-mode").unwrap_or_else(|| "disabled".into());
    let authority = address.take("ssl-ca");
    match mode.as_str() {
        "disabled" => Ok(None),
        "verify" => {
            let mut ssl = SslOpts::default();
            let connector = connector(authority.as_deref())?;
            if let Some(path) = authority {
                ssl = ssl.with_root_certs(vec![std::path::PathBuf::from(path).into()]);
                ssl = ssl.with_disable_built_in_roots(true);
            }
            // An application may have several providers compiled in; this one has been tried.
            let _ = rustls::crypto::ring::default_provider().install_default();
            Ok(Some((ssl, connector)))
        }
        other => Err(Error::invalid(format!(
            "bad parameter ssl-mode={other}: expected disabled or verify (a connection that is not verified protects nobody)"
        ))),
    }
}

/// What the driver makes of its options, for connections of our own.
fn connector(authority: Option<&str>) -> Result<TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    match authority {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let bad = |error: &dyn std::fmt::Display| {
                Error::invalid(format!("bad parameter ssl-ca={path}: {error}"))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
                let certificate = certificate.map_err(|error| bad(&error))?;
                roots.add(certificate).map_err(|error| bad(&error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::permanent(ENGINE, "set up TLS", error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(client)))
}
