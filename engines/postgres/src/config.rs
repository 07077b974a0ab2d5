//! What the URL says: where the server is, who we are, which style.

use crate::error::ENGINE;
use lockkeeper_core::engine::{Address, Password};
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Limits;
use lockkeeper_tls_common::{Check, Tls};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_postgres::config::ChannelBinding;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Everything an engine needs to open connections.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The servers to try, in this order.
    pub(crate) hosts: Vec<Host>,
    pub(crate) driver: tokio_postgres::Config,
    pub(crate) password: Password,
    pub(crate) encryption: Encryption,
    pub(crate) limits: Limits,
    /// How many connections a style whose locks live on connections may open.
    pub(crate) connections: usize,
    /// Whether there is a transaction pooler in between: then nothing may outlive a transaction.
    pub(crate) pooled: bool,
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

impl Host {
    /// Whether the name is the directory of a Unix socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }
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
    /// The error for a server that cannot give locks.
    pub(crate) fn refused(&self, why: &str) -> Error {
        Error::permanent(ENGINE, "use this server", format!("{} {why}", self.server))
    }

    /// Takes the parameters and refuses what is left.
    pub(crate) fn from_address(mut address: Address, ttl: Duration, connections: usize) -> Result<Self> {
        let mut limits = Limits::for_ttl(ttl);
        if let Some(seconds) = address.take_parsed::<u64>("connect_timeout", "a number of seconds")?
            && seconds > 0
        {
            limits.connect = limits.connect.min(Duration::from_secs(seconds.max(2)));
        }
        let user = address.user.clone().or(address.take("user")).unwrap_or_else(|| "postgres".into());
        let database = Some(address.path.trim_start_matches('/').to_owned()).filter(|name| !name.is_empty());
        let database = database.or(address.take("dbname")).unwrap_or_else(|| user.clone());
        let mut driver = tokio_postgres::Config::new();
        // The client's side of a connection that holds locks lives as long as the server's.
        driver
            .keepalives_idle(whole_seconds(limits.takeover / 2))
            .keepalives_interval(whole_seconds(limits.takeover / 8))
            .tcp_user_timeout(limits.takeover)
            .user(user)
            .dbname(database)
            .application_name(address.take("application_name").unwrap_or_else(|| "lockkeeper".into()));
        if let Some(options) = address.take("options") {
            driver.options(options);
        }
        if let Some(password) = address.take("password") {
            address.password.get_or_insert(password);
        }
        let password = address.take_password()?;
        let hosts = take_hosts(&mut address)?;
        let encryption = Encryption::take(&mut address)?;
        take_session_attributes(&mut address, &mut driver)?;
        let pooled = take_pooler(&mut address)?;
        take_ignored(&mut address)?;
        let connections =
            address.take_parsed("connections", "a number from 1 to 1000")?.unwrap_or(connections);
        if !(1..=1000).contains(&connections) {
            return Err(Error::invalid(format!(
                "bad parameter connections={connections}: expected 1 to 1000"
            )));
        }
        address.finish()?;
        let (backends, server) = (Backends::default(), address.redacted());
        Ok(Self { hosts, driver, password, encryption, limits, connections, pooled, server, backends })
    }
}

