//! What the URL says: where the servers are, how to connect to them and how to lock.

use crate::error::{error, io_error, is_login_refused};
use lockkeeper_core::engine::{Address, Host, Password};
use lockkeeper_core::{Error, Result};
use lockkeeper_tls_common::{Check, Tls};
use redis::{ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// The name of the engine in messages.
pub(crate) const ENGINE: &str = "redis";

/// How a claim finds its servers.
#[derive(Debug, Clone)]
pub(crate) enum Topology {
    Single(Host),
    Sentinel { sentinels: Vec<Host>, master: String },
    Cluster(Vec<Host>),
}

/// How a connection to a server begins: TLS, user, password, database, protocol.
#[derive(Clone)]
pub struct ConnectOptions {
    encryption: Encryption,
    /// Made once, since that reads the authorities from the disk, which a reconnect in the background must not wait for.
    tls: Option<TlsConnector>,
    settings: RedisConnectionInfo,
    password: Password,
}

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    None,
    Verified,
    /// Anybody could be at the other end.
    Unverified,
}

/// Everything the URL says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) style: &'static str,
    pub(crate) topology: Topology,
    pub(crate) options: ConnectOptions,
    pub(crate) sentinel_options: ConnectOptions,
    pub(crate) wait_replicas: u32,
    /// Whether tokens are those of Redisson's RFencedLock from the first one on.
    pub(crate) fenced: bool,
}

/// The time limit of every request: less than a quarter of the TTL, so that a renewal which the core gives up after that
/// has closed its connection, and a retry fits in.
pub(crate) fn time_limit(ttl: Duration) -> Duration {
    (ttl / 5).min(Duration::from_secs(5))
}

impl Config {
    pub(crate) fn read(mut address: Address) -> Result<Self> {
        let style = address.take_style(&["queue", "plain", "redisson", "redisson-rw"])?;
        let wait_replicas = address.take_parsed("wait_replicas", "a number of replicas")?.unwrap_or(0);
        let fenced = address.take_flag("fenced")?;
        if fenced && style != "redisson" {
            return Err(Error::invalid("the parameter fenced is for the style 'redisson'"));
        }
        let options = ConnectOptions::read(&mut address)?;
        let sentinel_options = options.for_sentinels(&mut address);
        address.finish()?;
        let topology = Topology::read(&address)?;
        if wait_replicas > 0 && matches!(topology, Topology::Cluster(_)) {
            return Err(Error::invalid(
                "wait_replicas does not work with redis+cluster: use redis or redis+sentinel",
            ));
        }
        Ok(Self { style, topology, options, sentinel_options, wait_replicas, fenced })
    }
}

impl Topology {
    fn read(address: &Address) -> Result<Self> {
        let hosts = address.hosts.clone();
        if is_socket(address) {
            if !hosts.is_empty() || address.path.is_empty() {
                return Err(Error::invalid(format!(
                    "{0} takes the path of a socket: {0}:///run/redis/redis.sock",
                    address.scheme
                )));
            }
            return Ok(Self::Single(Host { name: address.path.clone(), port: None }));
        }
        if hosts.is_empty() {
            return Err(Error::invalid(format!(
                "{}: name a server, such as redis://host:6379",
                address.scheme
            )));
        }
        match address.scheme.as_str() {
            "redis+sentinel" => {
                let master = address.path.trim_matches('/').to_owned();
                if master.is_empty() {
                    return Err(Error::invalid(
                        "redis+sentinel needs the master's name: redis+sentinel://s1,s2,s3/NAME",
                    ));
                }
                Ok(Self::Sentinel { sentinels: hosts, master })
            }
            "redis+cluster" => Ok(Self::Cluster(hosts)),
            scheme => match <[Host; 1]>::try_from(hosts) {
                Ok([host]) => Ok(Self::Single(host)),
                Err(_) => Err(Error::invalid(format!(
                    "{scheme} takes one server; several are redis+sentinel, redis+cluster or redlock"
                ))),
            },
        }
    }
}

impl ConnectOptions {
    /// Takes user, password, `tls`, `ca`, `cert`, `key` and the database: of a single server from the path, of a socket `db`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a database that is no number or a file that cannot be read.
    pub fn read(address: &mut Address) -> Result<Self> {
        let is_unverified = take_unverified(address)?;
        let certificates = Tls::take(address, ["ca", "cert", "key"])?;
        let encryption = match address.take_flag("tls")? || address.scheme == "rediss" {
            false => Encryption::None,
            true if is_unverified => Encryption::Unverified,
            true => Encryption::Verified,
        };
        if encryption == Encryption::None && (is_unverified || !certificates.is_empty()) {
            return Err(Error::invalid(
                "the parameters ca, cert, key and insecure need TLS: write rediss://, or tls=true for several servers",
            ));
        }
        if encryption == Encryption::Unverified {
            tracing::warn!(
                server = address.redacted(),
                "the server's certificate is not verified (insecure)"
            );
        }
        let tls = match encryption {
            Encryption::None => None,
            Encryption::Verified => Some(certificates.client(Check::Name)?),
            Encryption::Unverified => Some(certificates.client(Check::Nothing)?),
        };
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        let mut settings =
            RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if let Some(user) = &address.user {
            settings = settings.set_username(user);
        }
        if is_socket(address) {
            settings = settings.set_db(read_database(&address.take("db").unwrap_or_default())?);
        } else if matches!(address.scheme.as_str(), "redis" | "rediss" | "redlock") {
            settings = settings.set_db(read_database(&address.path)?);
        }
        Ok(Self { encryption, tls, settings, password: address.take_password()? })
    }

