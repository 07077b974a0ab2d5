//! What the URL says: where the server is, which user connects, and the time limits that follow from the TTL.

use crate::error::ENGINE;
use lockkeeper_core::engine::{Address, Host, Password};
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Limits;
use lockkeeper_tls_common::{Check, Tls};
use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const SETUP: &str = include_str!("sql/setup.sql");
/// For a connection that holds locks: the server must close it soon after the client has stopped trusting it.
const HELD: &str = include_str!("sql/held_setup.sql");

/// Everything an engine needs to open connections.
pub(crate) struct Settings {
    style: &'static str,
    pub(crate) driver: Opts,
    /// The same for connections that hold locks.
    pub(crate) held: Opts,
    /// The same for those by which the keeper is woken.
    pub(crate) waking: Opts,
    pub(crate) limits: Limits,
    pub(crate) times: HeldTimes,
    /// How many connections may share the work of a queue, or may be held by a style with sessions.
    pub(crate) connections: usize,
    pub(crate) password: Password,
    pub(crate) encryption: Encryption,
    pub(crate) server: String,
}

/// The oldest servers that each style works on, and why. The engine's page and the changelog say the same.
const OLDEST: [(&str, Version, Version, &str); 4] = [
    ("queue", (8, 0, 0), (10, 2, 0), "window functions"),
    ("row", (5, 7, 5), (10, 0, 2), "several user locks in a session"),
    ("session", (8, 0, 0), (10, 6, 0), "SKIP LOCKED"),
    // Its tokens come from a sequence on MariaDB.
    ("advisory", (5, 7, 5), (10, 3, 0), "several user locks in a session, MariaDB also sequences"),
];

type Version = (u32, u32, u32);

/// What the style needs, if a server that gives this version does not have it.
fn too_old(style: &str, version: &str) -> Option<String> {
    let (_, mysql, mariadb, needed) = OLDEST.iter().find(|(name, ..)| *name == style)?;
    let oldest = if version.contains("MariaDB") { mariadb } else { mysql };
    let dotted = |(major, minor, patch): &Version| match patch {
        0 => format!("{major}.{minor}"),
        _ => format!("{major}.{minor}.{patch}"),
    };
    (read_version(version) < *oldest)
        .then(|| format!("MySQL {} or MariaDB {}, or newer ({needed})", dotted(mysql), dotted(mariadb)))
}