/// The servers before the path, or those of `host` and `port`. A name that begins with a slash is the directory of a socket.
fn take_hosts(address: &mut Address) -> Result<Vec<Host>> {
    const DEFAULT_PORT: u16 = 5432;
    let (names, ports) = (address.take("host"), address.take("port"));
    let bad = |ports: &str| {
        Error::invalid(format!("bad parameter port={ports}: expected one port, or one for each host"))
    };
    let ports: Vec<u16> = match &ports {
        None => Vec::new(),
        Some(text) => {
            let ports: Result<_, _> = text.split(',').map(str::parse).collect();
            ports.map_err(|_| bad(text))?
        }
    };
    let named: Vec<(String, Option<u16>)> = match names {
        Some(names) => names.split(',').map(|name| (name.to_owned(), None)).collect(),
        None => address.hosts.iter().map(|host| (host.name.clone(), host.port)).collect(),
    };
    if named.is_empty() {
        return Err(Error::invalid(
            "bad engine URL: postgres needs a server, such as postgres://user@host/database or \
             postgres:///database?host=/var/run/postgresql",
        ));
    }
    if ports.len() > 1 && ports.len() != named.len() {
        return Err(bad(&ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")));
    }
    let hosts = named.into_iter().enumerate().map(|(index, (name, port))| {
        let given = ports.get(index).or(ports.first()).copied();
        Host { name, port: port.or(given).unwrap_or(DEFAULT_PORT) }
    });
    Ok(hosts.collect())
}

/// How connections are encrypted: as libpq does by `sslmode`, but `prefer` goes on without TLS only if the server says that
/// it has none. A handshake that fails is an error: what may be an attacker does not choose plaintext.
#[derive(Clone)]
pub(crate) struct Encryption {
    pub(crate) mode: Mode,
    pub(crate) tls: MakeRustlsConnect,
}

/// When TLS is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Never,
    /// If the server refuses us without.
    Allowed,
    /// If the server has it.
    Preferred,
    Required,
}

impl Encryption {
    /// Takes `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.
    fn take(address: &mut Address) -> Result<Self> {
        let tls = Tls::take(address, ["sslrootcert", "sslcert", "sslkey"])?;
        let default = if tls.names_system() { "verify-full" } else { "prefer" };
        let text = address.take("sslmode").unwrap_or_else(|| default.into());
        // As libpq: an authority that is named is used, whatever the mode.
        let named = if tls.authority().is_some() { Check::Authority } else { Check::Nothing };
        let (mode, check) = match text.as_str() {
            "disable" => (Mode::Never, Check::Nothing),
            "allow" => (Mode::Allowed, named),
            "prefer" => (Mode::Preferred, named),
            "require" => (Mode::Required, named),
            "verify-ca" => (Mode::Required, Check::Authority),
            "verify-full" => (Mode::Required, Check::Name),
            _ => {
                return Err(Error::invalid(format!(
                    "bad parameter sslmode={text}: expected disable, allow, prefer, require, verify-ca or verify-full"
                )));
            }
        };
        if tls.names_system() && check != Check::Name {
            return Err(Error::invalid(format!(
                "sslrootcert=system needs sslmode=verify-full, not {text}: anybody gets a certificate from a public authority"
            )));
        }
        Ok(Self { mode, tls: MakeRustlsConnect::new(tls.client(check)?) })
    }
}

/// What the driver knows besides: `channel_binding`, and of `target_session_attrs` what locks need anyway.
fn take_session_attributes(address: &mut Address, driver: &mut tokio_postgres::Config) -> Result<()> {
    match address.take("target_session_attrs").as_deref() {
        None | Some("any" | "read-write" | "primary") => {}
        Some(other) => {
            return Err(Error::invalid(format!(
                "bad parameter target_session_attrs={other}: locks need a server that can be written (read-write)"
            )));
        }
    }
    driver.channel_binding(match address.take("channel_binding").as_deref() {
        None | Some("prefer") => ChannelBinding::Prefer,
        Some("disable") => ChannelBinding::Disable,
        Some("require") => ChannelBinding::Require,
        Some(other) => {
            return Err(Error::invalid(format!(
                "bad parameter channel_binding={other}: expected disable, prefer or require"
            )));
        }
    });
    Ok(())
}

/// Whether there is a transaction pooler in between; `pgbouncer=true` is what Prisma and Supabase write for it.
fn take_pooler(address: &mut Address) -> Result<bool> {
    let prisma = address.take_flag("pgbouncer")?;
    match address.take("pooler").as_deref() {
        None => Ok(prisma),
        Some("transaction") => Ok(true),
        Some("session") => Ok(false),
        Some(other) => Err(Error::invalid(format!(
            "bad parameter pooler={other}: expected transaction, or session (as without a pooler)"
        ))),
    }
}

/// Parameters of libpq that change nothing here, with the values for which that is so (none: all).
const IGNORED: &[(&str, &[&str])] = &[
    ("client_encoding", &[]),
    ("fallback_application_name", &[]),
    ("gssdelegation", &["0"]),
    ("gssencmode", &["disable", "prefer"]),
    ("gsslib", &[]),
    // Those that follow from the TTL are used.
    ("keepalives", &[]),
    ("keepalives_count", &[]),
    ("keepalives_idle", &[]),
    ("keepalives_interval", &[]),
    ("krbsrvname", &[]),
    ("load_balance_hosts", &["disable"]),
    ("ssl_min_protocol_version", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("sslcertmode", &["allow"]),
    ("sslcompression", &["0"]),
    ("sslnegotiation", &["postgres"]),
    ("sslsni", &["1"]),
    ("tcp_user_timeout", &[]),
];

fn take_ignored(address: &mut Address) -> Result<()> {
    for (name, harmless) in IGNORED {
        if let Some(value) = address.take(name)
            && !harmless.is_empty()
            && !harmless.contains(&value.as_str())
        {
            return Err(Error::invalid(format!(
                "bad parameter {name}={value}: only {} is supported",
                harmless.join(", ")
            )));
        }
    }
    Ok(())
}

/// The system counts keepalive times in seconds, of which there must be one at least.
pub(crate) fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> Result<Settings> {
        Settings::from_address(Address::parse(url)?, Duration::from_secs(10), 8)
    }

    #[test]
    fn the_parameters_of_libpq_are_known() {
        let url = "postgres://ann@h/shop?sslmode=allow&application_name=job&options=-csearch_path%3Dlocks&connect_timeout=3\
            &target_session_attrs=read-write&channel_binding=prefer&gssencmode=prefer&keepalives=1";
        let found = settings(url).unwrap();
        assert_eq!(found.driver.get_application_name(), Some("job"));
        assert_eq!(found.driver.get_options(), Some("-csearch_path=locks"));
        assert_eq!(found.limits.connect, Duration::from_secs(3));
        assert_eq!(found.encryption.mode, Mode::Allowed);
        assert_eq!(settings("postgres://h/shop").unwrap().encryption.mode, Mode::Preferred);
        assert_eq!(settings("postgres://h?sslrootcert=system").unwrap().encryption.mode, Mode::Required);
        assert!(settings("postgres://h?pooler=transaction").unwrap().pooled);
        assert!(settings("postgres://h?pgbouncer=true").unwrap().pooled);
    }

    #[test]
    fn servers_are_named_in_two_ways() {
        let hosts = |url: &str| {
            let hosts = settings(url).unwrap().hosts;
            hosts.into_iter().map(|host| (host.name, host.port)).collect::<Vec<_>>()
        };
        let socket = "/var/run/postgresql".to_owned();
        assert_eq!(hosts("postgres:///shop?host=/var/run/postgresql"), [(socket.clone(), 5432)]);
        assert_eq!(hosts("postgres://%2Fvar%2Frun%2Fpostgresql:5433/shop"), [(socket, 5433)]);
        let two = [("a".to_owned(), 1), ("b".to_owned(), 2)];
        assert_eq!(hosts("postgres:///shop?host=a,b&port=1,2"), two);
        assert_eq!(hosts("postgres://a:1,b:2/shop"), two);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, why) in [
            ("postgres:///shop", "host=/var/run/postgresql"),
            ("postgres://h?sslmode=on", "verify-full"),
            ("postgres://h?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
            ("postgres://h?sslrootcert=/nowhere", "/nowhere"),
            ("postgres://h?target_session_attrs=standby", "read-write"),
            ("postgres://h?gssencmode=require", "disable, prefer"),
            ("postgres://a,b?port=1,2,3", "one for each host"),
            ("postgres://h?pooler=statement", "transaction"),
            ("postgres://:a@h?password_file=b", "not both"),
            ("postgres://h?sslcrl=x", "it has: application_name"),
        ] {
            let error = settings(url).map(drop).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

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
