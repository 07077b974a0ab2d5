//! One ZooKeeper server, or an ensemble.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Result, Trying, or_panic};
use crate::server::{Launch, Server, Servers};
use crate::zookeeper_tls::ZooKeeperTls;
use crate::{install, port};

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Debian's package has no start script; these are what a server needs, with a log to standard error.
const JARS: [&str; 8] = [
    "zookeeper.jar",
    "zookeeper-jute.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "netty-all.jar",
    "metrics-core.jar",
    "snappy-java.jar",
    "commons-io.jar",
];
/// A small and quick virtual machine, which leaves no files in the temporary folder when it is killed.
const JAVA_OPTIONS: [&str; 5] = [
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
];
const MAIN_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// Ticks of 200 ms allow sessions from 1 s on, and elect a leader quickly.
pub(crate) const SETTINGS: &str = "\
tickTime=200
initLimit=25
syncLimit=25
minSessionTimeout=1000
maxSessionTimeout=60000
admin.enableServer=false
4lw.commands.whitelist=*
clientPortAddress=127.0.0.1
maxClientCnxns=0
";

/// A ZooKeeper ensemble, be it of one.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Servers,
}

impl ZooKeeper {
    /// Starts one server.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start() -> ZooKeeper {
        ZooKeeper::ensemble(1)
    }

    /// Starts one server that speaks TLS, too, on a port of its own.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls() -> ZooKeeperTls {
        ZooKeeperTls::start()
    }

    /// Starts an ensemble.
    ///
    /// # Panics
    /// With the tail of a log, when a server does not answer within 60 s.
    #[track_caller]
    pub fn ensemble(size: usize) -> ZooKeeper {
        or_panic(port::retry_when_taken(|| {
            let members = members(size)?;
            let servers = Servers::spawn(&members, |member| spawn(member, &members))?;
            servers.wait_ready()?;
            Ok(ZooKeeper { servers })
        }))
    }

    /// `zookeeper://127.0.0.1:PORT,127.0.0.1:PORT,…`
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.servers.addresses())
    }

    /// The members, dead ones included.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// A member's answer to a command of four letters, such as `mntr`.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn four_letter(&self, member: usize, command: &str) -> String {
        match ask(self.servers[member].port(), command) {
            Ok(answer) => answer,
            Err(error) => panic!("ZooKeeper member {member} does not answer {command:?}: {error}"),
        }
    }

    /// Which member leads; none during an election.
    pub fn leader(&self) -> Option<usize> {
        self.servers.iter().position(|server| {
            let answer = ask(server.port(), "srvr").unwrap_or_default();
            answer.contains("Mode: leader") || answer.contains("Mode: standalone")
        })
    }

    /// Kills the leader and returns which member it was.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn kill_leader(&self) -> usize {
        let leader = self.leader().expect("a ZooKeeper member leads");
        self.servers[leader].kill();
        leader
    }
}

struct Member {
    id: usize,
    client_port: u16,
    peer_port: u16,
    election_port: u16,
}

fn members(size: usize) -> Result<Vec<Member>> {
    let ports = port::free_many(3 * size)?;
    let triples = ports.chunks(3).zip(1..);
    Ok(triples
        .map(|(p, id)| Member { id, client_port: p[0], peer_port: p[1], election_port: p[2] })
        .collect())
}

fn spawn(member: &Member, all: &[Member]) -> Result<Server> {
    let port = member.client_port;
    Server::spawn(|directory| {
        Ok(Launch {
            program: install::program("java", "zookeeper")?,
            args: arguments(&configure(member, all, directory)?, &[])?,
            user: None,
            stop: Signal::TERM,
            port,
            ready: Box::new(move || serves(port)),
        })
    })
}

/// Writes the configuration and returns its path.
fn configure(member: &Member, all: &[Member], directory: &Path) -> Result<PathBuf> {
    let data = directory.join("data");
    let mut text = format!("{SETTINGS}dataDir={}\nclientPort={}\n", data.display(), member.client_port);
    if all.len() > 1 {
        for Member { id, peer_port, election_port, .. } in all {
            text += &format!("server.{id}=127.0.0.1:{peer_port}:{election_port}\n");
        }
    }
    let path = directory.join("zoo.cfg");
    fs::create_dir(&data).trying("create the data directory")?;
    fs::write(data.join("myid"), member.id.to_string()).trying("write myid")?;
    fs::write(&path, text).trying("write zoo.cfg")?;
    Ok(path)
}

/// What Java is to run, with these libraries besides.
pub(crate) fn arguments(configuration: &Path, more_jars: &[&str]) -> Result<Vec<OsString>> {
    let jars =
        JARS.iter().chain(more_jars).map(|jar| install::jar(jar, "zookeeper")).collect::<Result<Vec<_>>>()?;
    let class_path = env::join_paths(jars).expect("Debian's paths hold no colon");
    let mut args: Vec<OsString> = JAVA_OPTIONS.map(OsString::from).into();
    args.extend(["-cp".into(), class_path, MAIN_CLASS.into(), configuration.into()]);
    Ok(args)
}

/// Whether the server has found its place in the ensemble.
pub(crate) fn serves(port: u16) -> std::result::Result<(), String> {
    let answer = ask(port, "srvr").map_err(|error| error.to_string())?;
    if answer.contains("Mode: ") { Ok(()) } else { Err(answer) }
}

fn ask(port: u16, command: &str) -> io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(command.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_taken_port_is_recognised() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut members = members(1).unwrap();
        members[0].client_port = port;
        let outcome = spawn(&members[0], &members).and_then(|server| server.wait_ready());
        assert!(matches!(outcome, Err(Error::PortTaken(_))), "{outcome:?}");
    }

    #[test]
    fn a_taken_election_port_is_recognised() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut members = members(3).unwrap();
        members[0].election_port = taken.local_addr().unwrap().port();
        let outcome = spawn(&members[0], &members).and_then(|server| server.wait_ready());
        assert!(matches!(outcome, Err(Error::PortTaken(_))), "{outcome:?}");
    }
}
