//! One PostgreSQL server, and hot standbys of it.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Result, Trying, or_panic};
use crate::pgbouncer::PgBouncer;
use crate::server::{Launch, Server};
use crate::{certificates, install, port, spawner};

pub(crate) const USER: &str = "postgres";
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A PostgreSQL server; everyone may connect without a password.
///
/// It does not wait for the disk: data outlive a killed server, but would not outlive a crashed machine.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// Starts a server with more settings, such as `["max_connections=20"]`.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_with(settings: &[&str]) -> Postgres {
        or_panic(start(settings, initialise))
    }

    /// Starts a server that speaks TLS, too, with a certificate of an authority of its own: [`ca`](Self::ca).
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls() -> Postgres {
        Postgres::start_tls_with(&[])
    }

    /// Starts a server that speaks TLS, too, with more settings.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls_with(settings: &[&str]) -> Postgres {
        // Relative to the data.
        let tls = ["ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key"];
        or_panic(start(&[&tls, settings].concat(), |data| {
            initialise(data)?;
            let files = certificates::create(data.parent().unwrap_or(data))?;
            spawner::give(&files.key, USER)
        }))
    }

    /// Starts a pooler in front of this server, in this mode: `session`, `transaction` or `statement`.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn pooler(&self, mode: &str) -> PgBouncer {
        PgBouncer::start(self.port(), mode)
    }

    /// The file, in PEM, of the authority that clients of a server with TLS have to trust.
    pub fn ca(&self) -> PathBuf {
        self.directory().join("ca.crt")
    }

    /// The URL of a server with TLS for clients that verify it: the [`url`](Self::url) with its parameters.
    pub fn tls_url(&self) -> String {
        format!("{}?sslmode=verify-full&sslrootcert={}", self.url(), self.ca().display())
    }

    /// Starts a hot standby: a copy which follows this server and answers reads.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn standby(&self) -> Postgres {
        or_panic(start(&[], |data| copy(self.port(), data)))
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port())
    }
}

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn start(settings: &[&str], fill: impl Fn(&Path) -> Result<()>) -> Result<Postgres> {
    port::retry_when_taken(|| {
        let server = spawn(port::free()?, settings, &fill)?;
        server.wait_ready()?;
        Ok(Postgres { server })
    })
}

fn spawn(port: u16, settings: &[&str], fill: impl Fn(&Path) -> Result<()>) -> Result<Server> {
    Server::spawn(|directory| {
        let data = directory.join("data");
        // A server refuses data that others could read.
        DirBuilder::new().mode(0o700).create(&data).trying("create the data directory")?;
        spawner::give(&data, USER)?;
        fill(&data)?;
        launch(port, &data, settings)
    })
}

/// Fills a data directory with an empty database.
fn initialise(data: &Path) -> Result<()> {
    let mut initdb = spawner::bound_command(&install::postgres("initdb")?, Some(USER));
    initdb.args(["--no-sync", "--auth=trust", "--username", USER, "--encoding=UTF8", "--locale=C"]);
    initdb.arg("-D").arg(data);
    spawner::run(initdb)
}

/// Fills a data directory with a copy of a running server's, set up to follow it.
fn copy(primary_port: u16, data: &Path) -> Result<()> {
    let mut backup = spawner::bound_command(&install::postgres("pg_basebackup")?, Some(USER));
    backup.args(["--host=127.0.0.1", "--username", USER, "--port", &primary_port.to_string()]);
    backup.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-D"]).arg(data);
    spawner::run(backup)
}

fn launch(port: u16, data: &Path, settings: &[&str]) -> Result<Launch> {
    let mut args = vec![OsString::from("-D"), data.into(), "-p".into(), port.to_string().into()];
    let ours = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=16MB", "fsync=off"];
    for setting in ours.iter().chain(settings) {
        args.extend(["-c".into(), setting.into()]);
    }
    Ok(Launch {
        program: install::postgres("postgres")?,
        args,
        user: Some(USER),
        // On SIGTERM it would wait until the last client has gone.
        stop: Signal::INT,
        port,
        ready: Box::new(move || logs_in(port).map_err(|error| error.to_string())),
    })
}

/// Opens a session as a client does, up to "ready for query".
pub(crate) fn logs_in(port: u16) -> io::Result<()> {
    const PROTOCOL_3_0: [u8; 4] = [0, 3, 0, 0];
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;

    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = (4 + PROTOCOL_3_0.len() + parameters.len()) as u32;
    stream.write_all(&[&length.to_be_bytes()[..], &PROTOCOL_3_0, parameters].concat())?;
    loop {
        match read_message(&mut stream)? {
            (b'Z', _) => break,
            (b'E', why) => return Err(io::Error::other(String::from_utf8_lossy(&why).replace('\0', " "))),
            _ => {}
        }
    }
    // Says goodbye, or the log would complain.
    stream.write_all(b"X\0\0\0\x04")
}

/// A message's kind and body.
fn read_message(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut body = vec![0; length.saturating_sub(4)];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_taken_port_is_recognised() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let outcome = spawn(port, &[], initialise).and_then(|server| server.wait_ready());
        assert!(matches!(outcome, Err(Error::PortTaken(_))), "{outcome:?}");
    }
}
