//! A connection pooler in front of a PostgreSQL server.

use std::fs;
use std::ops::Deref;
use std::path::Path;

use rustix::process::Signal;

use crate::error::{Result, Trying, or_panic};
use crate::postgres::{USER, logs_in};
use crate::server::{Launch, Server};
use crate::{install, port};

/// A pooler; everyone may connect without a password.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
}

impl PgBouncer {
    #[track_caller]
    pub(crate) fn start(server_port: u16, mode: &str) -> PgBouncer {
        let server = or_panic(port::retry_when_taken(|| {
            let port = port::free()?;
            let server = Server::spawn(|directory| launch(port, directory, server_port, mode))?;
            server.wait_ready()?;
            Ok(server)
        }));
        PgBouncer { server }
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port())
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn launch(port: u16, directory: &Path, server_port: u16, mode: &str) -> Result<Launch> {
    let settings = format!(
        "[databases]
* = host=127.0.0.1 port={server_port} user={USER}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
max_client_conn = 2000
"
    );
    let file = directory.join("pgbouncer.ini");
    fs::write(&file, settings).trying("write pgbouncer.ini")?;
    Ok(Launch {
        program: install::program("pgbouncer", "postgres")?,
        args: vec![file.into()],
        // It refuses to run as root.
        user: Some(USER),
        stop: Signal::TERM,
        port,
        ready: Box::new(move || logs_in(port).map_err(|error| error.to_string())),
    })
}
