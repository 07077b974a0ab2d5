//! What the URL says: where the servers are, how to connect to them and how to lock.

use crate::connection::Server;
use lockkeeper_core::engine::{Address, Host};
use lockkeeper_core::{Error, Result};
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult};
use redis::{RedisConnectionInfo, TlsCertificates};
use std::time::Duration;

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
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    tls: bool,
    authority: Option<Vec<u8>>,
    settings: RedisConnectionInfo,
}

/// Everything the URL says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) style: &'static str,
    pub(crate) topology: Topology,
    pub(crate) options: ConnectOptions,
    pub(crate) sentinel_options: ConnectOptions,
    pub(crate) wait_replicas: u32,
}

/// The time limit of every request: less than a quarter of the TTL, so that a renewal which the core gives up after that
/// has closed its connection, and a retry fits in.
pub(crate) fn time_limit(ttl: Duration) -> Duration {
    (ttl / 5).min(Duration::from_secs(5))
}

impl Config {
    pub(crate) fn read(mut address: Address) -> Result<Self> {
        let style = address.take_style(&["queue", "plain"])?;
        let wait_replicas = address.take_parsed("wait_replicas", "a number of replicas")?.unwrap_or(0);
        let options = ConnectOptions::read(&mut address)?;
        let sentinel_options = options.for_sentinels(&mut address);
        address.finish()?;
        let topology = Topology::read(&address)?;
        if wait_replicas > 0 && matches!(topology, Topology::Cluster(_)) {
            return Err(Error::invalid(
                "wait_replicas does not work with redis+cluster: use redis or redis+sentinel",
            ));
        }
        Ok(Self { style, topology, options, sentinel_options, wait_replicas })
    }
}

impl Topology {
    fn read(address: &Address) -> Result<Self> {
        let hosts = address.hosts.clone();
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
    /// Takes user, password, `tls`, `ca` and, of a single server, the database from the path.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a database that is no number or a file that cannot be read.
    pub fn read(address: &mut Address) -> Result<Self> {
        let tls = address.take_flag("tls")? || address.scheme == "rediss";
        let authority = address.take("ca").map(|path| read_authority(&path)).transpose()?;
        let mut settings =
            RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if let Some(user) = &address.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &address.password {
            settings = settings.set_password(password);
        }
        if matches!(address.scheme.as_str(), "redis" | "rediss" | "redlock") {
            settings = settings.set_db(read_database(&address.path)?);
        }
        Ok(Self { tls, authority, settings })
    }

    /// Sentinels have users of their own.
    fn for_sentinels(&self, address: &mut Address) -> Self {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = address.take("sentinel_user") {
            settings = settings.set_username(user);
        }
        if let Some(password) = address.take("sentinel_password") {
            settings = settings.set_password(password);
        }
        Self { settings, ..self.clone() }
    }

    /// A client of that server.
    pub(crate) fn client(&self, (host, port): &Server) -> RedisResult<Client> {
        let info = self.info(host, *port)?;
        if !self.tls {
            return Client::open(info);
        }
        // The driver takes the process's provider. More than one may be compiled in, and then none is chosen by itself; an
        // earlier choice stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        match &self.authority {
            Some(authority) => {
                let root_cert = Some(authority.clone());
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
            None => Client::open(info),
        }
    }

    fn info(&self, host: &str, port: u16) -> RedisResult<ConnectionInfo> {
        let host = host.to_owned();
        let addr = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = addr.into_connection_info()?;
        Ok(info.set_redis_settings(self.settings.clone()).set_tcp_settings(tcp))
    }
}

fn read_authority(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        Error::invalid(format!("cannot read the authority's certificate '{path}' (parameter ca): {error}"))
    })
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
        assert!(read("rediss://h").unwrap().options.tls);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, why) in [
            ("redis://", "name a server"),
            ("redis://a,b", "redlock"),
            ("redis://h/x", "database"),
            ("redis+sentinel://a", "master's name"),
            ("redis+cluster://a?wait_replicas=1", "wait_replicas"),
            ("redis://h?wait_replicas=x", "number of replicas"),
            ("rediss://h?ca=/nowhere", "/nowhere"),
            ("redis://h?stile=plain", "stile"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
