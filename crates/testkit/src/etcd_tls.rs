//! An etcd server which speaks TLS only.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::error::{Result, or_panic};
use crate::server::{Launch, Server};
use crate::{certificates, etcd, install, port};

/// An etcd server behind TLS.
#[derive(Debug)]
pub struct EtcdTls {
    server: Server,
}

impl EtcdTls {
    #[track_caller]
    pub(crate) fn start() -> EtcdTls {
        let server = or_panic(port::retry_when_taken(|| {
            let ports = port::free_many(3)?;
            let server = Server::spawn(|directory| launch(&ports, directory))?;
            server.wait_ready()?;
            Ok(server)
        }));
        EtcdTls { server }
    }

    /// `etcds://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("etcds://127.0.0.1:{}", self.port())
    }

    /// The [`url`](Self::url) with the authority to trust as a parameter.
    pub fn tls_url(&self) -> String {
        format!("{}?ca={}", self.url(), self.ca().display())
    }

    /// The file, in PEM, of the authority that clients have to trust.
    pub fn ca(&self) -> PathBuf {
        self.directory().join("ca.crt")
    }
}

impl Deref for EtcdTls {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn launch(ports: &[u16], directory: &Path) -> Result<Launch> {
    let files = certificates::create(directory)?;
    let (client_url, peer_url) =
        (format!("https://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
    // The probe needs no TLS through this door.
    let door = ports[2];
    let mut args = vec![OsString::from("--data-dir"), directory.join("data").into()];
    args.extend(["--cert-file".into(), files.certificate.into()]);
    args.extend(["--key-file".into(), files.key.into()]);
    let ours = [
        ["--listen-client-urls", &client_url],
        ["--advertise-client-urls", &client_url],
        ["--listen-metrics-urls", &format!("http://127.0.0.1:{door}")],
        ["--listen-peer-urls", &peer_url],
        ["--initial-advertise-peer-urls", &peer_url],
        ["--initial-cluster", &format!("default={peer_url}")],
        ["--logger", "zap"],
        ["--log-level", "warn"],
    ];
    args.extend(ours.as_flattened().iter().map(OsString::from));
    Ok(Launch {
        program: install::program("etcd", "etcd")?,
        args,
        user: None,
        stop: Signal::TERM,
        port: ports[0],
        ready: Box::new(move || etcd::is_healthy(door)),
    })
}
