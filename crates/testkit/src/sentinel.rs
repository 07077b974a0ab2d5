//! A Redis master with two replicas, watched by three sentinels.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Result, Trying, or_panic};
use crate::server::{Launch, Server, Servers};
use crate::wait::wait_until;
use crate::{install, port, redis, resp};

/// The name under which the sentinels know the master.
const MASTER: &str = "m";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(60);

/// One master, two replicas and three sentinels, who declare the master dead after a second.
#[derive(Debug)]
pub struct Sentinel {
    sentinels: Servers,
    servers: Servers,
}

impl Sentinel {
    /// Starts the six servers; returns when every sentinel could lead a failover.
    ///
    /// # Panics
    /// With the tail of a log, when that takes more than 60 s.
    #[track_caller]
    pub fn start() -> Sentinel {
        or_panic(port::retry_when_taken(|| {
            let ports = port::free_many(1 + REPLICAS + SENTINELS)?;
            let (data_ports, sentinel_ports) = ports.split_at(1 + REPLICAS);
            let master_port = data_ports[0];
            let servers = Servers::spawn(data_ports, |&port| spawn_data_server(port, master_port))?;
            servers.wait_ready()?;
            // A sentinel looks for replicas at once, and then every ten seconds only.
            servers[0].wait_for(|| are_connected(master_port))?;
            let sentinels = Servers::spawn(sentinel_ports, |&port| spawn_sentinel(port, master_port))?;
            sentinels.wait_ready()?;
            sentinels.iter().try_for_each(|sentinel| sentinel.wait_for(|| can_fail_over(sentinel.port())))?;
            Ok(Sentinel { sentinels, servers })
        }))
    }

    /// `redis+sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/m`
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{MASTER}", self.sentinels.addresses())
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The servers with the data: the first master, then its first replicas.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The master's port, as the first sentinel that answers tells it.
    ///
    /// # Panics
    /// When none answers.
    #[track_caller]
    pub fn master_port(&self) -> u16 {
        let mut answers = self.sentinels.iter().filter_map(master_port_by);
        answers.next().expect("a sentinel tells the master's port")
    }

    /// The master, as the first sentinel that answers tells it.
    ///
    /// # Panics
    /// When none answers.
    #[track_caller]
    pub fn master(&self) -> &Server {
        let port = self.master_port();
        self.servers.iter().find(|server| server.port() == port).expect("the master is one of ours")
    }

    /// Makes a replica the master, although the master is well, and returns its port.
    ///
    /// # Panics
    /// When not all running sentinels agree on another master, who accepts the role, within 60 s.
    #[track_caller]
    pub fn failover(&self) -> u16 {
        let old_port = self.master_port();
        // Refused while the sentinels are not done with an earlier one.
        wait_until("a sentinel starts a failover", TIMEOUT, || {
            let mut sentinels = self.sentinels.iter();
            sentinels.any(|it| resp::call(it.port(), &["SENTINEL", "FAILOVER", MASTER]).is_ok())
        });
        wait_until("all sentinels know the new master", TIMEOUT, || {
            let running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
            let ports: Vec<Option<u16>> = running.map(master_port_by).collect();
            let new_port = ports[0].filter(|port| *port != old_port);
            new_port.is_some_and(is_master) && ports.iter().all(|port| *port == new_port)
        });
        self.master_port()
    }
}

fn spawn_data_server(port: u16, master_port: u16) -> Result<Server> {
    let master_port = master_port.to_string();
    let follow = ["--replicaof", "127.0.0.1", &master_port];
    let args = if port.to_string() == master_port { &[][..] } else { &follow[..] };
    redis::spawn(port, args)
}

fn spawn_sentinel(port: u16, master_port: u16) -> Result<Server> {
    Server::spawn(|directory| {
        let configuration = directory.join("sentinel.conf");
        let majority = SENTINELS / 2 + 1;
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor {MASTER} 127.0.0.1 {master_port} {majority}\n\
             sentinel down-after-milliseconds {MASTER} 1000\n\
             sentinel failover-timeout {MASTER} 3000\n",
            directory.display()
        );
        fs::write(&configuration, text).trying("write sentinel.conf")?;
        Ok(Launch {
            program: install::program("redis-sentinel", "redis")?,
            args: vec![configuration.into()],
            user: None,
            stop: Signal::TERM,
            port,
            ready: Box::new(move || redis::answers(port)),
        })
    })
}

/// Whether all replicas follow the master.
fn are_connected(master_port: u16) -> std::result::Result<(), String> {
    let info = resp::call(master_port, &["INFO", "replication"]).map_err(|error| error.to_string())?;
    let online = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
    if online.count() == REPLICAS { Ok(()) } else { Err(info) }
}

/// Whether a sentinel sees all other sentinels and all replicas.
fn can_fail_over(port: u16) -> std::result::Result<(), String> {
    let ask = |what| resp::call(port, &["SENTINEL", what, MASTER]).map_err(|error| error.to_string());
    let quorum = ask("CKQUORUM")?;
    let replicas = ask("REPLICAS")?.lines().filter(|line| *line == "slave-priority").count();
    if quorum.starts_with(&format!("OK {SENTINELS} usable")) && replicas == REPLICAS {
        Ok(())
    } else {
        Err(format!("{quorum}; {replicas} replicas"))
    }
}

fn master_port_by(sentinel: &Server) -> Option<u16> {
    let address = resp::call(sentinel.port(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).ok()?;
    address.lines().nth(1)?.parse().ok()
}

fn is_master(port: u16) -> bool {
    resp::call(port, &["ROLE"]).is_ok_and(|role| role.starts_with("master"))
}
