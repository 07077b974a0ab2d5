//! One etcd server, or a cluster.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::Signal;

use crate::error::{Result, or_panic};
use crate::etcd_tls::EtcdTls;
use crate::server::{Launch, Server, Servers};
use crate::{http, install, port};

/// An etcd cluster, be it of one.
#[derive(Debug)]
pub struct Etcd {
    servers: Servers,
}

impl Etcd {
    /// Starts one server.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start() -> Etcd {
        Etcd::cluster(1)
    }

    /// Starts one server that speaks TLS only.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls() -> EtcdTls {
        EtcdTls::start()
    }

    /// Starts a cluster.
    ///
    /// # Panics
    /// With the tail of a log, when a server does not answer within 60 s.
    #[track_caller]
    pub fn cluster(size: usize) -> Etcd {
        Etcd::cluster_with(size, &[])
    }

    /// Starts a cluster whose servers get more arguments.
    ///
    /// `["--unsafe-no-fsync"]` is quicker on a slow disk: data outlive a killed server, but would not
    /// outlive a crashed machine.
    ///
    /// # Panics
    /// With the tail of a log, when a server does not answer within 60 s.
    #[track_caller]
    pub fn cluster_with(size: usize, args: &[&str]) -> Etcd {
        or_panic(port::retry_when_taken(|| {
            let members = members(size)?;
            let servers = Servers::spawn(&members, |member| spawn(member, &members, args))?;
            servers.wait_ready()?;
            Ok(Etcd { servers })
        }))
    }

    /// `etcd://127.0.0.1:PORT,127.0.0.1:PORT,…`
    pub fn url(&self) -> String {
        format!("etcd://{}", self.servers.addresses())
    }

    /// The members, dead ones included.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// What a member tells of itself at `/metrics`.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn metrics(&self, member: usize) -> String {
        match http::get(self.servers[member].port(), "/metrics") {
            Ok(text) => text,
            Err(error) => panic!("etcd member {member} does not tell its metrics: {error}"),
        }
    }

    /// Which member leads; none during an election.
    pub fn leader(&self) -> Option<usize> {
        self.servers.iter().position(|server| {
            let metrics = http::get(server.port(), "/metrics").unwrap_or_default();
            metrics.lines().any(|line| line == "etcd_server_is_leader 1")
        })
    }

    /// Kills the leader and returns which member it was.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn kill_leader(&self) -> usize {
        let leader = self.leader().expect("an etcd member leads");
        self.servers[leader].kill();
        leader
    }
}

struct Member {
    name: String,
    client_port: u16,
    peer_port: u16,
}

impl Member {
    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }

    fn client_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }
}

fn members(size: usize) -> Result<Vec<Member>> {
    let ports = port::free_many(2 * size)?;
    let pairs = ports.chunks(2).enumerate();
    Ok(pairs
        .map(|(i, pair)| Member { name: format!("member-{i}"), client_port: pair[0], peer_port: pair[1] })
        .collect())
}

fn spawn(member: &Member, all: &[Member], args: &[&str]) -> Result<Server> {
    let port = member.client_port;
    Server::spawn(|directory| {
        Ok(Launch {
            program: install::program("etcd", "etcd")?,
            args: arguments(member, all, directory, args),
            user: None,
            stop: Signal::TERM,
            port,
            ready: Box::new(move || is_healthy(port)),
        })
    })
}

fn arguments(member: &Member, all: &[Member], directory: &Path, more: &[&str]) -> Vec<OsString> {
    let (client_url, peer_url) = (member.client_url(), member.peer_url());
    let cluster: Vec<String> =
        all.iter().map(|member| format!("{}={}", member.name, member.peer_url())).collect();
    let mut args = vec![OsString::from("--data-dir"), directory.join("data").into()];
    let ours = [
        ["--name", &member.name],
        ["--listen-client-urls", &client_url],
        ["--advertise-client-urls", &client_url],
        ["--listen-peer-urls", &peer_url],
        ["--initial-advertise-peer-urls", &peer_url],
        ["--initial-cluster", &cluster.join(",")],
        ["--initial-cluster-state", "new"],
        ["--logger", "zap"],
        ["--log-level", "warn"],
    ];
    args.extend(ours.as_flattened().iter().chain(more).map(OsString::from));
    args
}

/// Whether a read through the cluster's majority succeeds.
pub(crate) fn is_healthy(port: u16) -> std::result::Result<(), String> {
    let health = http::get(port, "/health").map_err(|error| error.to_string())?;
    if health.contains(r#""health":"true""#) { Ok(()) } else { Err(health) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_taken_port_is_recognised() {
        let taken = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut members = members(1).unwrap();
        members[0].client_port = port;
        let outcome = spawn(&members[0], &members, &[]).and_then(|server| server.wait_ready());
        assert!(matches!(outcome, Err(Error::PortTaken(_))), "{outcome:?}");
    }
}
