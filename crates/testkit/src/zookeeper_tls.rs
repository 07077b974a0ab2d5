//! A ZooKeeper server which speaks TLS on a port of its own.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::error::{Result, Trying, or_panic};
use crate::server::{Launch, Server};
use crate::zookeeper::{SETTINGS, arguments, serves};
use crate::{certificates, install, port};

/// Only Netty's connections speak TLS; Debian keeps it in parts.
const NETTY: [&str; 8] = [
    "netty-common.jar",
    "netty-buffer.jar",
    "netty-transport.jar",
    "netty-codec.jar",
    "netty-handler.jar",
    "netty-resolver.jar",
    "netty-transport-native-epoll.jar",
    "netty-transport-native-unix-common.jar",
];

/// A ZooKeeper server with an open port, which is the server's, and one behind TLS.
#[derive(Debug)]
pub struct ZooKeeperTls {
    server: Server,
    secure_port: u16,
}

impl ZooKeeperTls {
    #[track_caller]
    pub(crate) fn start() -> ZooKeeperTls {
        or_panic(port::retry_when_taken(|| {
            let ports = port::free_many(2)?;
            let server = Server::spawn(|directory| launch(&ports, directory))?;
            server.wait_ready()?;
            Ok(ZooKeeperTls { server, secure_port: ports[1] })
        }))
    }

    /// `zookeeper://127.0.0.1:PORT?tls`, without an authority to trust.
    pub fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}?tls", self.secure_port)
    }

    /// The [`url`](Self::url) with the authority to trust as a parameter.
    pub fn tls_url(&self) -> String {
        format!("{}&ca={}", self.url(), self.ca().display())
    }

    /// `zookeeper://127.0.0.1:PORT`, the same server without TLS.
    pub fn open_url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.port())
    }

    /// The file, in PEM, of the authority that clients have to trust.
    pub fn ca(&self) -> PathBuf {
        self.directory().join("ca.crt")
    }
}

impl Deref for ZooKeeperTls {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn launch(ports: &[u16], directory: &Path) -> Result<Launch> {
    let files = certificates::create(directory)?;
    let (data, store, path) =
        (directory.join("data"), directory.join("server.pem"), directory.join("zoo.cfg"));
    let read = |file: &Path| fs::read(file).trying("read a certificate");
    // The server wants the key and its certificate in one file.
    fs::write(&store, [read(&files.key)?, read(&files.certificate)?].concat()).trying("write server.pem")?;
    fs::create_dir(&data).trying("create the data directory")?;
    let (open, secure) = (ports[0], ports[1]);
    let text = format!(
        "{SETTINGS}dataDir={}\nclientPort={open}\nsecureClientPort={secure}\n\
         secureClientPortAddress=127.0.0.1\nssl.clientAuth=none\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
         ssl.trustStore.location={}\nssl.trustStore.type=PEM\n",
        data.display(),
        store.display(),
        files.authority.display(),
    );
    fs::write(&path, text).trying("write zoo.cfg")?;
    Ok(Launch {
        program: install::program("java", "zookeeper")?,
        args: arguments(&path, &NETTY)?,
        user: None,
        stop: Signal::TERM,
        port: open,
        ready: Box::new(move || serves(open)),
    })
}
