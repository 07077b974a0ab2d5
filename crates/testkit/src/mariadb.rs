//! One MariaDB server.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Result, Trying, or_panic};
use crate::server::{Launch, Server};
use crate::{certificates, install, port, spawner};

const USER: &str = "mysql";
const DATABASE: &str = "lockkeeper";
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A MariaDB server with an empty database `lockkeeper`; root needs no password.
#[derive(Debug)]
pub struct MariaDb {
    server: Server,
}

impl MariaDb {
    /// Starts a server.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start() -> MariaDb {
        MariaDb::start_with(&[])
    }

    /// Starts a server with more arguments, such as `["--max-connections=20"]`.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_with(args: &[&str]) -> MariaDb {
        or_panic(start(|port, directory| launch(port, directory, args)))
    }

    /// Starts a server that speaks TLS, too, with a certificate of an authority of its own: [`ca`](Self::ca).
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls() -> MariaDb {
        MariaDb::start_tls_with(&[])
    }

    /// Starts a server that speaks TLS, too, with more arguments.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn start_tls_with(args: &[&str]) -> MariaDb {
        or_panic(start(|port, directory| {
            let files = certificates::create(directory)?;
            spawner::give(&files.key, USER)?;
            let certificate = format!("--ssl-cert={}", files.certificate.display());
            let key = format!("--ssl-key={}", files.key.display());
            launch(port, directory, &[&[certificate.as_str(), &key], args].concat())
        }))
    }

    /// The file, in PEM, of the authority that clients of a server with TLS have to trust.
    pub fn ca(&self) -> PathBuf {
        self.directory().join("ca.crt")
    }

    /// The URL of a server with TLS for clients that verify it: the [`url`](Self::url) with its parameters.
    pub fn tls_url(&self) -> String {
        format!("{}?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", self.url(), self.ca().display())
    }

    /// `mysql://root@127.0.0.1:PORT/lockkeeper`
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{DATABASE}", self.port())
    }
}

impl Deref for MariaDb {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn start(launch: impl Fn(u16, &Path) -> Result<Launch>) -> Result<MariaDb> {
    port::retry_when_taken(|| {
        let port = port::free()?;
        let server = Server::spawn(|directory| launch(port, directory))?;
        server.wait_ready()?;
        Ok(MariaDb { server })
    })
}

fn launch(port: u16, directory: &Path, more: &[&str]) -> Result<Launch> {
    let home = directory.join("home");
    let data = home.join("data");
    let first_statements = home.join("init.sql");
    DirBuilder::new().mode(0o700).create(&home).trying("create the data directory")?;
    fs::write(&first_statements, format!("CREATE DATABASE IF NOT EXISTS {DATABASE};\n"))
        .trying("write init.sql")?;
    // A server that starts removes what it takes for leavings in its directory for temporary tables, so two must not share one.
    let temporary = home.join("tmp");
    fs::create_dir(&temporary).trying("create a directory for temporary tables")?;
    spawner::give(&home, USER)?;
    initialise(&data, &temporary)?;

    let mut args: Vec<OsString> =
        ["--no-defaults", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M"]
            .map(OsString::from)
            .into();
    args.push(format!("--port={port}").into());
    args.push(assignment("--datadir", &data));
    args.push(assignment("--tmpdir", &temporary));
    args.push(assignment("--socket", &home.join("socket")));
    args.push(assignment("--pid-file", &home.join("pid")));
    // Runs before the first client is let in.
    args.push(assignment("--init-file", &first_statements));
    args.extend(more.iter().map(OsString::from));
    Ok(Launch {
        program: install::program("mariadbd", "mysql")?,
        args,
        user: Some(USER),
        stop: Signal::TERM,
        port,
        ready: Box::new(move || logs_in(port).map_err(|error| error.to_string())),
    })
}

/// Fills the data directory with the system tables.
fn initialise(data: &Path, temporary: &Path) -> Result<()> {
    let mut install_db =
        spawner::bound_command(&install::program("mariadb-install-db", "mysql")?, Some(USER));
    install_db.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    install_db.arg(assignment("--datadir", data)).arg(assignment("--tmpdir", temporary));
    spawner::run(install_db)
}

fn assignment(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(format!("{option}="));
    text.push(path);
    text
}

/// Opens a session in the database as a client does.
fn logs_in(port: u16) -> io::Result<()> {
    const OK: u8 = 0x00;
    const OTHER_METHOD: u8 = 0xfe;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;

    read_packet(&mut stream)?;
    write_packet(&mut stream, 1, &login())?;
    let mut answer = read_packet(&mut stream)?;
    if answer.first() == Some(&OTHER_METHOD) {
        // The proof of an empty password is empty, whatever the method.
        write_packet(&mut stream, 3, &[])?;
        answer = read_packet(&mut stream)?;
    }
    match answer.first() {
        Some(&OK) => write_packet(&mut stream, 0, &[QUIT]),
        _ => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
    }
}

const QUIT: u8 = 0x01;

/// The reply to the server's handshake: root, without a password, into our database.
fn login() -> Vec<u8> {
    const CONNECT_WITH_DB: u32 = 0x8;
    const PROTOCOL_41: u32 = 0x200;
    const SECURE_CONNECTION: u32 = 0x8000;
    const PLUGIN_AUTH: u32 = 0x80000;
    const MAX_PACKET_BYTES: u32 = 1 << 24;
    const UTF8MB4: u8 = 45;
    let mut packet = (CONNECT_WITH_DB | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH).to_le_bytes().to_vec();
    packet.extend(MAX_PACKET_BYTES.to_le_bytes());
    packet.push(UTF8MB4);
    packet.extend([0; 23]);
    packet.extend(b"root\0");
    packet.push(0);
    packet.extend(DATABASE.as_bytes());
    packet.push(0);
    // A newer server without this method asks for its own, if a client says that it knows several.
    packet.extend(b"mysql_native_password\0");
    packet
}

fn write_packet(stream: &mut impl Write, number: u8, body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u32).to_le_bytes();
    stream.write_all(&[&[length[0], length[1], length[2], number], body].concat())
}

fn read_packet(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_taken_port_is_recognised() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let server = Server::spawn(|directory| launch(port, directory, &[]));
        let outcome = server.and_then(|server| server.wait_ready());
        assert!(matches!(outcome, Err(Error::PortTaken(_))), "{outcome:?}");
    }
}
