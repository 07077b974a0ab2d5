//! What the URL says: where the server is, who we are.

use lockkeeper_core::address::Address;
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Limits;
use mysql_async::{Opts, OptsBuilder, SslOpts};
use std::time::Duration;

const SETUP: &str = include_str!("sql/setup.sql");

/// Everything an engine needs to open connections.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) driver: Opts,
    pub(crate) limits: Limits,
    /// How many connections may share the work of a queue, or may be held by a style with sessions.
    pub(crate) connections: usize,
    pub(crate) server: String,
}

impl Settings {
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
        let mut driver = OptsBuilder::default()
            .ip_or_hostname(host.name.clone())
            .tcp_port(host.port.unwrap_or(3306))
            .user(Some(address.user.clone().unwrap_or_else(|| "root".into())))
            .pass(address.password.clone())
            .db_name(Some(database))
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(3)))
            // An update of what is there already counts, too.
            .client_found_rows(true)
            .setup(SETUP.lines().collect());
        if let Some(ssl) = take_tls(&mut address)? {
            driver = driver.ssl_opts(ssl);
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
        Ok(Self { driver: driver.into(), limits, connections, server: address.redacted() })
    }
}

/// `ssl-mode=disabled` (default) or `ssl-mode=verify`, with `ssl-ca=FILE` for a private authority.
fn take_tls(address: &mut Address) -> Result<Option<SslOpts>> {
    let mode = address.take("ssl-mode").unwrap_or_else(|| "disabled".into());
    let authority = address.take("ssl-ca");
    match mode.as_str() {
        "disabled" => Ok(None),
        "verify" => {
            let mut ssl = SslOpts::default();
            if let Some(path) = authority {
                ssl = ssl.with_root_certs(vec![std::path::PathBuf::from(path).into()]);
                ssl = ssl.with_disable_built_in_roots(true);
            }
            // An application may have several providers compiled in; this one has been tried.
            let _ = rustls::crypto::ring::default_provider().install_default();
            Ok(Some(ssl))
        }
        other => Err(Error::invalid(format!(
            "bad parameter ssl-mode={other}: expected disabled or verify (a connection that is not verified protects nobody)"
        ))),
    }
}