    /// Sentinels have users of their own.
    fn for_sentinels(&self, address: &mut Address) -> Self {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = address.take("sentinel_user") {
            settings = settings.set_username(user);
        }
        let password = Password::from(address.take("sentinel_password"));
        Self { settings, password, ..self.clone() }
    }

    /// What a connection begins with, with the password as it is now.
    pub(crate) async fn settings(&self) -> RedisResult<RedisConnectionInfo> {
        let settings = self.settings.clone();
        let password = self.password.get(ENGINE).await;
        let password = password.map_err(|error| io_error(io::ErrorKind::NotFound, error.to_string()))?;
        Ok(match password {
            Some(password) => settings.set_password(password),
            None => settings,
        })
    }

    /// How connections are encrypted, if they are.
    pub(crate) fn tls(&self) -> Option<&TlsConnector> {
        self.tls.as_ref()
    }

    /// A server has let us in.
    pub(crate) fn accepted(&self) {
        self.password.accepted();
    }

    /// The error of opening a connection: one that refuses the password may pass, if another one may come.
    pub(crate) fn error(&self, cause: RedisError) -> Error {
        let is_refused = is_login_refused(&cause);
        let error = error(ENGINE, "connect", cause);
        if is_refused { self.password.refused(error) } else { error }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions").field("encryption", &self.encryption).finish_non_exhaustive()
    }
}

/// Whether the URL names a Unix socket.
fn is_socket(address: &Address) -> bool {
    matches!(address.scheme.as_str(), "redis+unix" | "unix")
}

/// `insecure` (redis-rs writes `#insecure`), and what other clients call it: `ssl_cert_reqs=none` (redis-py), `skip_verify`
/// (go-redis).
fn take_unverified(address: &mut Address) -> Result<bool> {
    let python = match address.take("ssl_cert_reqs").as_deref() {
        None | Some("required") => false,
        Some("none") => true,
        Some(other) => {
            return Err(Error::invalid(format!(
                "bad parameter ssl_cert_reqs={other}: expected required or none"
            )));
        }
    };
    Ok(address.take_flag("insecure")? | address.take_flag("skip_verify")? | python)
}

fn read_database(path: &str) -> Result<i64> {
    match path.trim_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| {
            Error::invalid(format!("bad database '{number}': expected a number, such as redis://host/0"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::read(Address::parse(url).unwrap())
    }

    #[test]
    fn a_url_says_where_and_how() {
        let config = read("redis+sentinel://ann:x@s1,s2:7,s3/m?style=plain&wait_replicas=1").unwrap();
        assert!(matches!(&config.topology, Topology::Sentinel { sentinels, master }
            if sentinels.len() == 3 && master == "m"));
        assert_eq!((config.style, config.wait_replicas), ("plain", 1));
        assert!(matches!(read("redis+cluster://a,b").unwrap().topology, Topology::Cluster(_)));
        assert_eq!(read("rediss://h").unwrap().options.encryption, Encryption::Verified);
        for insecure in ["/0#insecure", "#insecure", "?insecure", "?ssl_cert_reqs=none", "?skip_verify=true"]
        {
            let Ok(config) = read(&format!("rediss://h{insecure}")) else { panic!("{insecure}") };
            assert_eq!(config.options.encryption, Encryption::Unverified, "{insecure}");
        }
        for url in
            ["redis+unix:///run/redis.sock?db=3", "unix:///run/redis.sock", "unix://ann:x@/run/redis.sock"]
        {
            assert!(
                matches!(read(url).unwrap().topology, Topology::Single(Host { name, .. }) if name == "/run/redis.sock")
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, why) in [
            ("redis://", "name a server"),
            ("redis://a,b", "redlock"),
            ("redis://h/x", "database"),
            ("redis+sentinel://a", "master's name"),
            ("redis+cluster://a?wait_replicas=1", "wait_replicas"),
            ("redis://h?style=redisson-rw&fenced=true", "style 'redisson'"),
            ("redis://h?wait_replicas=x", "number of replicas"),
            ("rediss://h?ca=/nowhere", "/nowhere"),
            ("redis://h?stile=plain", "stile"),
            ("redis://h?insecure", "rediss://"),
            ("redis://h?ca=/etc/passwd", "rediss://"),
            ("rediss://h?ssl_cert_reqs=optional", "required or none"),
            ("unix://h/run/redis.sock", "path of a socket"),
            ("unix:///run/redis.sock?db=x", "database"),
            ("redis://:a@h?password_file=b", "not both"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
