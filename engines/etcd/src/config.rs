//! What the URL says: servers, encryption, user, and the lease that fits the TTL.

use lockkeeper_core::engine::{Address, Password};
use lockkeeper_core::{Error, Result};
use lockkeeper_tls_common::Tls;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// The schemes of this engine; the second one encrypts.
const SCHEMES: [&str; 2] = ["etcd", "etcds"];

/// The shortest TTL: etcd's leases are whole seconds, at least one and a half election time-outs long.
pub(crate) const MIN_TTL: Duration = Duration::from_secs(2);

const DEFAULT_PORT: u16 = 2379;

/// How often HTTP/2 checks a connection that carries a stream. Not more often: etcd disconnects clients that send pings
/// more than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);

/// Everything needed to connect.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) login: Option<Login>,
    pub(crate) times: Times,
    /// Stands in front of every key.
    pub(crate) prefix: String,
}

/// A user of etcd's own access control.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Password,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({}, …)", self.user)
    }
}

/// The durations that follow from the TTL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// How long a claim lives, counted from its join or its last renewal.
    pub(crate) ttl: Duration,
    /// The lifetime that is requested for the lease. It is longer than the TTL: a claim joins a lease that was kept
    /// alive a moment ago, and still must live its whole TTL (Law 5).
    pub(crate) lease_seconds: i64,
    /// The time limit of one request: less than a quarter of the TTL, so that a silent connection is noticed and replaced
    /// while a renewal can still be sent again.
    pub(crate) request: Duration,
    /// The time limit of a keep-alive on a connection that replies to other requests: a busy server replies late.
    pub(crate) keep_alive: Duration,
}

impl Times {
    pub(crate) fn new(ttl: Duration) -> Result<Self> {
        if ttl < MIN_TTL {
            return Err(Error::invalid(format!(
                "a TTL of {ttl:?} is too short for etcd, whose leases are whole seconds and at least one and a half \
                 election time-outs long: give at least {MIN_TTL:?}"
            )));
        }
        let slack = (ttl / 10).max(Duration::from_millis(500));
        let lease = ttl + slack;
        Ok(Self {
            ttl,
            lease_seconds: lease.as_secs() as i64 + i64::from(lease.subsec_nanos() > 0),
            request: (ttl / 5).min(Duration::from_secs(2)),
            keep_alive: (ttl / 3).min(Duration::from_secs(5)),
        })
    }
}

impl Config {
    /// Takes the parameters out of the address.
    pub(crate) fn new(mut address: Address, ttl: Duration) -> Result<Self> {
        address.take_style(&["queue"])?;
        let times = Times::new(ttl)?;
        if !matches!(address.path.as_str(), "" | "/") {
            return Err(Error::invalid(format!(
                "an etcd URL has no path, but this one has '{}': use ?namespace= instead",
                address.path
            )));
        }
        let tls = take_tls(&mut address)?;
        let login = take_login(&mut address)?;
        let prefix = address.take("prefix").unwrap_or_default();
        crate::prefix::check(&prefix)?;
        address.finish()?;
        if address.hosts.is_empty() {
            return Err(Error::invalid("name at least one etcd server: etcd://HOST:PORT,HOST:PORT"));
        }
        let endpoints = address.hosts.iter().map(|host| {
            endpoint(&host.with_port(DEFAULT_PORT), tls.clone(), times.request)
                .map_err(|error| Error::permanent("etcd", "prepare the connection", error))
        });
        Ok(Self { endpoints: endpoints.collect::<Result<_>>()?, login, times, prefix })
    }
}

fn endpoint(
    host: &str,
    tls: Option<ClientTlsConfig>,
    limit: Duration,
) -> Result<Endpoint, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))?
        .connect_timeout(limit)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(limit);
    match tls {
        Some(tls) => endpoint.tls_config(tls),
        None => Ok(endpoint),
    }
}

fn take_tls(address: &mut Address) -> Result<Option<ClientTlsConfig>> {
    let flag = address.take_flag("tls")?;
    let certificates = Tls::take(address, ["ca", "cert", "key"])?;
    if !flag && address.scheme != SCHEMES[1] && certificates.is_empty() {
        return Ok(None);
    }
    let mut tls = ClientTlsConfig::new();
    tls = match certificates.authority() {
        Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
        // The driver's own way to the same store.
        None => tls.with_native_roots(),
    };
    if let Some((certificate, key)) = certificates.identity() {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    Ok(Some(tls))
}

fn take_login(address: &mut Address) -> Result<Option<Login>> {
    let password = address.take_password()?;
    match (address.user.take(), password.is_some()) {
        (Some(user), true) => Ok(Some(Login { user, password })),
        (None, false) => Ok(None),
        _ => Err(Error::invalid(
            "an etcd user needs a password, and a password a user: etcd://USER:PASSWORD@HOST",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str, ttl: Duration) -> Result<Config> {
        Config::new(Address::parse(url).unwrap(), ttl)
    }

    #[test]
    fn the_lease_outlives_the_ttl_and_is_whole_seconds() {
        for (ttl_ms, lease) in [(2000, 3), (2400, 3), (2600, 4), (10_000, 11), (60_000, 66)] {
            let times = Times::new(Duration::from_millis(ttl_ms)).unwrap();
            assert_eq!(times.lease_seconds, lease, "{ttl_ms} ms");
            assert!(times.request * 4 < times.ttl);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let ttl = Duration::from_secs(10);
        for (url, why) in [
            ("etcd://", "at least one"),
            ("etcd://h/path", "namespace"),
            ("etcd://user@h", "password"),
            ("etcd://h?cert=x", "cert and key"),
            ("etcd://h?ca=/no/such/file", "cannot read"),
            ("etcd://h?style=plain", "queue"),
            ("etcd://h?stile=plain", "no parameter"),
            ("etcd://h?prefix=//", "such as '/'"),
            ("etcd://h?prefix=/a//b", "such as '/'"),
        ] {
            let error = config(url, ttl).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
        let error = config("etcd://h", Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("whole seconds") && error.contains("2s"), "{error}");
        for prefix in ["", "/", "/locks/", "locks/", "a/b-"] {
            assert_eq!(config(&format!("etcd://h?prefix={prefix}"), ttl).unwrap().prefix, prefix);
        }
        let config = config("etcd://ann:secret@h1,h2:99?tls", ttl).unwrap();
        assert_eq!(config.endpoints[1].uri().to_string(), "https://h2:99/");
        assert!(!format!("{config:?}").contains("secret"));
    }
}
