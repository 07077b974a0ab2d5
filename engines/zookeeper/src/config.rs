//! The settings that an address gives.

use crate::keys::Naming;
use crate::protocol::Acl;
use lockkeeper_core::engine::Address;
use lockkeeper_core::{Error, Result};
use lockkeeper_tls_common::{Check, Tls};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

const DEFAULT_PORT: u16 = 2181;
const DEFAULT_TLS_PORT: u16 = 2281;
const ALL_PERMISSIONS: i32 = 31;
const READ_PERMISSION: i32 = 1;

/// The styles of this engine, the default first.
pub(crate) const QUEUE: &str = "queue";
pub(crate) const PLAIN: &str = "plain";

/// Everything a session and its locks need to know.
pub(crate) struct Settings {
    pub(crate) style: &'static str,
    pub(crate) servers: Vec<(String, u16)>,
    /// Empty, or a path without a slash at its end.
    pub(crate) chroot: String,
    /// Schemes and secrets.
    pub(crate) auth: Vec<(String, String)>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) naming: Naming,
    /// The session timeout to request: the TTL.
    pub(crate) timeout: Duration,
    pub(crate) tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the secrets.
        write!(f, "Settings({:?})", self.servers)
    }
}

impl Settings {
    pub(crate) fn from_address(mut address: Address, ttl: Duration) -> Result<Self> {
        let style = address.take_style(&[QUEUE, PLAIN])?;
        let auth = auth(&mut address)?;
        let acl = acl(&mut address, !auth.is_empty())?;
        let naming = address.take_parsed("names", "curator, curator-rw or kazoo")?.unwrap_or(Naming::Curator);
        let tls = tls(&mut address)?;
        address.finish()?;
        let default_port = if tls.is_some() { DEFAULT_TLS_PORT } else { DEFAULT_PORT };
        let servers: Vec<_> =
            address.hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(default_port))).collect();
        if servers.is_empty() {
            return Err(Error::invalid("no server in the address: write zookeeper://host1,host2/chroot"));
        }
        let chroot = address.path.trim_end_matches('/').to_owned();
        if chroot.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::invalid(format!("bad chroot {chroot:?}: write it like /team/locks")));
        }
        Ok(Self { style, servers, chroot, auth, acl, naming, timeout: ttl, tls })
    }
}

/// `user:password@` in the address, or `auth=SCHEME:SECRET`.
fn auth(address: &mut Address) -> Result<Vec<(String, String)>> {
    let mut auth = Vec::new();
    if let Some(user) = &address.user {
        let password = address.password.clone().unwrap_or_default();
        auth.push(("digest".to_owned(), format!("{user}:{password}")));
    }
    if let Some(text) = address.take("auth") {
        let (scheme, secret) = text.split_once(':').ok_or_else(|| {
            Error::invalid("bad parameter auth: expected SCHEME:SECRET, such as digest:user:password")
        })?;
        auth.push((scheme.to_owned(), secret.to_owned()));
    }
    Ok(auth)
}

/// Who may touch the nodes we make.
fn acl(address: &mut Address, authenticated: bool) -> Result<Vec<Acl>> {
    let everybody = |permissions| Acl { permissions, scheme: "world", id: "anyone" };
    let creator = Acl { permissions: ALL_PERMISSIONS, scheme: "auth", id: "" };
    let acl = match address.take("acl").as_deref() {
        None | Some("open") => return Ok(vec![everybody(ALL_PERMISSIONS)]),
        Some("creator") => vec![creator],
        Some("creator-read") => vec![creator, everybody(READ_PERMISSION)],
        Some(other) => {
            return Err(Error::invalid(format!(
                "bad parameter acl={other}: expected open, creator or creator-read"
            )));
        }
    };
    if authenticated {
        Ok(acl)
    } else {
        Err(Error::invalid("acl=creator needs a user: give user:password@ or auth=digest:…"))
    }
}

/// `tls`, with `ca` for another authority than the system's, and `cert` and `key` if the server wants a client certificate.
fn tls(address: &mut Address) -> Result<Option<TlsConnector>> {
    let wanted = address.take_flag("tls")?;
    let certificates = Tls::take(address, ["ca", "cert", "key"])?;
    match wanted {
        true => Ok(Some(TlsConnector::from(Arc::new(certificates.client(Check::Name)?)))),
        false if certificates.is_empty() => Ok(None),
        false => Err(Error::invalid("the parameters ca, cert and key need tls=true")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> Result<Settings> {
        Settings::from_address(Address::parse(url)?, Duration::from_secs(10))
    }

    #[test]
    fn an_address_gives_servers_chroot_and_authentication() {
        let settings =
            settings("zookeeper://ann:p%40ss@a,b:2182/team/locks/?acl=creator&style=plain").unwrap();
        assert_eq!(settings.servers, [("a".to_owned(), 2181), ("b".to_owned(), 2182)]);
        assert_eq!(settings.chroot, "/team/locks");
        assert_eq!(settings.auth, [("digest".to_owned(), "ann:p@ss".to_owned())]);
        assert_eq!(settings.acl[0].scheme, "auth");
        assert_eq!(settings.style, PLAIN);
        assert_eq!(settings.timeout, Duration::from_secs(10));
    }

    #[test]
    fn a_bad_address_is_refused_with_the_reason() {
        for (url, why) in [
            ("zookeeper:///x", "no server"),
            ("zookeeper://a//b", "bad chroot"),
            ("zookeeper://a?acl=creator", "needs a user"),
            ("zookeeper://a?acl=mine", "open, creator"),
            ("zookeeper://a?auth=digest", "SCHEME:SECRET"),
            ("zookeeper://a?names=java", "curator-rw"),
            ("zookeeper://a?ca=system", "tls=true"),
            ("zookeeper://a?tls&ca=nowhere.pem", "nowhere.pem"),
            ("zookeeper://a?style=row", "queue, plain"),
            ("zookeeper://a?colour=red", "'colour'"),
        ] {
            let error = settings(url).map(drop).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
