//! A Redis server which speaks TLS only, and to one user only.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::error::{Result, or_panic};
use crate::server::{Launch, Server};
use crate::{certificates, install, port, redis, resp};

const USER: &str = "keeper";
const PASSWORD: &str = "open-sesame";

/// A Redis server behind TLS and an access list.
#[derive(Debug)]
pub struct RedisTls {
    server: Server,
}

impl RedisTls {
    #[track_caller]
    pub(crate) fn start(more: &[&str]) -> RedisTls {
        let server = or_panic(port::retry_when_taken(|| {
            let port = port::free()?;
            let server = Server::spawn(|directory| launch(port, directory, more))?;
            server.wait_ready()?;
            Ok(server)
        }));
        RedisTls { server }
    }

    /// `rediss://USER:PASSWORD@127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("rediss://{USER}:{PASSWORD}@127.0.0.1:{}", self.port())
    }

    /// The [`url`](Self::url) with the authority to trust as a parameter.
    pub fn tls_url(&self) -> String {
        format!("{}?ca={}", self.url(), self.ca().display())
    }

    /// The file, in PEM, of the authority that clients have to trust.
    pub fn ca(&self) -> PathBuf {
        self.directory().join("ca.crt")
    }

    /// The only user.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The user's password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }
}

impl Deref for RedisTls {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn launch(port: u16, directory: &Path, more: &[&str]) -> Result<Launch> {
    let files = certificates::create(directory)?;
    // The probe needs no TLS through this door.
    let socket = directory.join("socket");
    let mut args = redis::common_arguments(directory);
    args.extend(redis::strings(&[
        "--port",
        "0",
        "--tls-port",
        &port.to_string(),
        "--tls-auth-clients",
        "no",
    ]));
    args.extend(["--tls-cert-file".into(), files.certificate.into()]);
    args.extend(["--tls-key-file".into(), files.key.into()]);
    args.extend(["--tls-ca-cert-file".into(), files.authority.into()]);
    args.extend(["--unixsocket".into(), socket.clone().into()]);
    args.extend(redis::strings(&["--user", USER, "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"]));
    args.extend(redis::strings(&["--user", "default", "off"]));
    args.extend(redis::strings(more));
    Ok(Launch {
        program: install::program("redis-server", "redis")?,
        args,
        user: None,
        stop: Signal::TERM,
        port,
        ready: Box::new(move || {
            let commands: [&[&str]; 2] = [&["AUTH", USER, PASSWORD], &["PING"]];
            resp::call_unix(&socket, &commands).map(|_| ()).map_err(|error| error.to_string())
        }),
    })
}