/// The first three numbers. A proxy may put `5.5.5-` before the version of MariaDB, which its clients expect there.
fn read_version(version: &str) -> Version {
    let version = version.strip_prefix("5.5.5-").filter(|rest| rest.contains("MariaDB")).unwrap_or(version);
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// How many connections a keeper opens at most, unless the URL says otherwise: on each runtime to share the work of a
/// queue, to hold locks each in its own transaction, or to wait for user locks.
fn default_connections(style: &str) -> usize {
    match style {
        "session" => 32,
        "advisory" => 16,
        _ => 8,
    }
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
    const LONGEST_WAIT: u64 = 10;

    fn for_ttl(ttl: Duration) -> Self {
        let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        Self { server: whole + 2, wait: whole.div_ceil(2).clamp(1, Self::LONGEST_WAIT) }
    }
}

impl Settings {
    /// The error for a server that cannot give locks.
    pub(crate) fn read_only(&self) -> Error {
        let why = format!("{} is read-only, so it must not give locks: name the primary", self.server);
        Error::permanent(ENGINE, "use this server", why)
    }

    /// Refuses a server that is too old for the style.
    pub(crate) fn check_version(&self, version: &str) -> Result<()> {
        let style = self.style;
        let Some(needed) = too_old(style, version) else { return Ok(()) };
        let why = format!("{} is version {version}, and style '{style}' needs {needed}", self.server);
        Err(Error::permanent(ENGINE, "use this server", why))
    }

    /// Takes the parameters and refuses what is left.
    pub(crate) fn from_address(mut address: Address, ttl: Duration, style: &'static str) -> Result<Self> {
        let socket = address.take("socket");
        let host = match (address.hosts.as_slice(), &socket) {
            ([host], _) => host.clone(),
            ([], Some(_)) => Host { name: "localhost".into(), port: None },
            _ => {
                return Err(Error::invalid(
                    "bad engine URL: mysql needs one server, such as mysql://user@host/database or \
                     mysql://user@localhost/database?socket=/run/mysqld/mysqld.sock",
                ));
            }
        };
        let password = address.take_password()?;
        let database = address.path.trim_start_matches('/').to_owned();
        if database.is_empty() {
            return Err(Error::invalid(
                "bad engine URL: mysql needs a database, such as mysql://user@host/database",
            ));
        }
        let mut driver = OptsBuilder::default()
            .ip_or_hostname(host.name)
            .tcp_port(host.port.unwrap_or(3306))
            .user(Some(address.user.clone().unwrap_or_else(|| "root".into())))
            .db_name(Some(database))
            .socket(socket.clone())
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(3)))
            // An update of what is there already counts, too.
            .client_found_rows(true);
        let (encryption, options) = Encryption::take(&mut address, socket.is_some())?;
        driver = driver.ssl_opts(options);
        let connections = address.take_parsed("connections", "a number from 1 to 1000")?;
        let connections = connections.unwrap_or_else(|| default_connections(style));
        if !(1..=1000).contains(&connections) {
            return Err(Error::invalid(format!(
                "bad parameter connections={connections}: expected 1 to 1000"
            )));
        }
        address.finish()?;
        let times = HeldTimes::for_ttl(ttl);
        let closed_after = |seconds: u64| -> Opts {
            let held =
                HELD.replace("{server}", &seconds.to_string()).replace("{wait}", &times.wait.to_string());
            driver.clone().setup(SETUP.lines().chain([held.as_str()]).collect()).into()
        };
        Ok(Self {
            style,
            held: closed_after(times.server),
            waking: closed_after(times.server.min(HeldTimes::LONGEST_WAIT * 3)),
            driver: driver.setup(SETUP.lines().collect()).into(),
            limits: Limits::for_ttl(ttl),
            times,
            connections,
            password,
            encryption,
            server: address.redacted(),
        })
    }
}

/// How connections are encrypted, as the `mysql` program does by `ssl-mode`. `PREFERRED` goes on without TLS only if the
/// server says that it has none, and never after a handshake that failed.
pub(crate) struct Encryption {
    pub(crate) mode: Mode,
    /// The server has said that it has no TLS, so that the next connection need not try.
    pub(crate) has_none: AtomicBool,
}

/// When TLS is used, and what is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Never,
    /// If the server has it.
    Preferred,
    Required,
    /// A trusted authority must have signed the certificate, for whatever name.
    Authority,
}

impl Encryption {
    /// Takes `ssl-mode`, `ssl-ca`, `ssl-cert` and `ssl-key`.
    fn take(address: &mut Address, is_socket: bool) -> Result<(Self, Option<SslOpts>)> {
        let names = [
            ("ssl_mode", "ssl-mode"),
            ("ssl_ca", "ssl-ca"),
            ("ssl_cert", "ssl-cert"),
            ("ssl_key", "ssl-key"),
        ];
        names.into_iter().for_each(|(other, name)| address.alias(other, name));
        let tls = Tls::take(address, ["ssl-ca", "ssl-cert", "ssl-key"])?;
        // As the mysql program: an authority that is named is meant to be checked.
        let default = if tls.is_empty() { "PREFERRED" } else { "VERIFY_CA" };
        let text = address.take("ssl-mode").unwrap_or_else(|| default.into());
        let (mode, check) = match text.to_uppercase().replace('-', "_").as_str() {
            "DISABLED" => (Mode::Never, Check::Nothing),
            "PREFERRED" => (Mode::Preferred, Check::Nothing),
            "REQUIRED" => (Mode::Required, Check::Nothing),
            "VERIFY_CA" => (Mode::Authority, Check::Authority),
            "VERIFY_IDENTITY" => (Mode::Required, Check::Name),
            _ => {
                return Err(Error::invalid(format!(
                    "bad parameter ssl-mode={text}: expected DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY"
                )));
            }
        };
        let mode = if is_socket { Mode::Never } else { mode };
        let options = if mode == Mode::Never { None } else { Some(options(&tls, check)?) };
        Ok((Self { mode, has_none: AtomicBool::new(false) }, options))
    }
}

