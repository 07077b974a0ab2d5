//! A Redis cluster of three masters.

use crate::error::{Result, Trying, or_panic};
use crate::server::{Server, Servers};
use crate::{port, redis, resp};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// Three masters without replicas, which together own all slots.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Servers,
}

impl RedisCluster {
    /// Starts the three servers; returns when each says that the cluster is well.
    ///
    /// # Panics
    /// With the tail of a log, when that takes more than 60 s.
    #[track_caller]
    pub fn start() -> RedisCluster {
        or_panic(port::retry_when_taken(|| {
            let ports = port::free_many(2 * MASTERS)?;
            let (client_ports, bus_ports) = ports.split_at(MASTERS);
            let pairs = || client_ports.iter().copied().zip(bus_ports.iter().copied());
            let servers = Servers::spawn(pairs(), |(port, bus_port)| spawn(port, bus_port))?;
            servers.wait_ready()?;
            // All before the first handshake: a member who knows another may not choose its epoch.
            client_ports.iter().enumerate().try_for_each(|(index, &port)| take_slots(index, port))?;
            for &port in client_ports {
                pairs().filter(|(other, _)| *other != port).try_for_each(|other| meet(port, other))?;
            }
            servers.iter().try_for_each(|server| server.wait_for(|| is_well(server.port())))?;
            Ok(RedisCluster { servers })
        }))
    }

    /// `redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.servers.addresses())
    }

    /// The masters, dead ones included.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }
}

fn spawn(port: u16, bus_port: u16) -> Result<Server> {
    let bus_port = bus_port.to_string();
    // A member counts as dead after a second; without it, the others go on to serve their slots.
    let args = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus_port],
        ["--cluster-node-timeout", "1000"],
        ["--cluster-require-full-coverage", "no"],
    ];
    redis::spawn(port, args.as_flattened())
}

/// Gives a member its share of the slots.
fn take_slots(index: usize, port: u16) -> Result<()> {
    let (first, after_last) = (SLOTS * index / MASTERS, SLOTS * (index + 1) / MASTERS);
    let (first, last) = (first.to_string(), (after_last - 1).to_string());
    call(port, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
    // Different from the start, so that no two members have to fight it out.
    call(port, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])
}

fn meet(port: u16, (other, other_bus): (u16, u16)) -> Result<()> {
    call(port, &["CLUSTER", "MEET", "127.0.0.1", &other.to_string(), &other_bus.to_string()])
}

fn call(port: u16, command: &[&str]) -> Result<()> {
    resp::call(port, command).trying(format!("call {command:?}")).map(|_| ())
}

fn is_well(port: u16) -> std::result::Result<(), String> {
    let info = resp::call(port, &["CLUSTER", "INFO"]).map_err(|error| error.to_string())?;
    let has = |what: &str| info.lines().any(|line| line.trim_end() == what);
    let known = format!("cluster_known_nodes:{MASTERS}");
    if has("cluster_state:ok") && has("cluster_slots_ok:16384") && has(&known) { Ok(()) } else { Err(info) }
}
