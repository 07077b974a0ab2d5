//! One Redis server, or several that know nothing of each other.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::Path;

use rustix::process::Signal;

use crate::error::{Result, or_panic};
use crate::redis_tls::RedisTls;
use crate::server::{Launch, Server};
use crate::{install, port, resp};

/// A Redis server which keeps nothing on disk unless told to.
#[derive(Debug)]
pub struct Redis {
    server: Server,
}

impl Redis {
    /// Starts a server.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// Starts a server with more arguments, such as `["--appendonly", "yes"]`.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_with(args: &[&str]) -> Redis {
        let redis = or_panic(port::retry_when_taken(|| {
            let server = spawn(port::free()?, args)?;
            server.wait_ready()?;
            Ok(server)
        }));
        Redis { server: redis }
    }

    /// Starts independent servers.
    ///
    /// # Panics
    /// With the tail of a log, when a server does not answer within 60 s.
    #[track_caller]
    pub fn start_many(count: usize) -> Vec<Redis> {
        or_panic(port::retry_when_taken(|| {
            let ports = port::free_many(count)?;
            let servers = ports.into_iter().map(|port| spawn(port, &[])).collect::<Result<Vec<_>>>()?;
            servers.iter().try_for_each(Server::wait_ready)?;
            Ok(servers.into_iter().map(|server| Redis { server }).collect())
        }))
    }

    /// Starts a server which speaks TLS only, with a private authority, and to one user only.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls() -> RedisTls {
        Redis::start_tls_with(&[])
    }

    /// Starts a server which speaks TLS only, to one user only, with more arguments.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls_with(args: &[&str]) -> RedisTls {
        RedisTls::start(args)
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Spawns a server on a port.
pub(crate) fn spawn(port: u16, args: &[&str]) -> Result<Server> {
    Server::spawn(|directory| {
        let mut all = strings(&["--port", &port.to_string()]);
        all.extend(common_arguments(directory));
        all.extend(strings(args));
        Ok(Launch {
            program: install::program("redis-server", "redis")?,
            args: all,
            user: None,
            stop: Signal::TERM,
            port,
            ready: Box::new(move || answers(port)),
        })
    })
}

/// The arguments of every Redis server.
pub(crate) fn common_arguments(directory: &Path) -> Vec<OsString> {
    let mut args = strings(&["--bind", "127.0.0.1", "--save", ""]);
    // A replica is in step at once instead of after the five seconds Redis waits for others to join.
    args.extend(strings(&["--repl-diskless-sync-delay", "0"]));
    args.extend([OsString::from("--dir"), directory.into()]);
    args
}

pub(crate) fn strings(args: &[&str]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

/// Whether the server answers a PING, be it by asking for a password.
pub(crate) fn answers(port: u16) -> std::result::Result<(), String> {
    match resp::call(port, &["PING"]) {
        Err(error) if !error.to_string().starts_with("NOAUTH") => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_taken_port_is_recognised() {
        let taken = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let outcome = spawn(port, &[]).and_then(|server| server.wait_ready());
        assert!(matches!(outcome, Err(Error::PortTaken(_))), "{outcome:?}");
    }
}