/// What the driver needs to know of it.
fn options(tls: &Tls, check: Check) -> Result<SslOpts> {
    let mut options = SslOpts::default();
    if let Some((certificate, key)) = tls.identity() {
        let identity = ClientIdentity::new(certificate.to_vec().into(), key.to_vec().into());
        options = options.with_client_identity(Some(identity));
    }
    if check == Check::Nothing {
        // The driver's own list stays, since it takes none for an error.
        return Ok(options.with_danger_accept_invalid_certs(true));
    }
    let authorities = tls.authorities()?.into_iter().map(|certificate| certificate.to_vec().into());
    Ok(options.with_root_certs(authorities.collect()).with_disable_built_in_roots(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> Result<Settings> {
        Settings::from_address(Address::parse(url)?, Duration::from_secs(10), "queue")
    }

    #[test]
    fn a_server_is_too_old_for_some_styles() {
        for (version, styles) in [
            ("5.6.51-log", "queue row session advisory"),
            ("5.7.4-m14", "queue row session advisory"),
            ("5.7.5", "queue session"),
            ("5.7.44-log", "queue session"),
            ("8.0.11-TiDB-v8.5.0", ""),
            ("8.0.40-0ubuntu0.24.04.1", ""),
            ("9.7.0", ""),
            ("10.0.1-MariaDB", "queue row session advisory"),
            ("10.0.2-MariaDB", "queue session advisory"),
            ("10.2.44-MariaDB-log", "session advisory"),
            ("10.5.29-MariaDB", "session"),
            ("5.5.5-10.5.29-MariaDB", "session"),
            ("5.5.5-10.6.21-MariaDB", ""),
            ("10.11.6-MariaDB-0+deb12u1", ""),
            ("11.8.2-MariaDB", ""),
        ] {
            for (style, ..) in OLDEST {
                let is_too_old = styles.split(' ').any(|name| name == style);
                assert_eq!(too_old(style, version).is_some(), is_too_old, "{style} on {version}");
            }
        }
        let why = too_old("session", "10.5.29-MariaDB").unwrap();
        assert_eq!(why, "MySQL 8.0 or MariaDB 10.6, or newer (SKIP LOCKED)");
        assert!(crate::STYLES.iter().all(|style| OLDEST.iter().any(|(name, ..)| *name == style.style)));
    }

    #[test]
    fn the_modes_are_those_of_the_mysql_program() {
        for (query, mode) in [
            ("", Mode::Preferred),
            ("?ssl-mode=DISABLED", Mode::Never),
            ("?ssl-mode=required", Mode::Required),
            ("?ssl-mode=VERIFY_CA", Mode::Authority),
            ("?ssl_mode=verify-identity", Mode::Required),
            ("?ssl-ca=system", Mode::Authority),
            ("?socket=/run/mysqld/mysqld.sock", Mode::Never),
        ] {
            let found = settings(&format!("mysql://h/shop{query}")).expect(query);
            assert_eq!(found.encryption.mode, mode, "{query}");
            assert_eq!(found.driver.ssl_opts().is_none(), mode == Mode::Never, "{query}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, why) in [
            ("mysql:///shop", "socket=/run/mysqld"),
            ("mysql://h", "needs a database"),
            ("mysql://h/shop?ssl-mode=verify", "VERIFY_IDENTITY"),
            ("mysql://h/shop?ssl-ca=/nowhere", "/nowhere"),
            ("mysql://h/shop?ssl-key=/nowhere", "ssl-cert and ssl-key"),
            ("mysql://a:b@h/shop?password_file=c", "not both"),
            ("mysql://h/shop?colour=red", "it has: connections"),
        ] {
            let error = settings(url).map(drop).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_changes_nothing_for_the_process() {
        let settings = settings("mysql://root@localhost/shop?ssl-mode=VERIFY_IDENTITY").expect("settings");
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
