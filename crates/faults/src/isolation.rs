//! Cuts one member of a cluster off from the others while clients reach it, or one worker off from the servers while the other
//! workers go on, by routes of the cell's own network.
//!
//! A packet that no route takes is dropped. Connections are told by their ports: those that the member has are cut, and
//! new ones between members, which get ports from a range of their own meanwhile, are refused. Of a worker, what its proxies
//! send is dropped, to it and to the servers: nobody's packets are acknowledged, and new connections get no reply.

use crate::apart::run;
use crate::network::Network;
use crate::{Error, Result};
use lockkeeper_testkit::Server;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Where the kernel takes the ports of new connections from.
const PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const USUAL_PORTS: &str = "32768 60999";
/// Each cut has this number of ports for new connections from here on, for those of an earlier cut stay.
const FIRST: u32 = 61_000;
const WIDTH: u32 = 250;
const RANGES: u32 = 16;
/// These come first.
const PREFERENCE: &str = "10";

/// A TCP socket, by its ports.
struct Socket {
    listens: bool,
    local: u16,
    peer: u16,
}

/// Makes room for rules before that of local addresses.
pub(crate) fn prepare() -> Result<()> {
    rule(&["add", "pref", "100", "lookup", "local"])?;
    rule(&["del", "pref", "0"])?;
    Ok(fs::write(PORTS, USUAL_PORTS)?)
}

/// Cuts a worker off.
pub(crate) fn cut_worker(network: &Network) -> Result<()> {
    for port in network.ports() {
        drop_packets(Some(&port.to_string()), None)?;
    }
    // What the proxies have now is all there is: they get no new connection.
    for (local, peer) in network.ports_to_servers() {
        drop_both_ways(Some(&local.to_string()), Some(&peer.to_string()))?;
    }
    Ok(())
}

/// Cuts the member off.
pub(crate) fn cut_member(member: &Server, all: &[&Server]) -> Result<()> {
    static CUTS: AtomicU32 = AtomicU32::new(0);
    let first = FIRST + WIDTH * (CUTS.fetch_add(1, Relaxed) % RANGES);
    let last = first + WIDTH - 1;
    fs::write(PORTS, format!("{first} {last}"))?;
    let new = format!("{first}-{last}");
    for server in all {
        for socket in sockets(server)?.into_iter().filter(|socket| socket.listens) {
            drop_both_ways(Some(&new), Some(&socket.local.to_string()))?;
        }
    }
    let sockets = sockets(member)?;
    for socket in &sockets {
        let (local, peer) = (socket.local.to_string(), socket.peer.to_string());
        drop_both_ways(Some(&local), Some(&peer).filter(|_| !socket.listens).map(String::as_str))?;
    }
    Ok(())
}

/// Lets everything pass again.
pub(crate) fn heal() -> Result<()> {
    fs::write(PORTS, USUAL_PORTS)?;
    while rule(&["del", "pref", PREFERENCE]).is_ok() {}
    Ok(())
}

/// Between these ports.
fn drop_both_ways(one: Option<&str>, other: Option<&str>) -> Result<()> {
    drop_packets(one, other).and_then(|()| drop_packets(other, one))
}

fn drop_packets(from: Option<&str>, to: Option<&str>) -> Result<()> {
    let mut words = vec!["add", "pref", PREFERENCE, "ipproto", "tcp"];
    from.iter().for_each(|from| words.extend(["sport", from]));
    to.iter().for_each(|to| words.extend(["dport", to]));
    words.push("blackhole");
    rule(&words)
}

fn rule(words: &[&str]) -> Result<()> {
    let words: Vec<&OsStr> = std::iter::once(&"rule").chain(words).map(|word| OsStr::new(*word)).collect();
    run("ip", &words)
}

/// What the server has besides its connections to clients.
fn sockets(server: &Server) -> Result<Vec<Socket>> {
    let output = Command::new("ss").args(["-H", "-t", "-a", "-n", "-p"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let owner = format!("pid={},", server.pid());
    let found: Vec<Socket> = text.lines().filter(|line| line.contains(&owner)).filter_map(socket).collect();
    if found.is_empty() {
        return Err(Error::new("ss does not show the sockets of a server"));
    }
    let port = server.port();
    Ok(found.into_iter().filter(|socket| socket.local != port && socket.peer != port).collect())
}

/// A line as `ESTAB 0 0 127.0.0.1:2380 127.0.0.1:40000 users:((…))`.
fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_whitespace();
    let listens = words.next()? == "LISTEN";
    let mut port = |nth| words.nth(nth)?.rsplit(':').next().map(|port: &str| port.parse().unwrap_or(0));
    Some(Socket { listens, local: port(2)?, peer: port(0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read() {
        let listening =
            socket("LISTEN 0 4096 127.0.0.1:2380 0.0.0.0:* users:((\"etcd\",pid=7,fd=3))").unwrap();
        assert_eq!((listening.listens, listening.local, listening.peer), (true, 2380, 0));
        let one = socket("ESTAB 0 0 127.0.0.1:40000   127.0.0.1:2380 users:((\"etcd\",pid=7,fd=3))").unwrap();
        assert_eq!((one.listens, one.local, one.peer), (false, 40000, 2380));
    }
}
