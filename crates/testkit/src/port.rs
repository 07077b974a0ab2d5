//! Free ports of 127.0.0.1, and who listens on one.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Error, Result, Trying};

const LOWEST: u16 = 10_000;
const STARTS: u32 = 5;

/// Starts again with other ports when someone else took one of the chosen ports.
pub(crate) fn retry_when_taken<T>(start: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..STARTS {
        match start() {
            Err(Error::PortTaken(_)) => continue,
            outcome => return outcome,
        }
    }
    start()
}

/// A port nobody listens on.
pub(crate) fn free() -> Result<u16> {
    Ok(free_many(1)?[0])
}

/// Different ports nobody listens on.
pub(crate) fn free_many(count: usize) -> Result<Vec<u16>> {
    // All are held until all are chosen, so that they differ.
    let held: Vec<TcpListener> =
        (0..count).map(|_| bind_free()).collect::<std::io::Result<_>>().trying("find a free port")?;
    held.iter().map(|listener| Ok(listener.local_addr().trying("find a free port")?.port())).collect()
}

/// Binds a random port below the range of outgoing connections.
///
/// Inside that range, a client which tries again and again to reach a killed server may be given the
/// server's own port as its source: it would connect to itself, and keep the server from restarting.
fn bind_free() -> std::io::Result<TcpListener> {
    let below = lowest_outgoing_port();
    if below > LOWEST + 1_000 {
        for _ in 0..100 {
            let port = LOWEST + (random() % u64::from(below - LOWEST)) as u16;
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                return Ok(listener);
            }
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

fn lowest_outgoing_port() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(0)
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether the process itself listens on the port: the answer to a probe may come from a stranger who
/// took the port first.
///
/// True when the system does not let us look into the process.
pub(crate) fn is_held_by(pid: u32, port: u16) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    let listening = listening_sockets(port);
    files.flatten().filter_map(|file| fs::read_link(file.path()).ok()).any(|link| {
        let link = link.to_string_lossy();
        listening.iter().any(|inode| link == format!("socket:[{inode}]"))
    })
}

/// The inodes of the sockets which listen on the port.
fn listening_sockets(port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let port_in_hex = format!(":{port:04X}");
    let mut inodes = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.len() > 9 && fields[1].ends_with(&port_in_hex) && fields[3] == LISTEN {
                inodes.push(fields[9].to_string());
            }
        }
    }
    inodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let mut ports = free_many(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }

    #[test]
    fn a_listener_is_found_by_its_process() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_held_by(std::process::id(), port));
        drop(listener);
        assert!(!is_held_by(std::process::id(), port));
    }

    #[test]
    fn a_taken_port_is_tried_again_and_another_failure_is_not() {
        let tries = std::cell::Cell::new(0);
        let fail_with = |error: fn(String) -> Error| {
            tries.set(0);
            retry_when_taken(|| -> Result<()> {
                tries.set(tries.get() + 1);
                Err(error(String::new()))
            })
        };
        assert!(matches!(fail_with(Error::PortTaken), Err(Error::PortTaken(_))));
        assert_eq!(tries.get(), STARTS);
        assert!(matches!(fail_with(Error::NotReady), Err(Error::NotReady(_))));
        assert_eq!(tries.get(), 1);
    }
}
