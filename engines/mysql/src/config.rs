//! What the URL says: where the server is, which user connects, and the time limits that follow from the TTL.

use crate::error::ENGINE;
use lockkeeper_core::engine::Address;
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Limits;
use mysql_async::{Opts, OptsBuilder, SslOpts};
use std::time::Duration;

const SETUP: &str = include_str!("sql/setup.sql");
/// For a connection that holds locks: the server must close it soon after the client has stopped trusting it.
const HELD: &str = include_str!("sql/held_setup.sql");

/// Everything an engine needs to open connections.
pub(crate) struct Settings {
    pub(crate) driver: Opts,
    /// The same for connections that hold locks.
    pub(crate) held: Opts,
    pub(crate) limits: Limits,
    pub(crate) times: HeldTimes,
    /// How many connections may share the work of a queue, or may be held by a style with sessions.
    pub(crate) connections: usize,
    pub(crate) server: String,
}

/// How long the server and the client wait for each other on a connection that holds locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldTimes {
    /// Seconds after which the server closes a connection without a request, and so frees its locks. The client trusts a
    /// lock for less than its TTL after the last request that was good, and this is longer, so trust ends first.
    pub(crate) server: u64,
    /// Seconds that one wait in the server lasts. Then another begins, so a connection on which nothing arrives any more
    /// is noticed, and a lock that was granted to it is freed after [`server`](Self::server).
    pub(crate) wait: u64,
}

impl HeldTimes {
    fn for_ttl(ttl: Duration) -> Self {
        let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        Self { server: whole + 2, wait: whole.div_ceil(2).clamp(1, 10) }
    }
}

impl Settings {
    /// The error for a server that cannot give locks.
    pub(crate) fn read_only(&self) -> Error {
        let why = format!("{} is read-only, so it must not give locks: name the primary", self.server);
        Error::permanent(ENGINE, "use this server", why)
    }

    /// The error for a server whose GET_LOCK frees the lock that the session has.
    pub(crate) fn too_old(&self, version: &str) -> Error {
        let why = format!(
            "{} is version {version}, whose sessions can have one user lock at a time: use MySQL 5.7.5 or MariaDB 10.0.2, \
             or newer",
            self.server
        );
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
            .client_found_rows(true);
        driver = driver.ssl_opts(take_tls(&mut address)?);
        let connections =
            address.take_parsed("connections", "a number from 1 to 1000")?.unwrap_or(connections);
        if !(1..=1000).contains(&connections) {
            return Err(Error::invalid(format!(
                "bad parameter connections={connections}: expected 1 to 1000"
            )));
        }
        address.finish()?;
        let times = HeldTimes::for_ttl(ttl);
        let held =
            HELD.replace("{server}", &times.server.to_string()).replace("{wait}", &times.wait.to_string());
        Ok(Self {
            held: driver.clone().setup(SETUP.lines().chain([held.as_str()]).collect()).into(),
            driver: driver.setup(SETUP.lines().collect()).into(),
            limits: Limits::for_ttl(ttl),
            times,
            connections,
            server: address.redacted(),
        })
    }
}

/// `ssl-mode=disabled` (default) or `ssl-mode=verify`, with `ssl-ca=FILE` for a private authority.
fn take_tls(address: &mut Address) -> Result<Option<SslOpts>> {
    let mode = address.take("ssl-mode").unwrap_or_else(|| "disabled".into());
    let authority = address.take("ssl-ca");
    match mode.as_str() {
        "disabled" => Ok(None),
        "verify" => {
            let ssl = SslOpts::default();
            Ok(Some(match authority {
                Some(path) => {
                    let certificates = std::fs::read(&path)
                        .map_err(|error| Error::invalid(format!("bad parameter ssl-ca={path}: {error}")))?;
                    ssl.with_root_certs(vec![certificates.into()]).with_disable_built_in_roots(true)
                }
                None => ssl,
            }))
        }
        other => Err(Error::invalid(format!(
            "bad parameter ssl-mode={other}: expected disabled or verify (a connection that is not verified protects nobody)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_changes_nothing_for_the_process() {
        let address = Address::parse("mysql://root@localhost/shop?ssl-mode=verify").expect("a URL");
        let settings = Settings::from_address(address, Duration::from_secs(10), 8).expect("settings");
        assert!(settings.driver.ssl_opts().is_some());
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }

    #[test]
    fn the_server_keeps_a_connection_for_longer_than_the_client_trusts_it() {
        for ttl in [100, 999, 1000, 1001, 2000, 10_000, 30_000, 3_600_000].map(Duration::from_millis) {
            let times = HeldTimes::for_ttl(ttl);
            assert!(Duration::from_secs(times.server) >= ttl + Duration::from_secs(2), "{ttl:?}");
            assert!(
                Duration::from_secs(times.server) < ttl + Duration::from_secs(3),
                "{ttl:?}: known and near"
            );
            assert!((1..=10).contains(&times.wait), "{ttl:?}");
        }
    }
}
