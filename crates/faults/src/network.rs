//! The network of one worker: a proxy in front of every server that its URL names.

use lockkeeper_testkit::Proxy;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The ports that servers have unless a URL says otherwise, of the engines whose URLs may name a proxy instead.
const PORTS: [(&str, u16); 8] = [
    ("redis", 6379),
    ("redlock", 6379),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("mariadb", 3306),
    ("zookeeper", 2181),
    ("etcd", 2379),
];
/// What a URL has if the servers' names are checked: a proxy on this machine would not do.
const ENCRYPTED: [&str; 6] = ["tls", "ca=", "sslmode=verify", "ssl-mode=verify", "sslrootcert=", "ssl-ca="];

/// How long one of the addresses of a name may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Proxies that carry what a worker sends and gets.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) url: String,
    proxies: Vec<Proxy>,
}

impl Network {
    /// In front of the servers that the URL names; `None` where it names none, or where a proxy cannot take their place: over
    /// TLS, behind Sentinel, in a Cluster, for files.
    pub(crate) fn in_front_of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let port = PORTS.iter().find(|(known, _)| *known == scheme)?.1;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if ENCRYPTED.iter().any(|sign| path.contains(sign)) {
            return None;
        }
        let (user, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        let servers: Option<Vec<SocketAddr>> = hosts.split(',').map(|host| resolve(host, port)).collect();
        let proxies: Vec<Proxy> = servers?.into_iter().map(Proxy::start).collect();
        let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        let user = user.map_or(String::new(), |user| format!("{user}@"));
        Some(Self { url: format!("{scheme}://{user}{}{path}", hosts.join(",")), proxies })
    }

    /// The ports of the proxies.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.proxies.iter().map(|proxy| proxy.addr().port())
    }

    /// The ports of the proxies' connections to the servers, and the servers'.
    pub(crate) fn ports_to_servers(&self) -> impl Iterator<Item = (u16, u16)> {
        self.proxies.iter().flat_map(Proxy::ports_to_server)
    }

    /// Does something to the way to every server.
    pub(crate) fn each(&self, act: impl Fn(&Proxy)) {
        self.proxies.iter().for_each(act);
    }
}

fn resolve(host: &str, port: u16) -> Option<SocketAddr> {
    let has_port = host.parse::<SocketAddr>().is_ok()
        || host.rsplit_once(':').is_some_and(|(_, end)| end.parse::<u16>().is_ok());
    let host = if has_port { host.to_owned() } else { format!("{host}:{port}") };
    let addresses: Vec<SocketAddr> = host.to_socket_addrs().ok()?.collect();
    let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, CONNECT).is_ok();
    // Only if there is a choice: a server may count connections that say nothing.
    let found = if addresses.len() > 1 { addresses.iter().find(listens) } else { None };
    found.or(addresses.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_of_a_url_gets_a_proxy() {
        let network = Network::in_front_of("postgres://me@127.0.0.1/database?style=row").expect("a server");
        assert_eq!(network.url, format!("postgres://me@{}/database?style=row", network.proxies[0].addr()));
        let nodes = Network::in_front_of("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").expect("servers");
        assert_eq!(nodes.proxies.len(), 3);
    }

    #[test]
    fn where_a_proxy_cannot_be_there_is_none() {
        for url in
            ["file:/tmp/locks", "rediss://host", "redis+sentinel://s1/name", "redis://127.0.0.1?ca=/a.pem"]
        {
            assert!(Network::in_front_of(url).is_none(), "{url}");
        }
    }
}
