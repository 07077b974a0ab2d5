//! Why a connection failed: which servers were tried, and what answers there instead of the engine.

use lockkeeper_core::Error;
use lockkeeper_core::engine::{Address, Clock, Host};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long all of the diagnosis may take; without its result the error stays as it was.
const LIMIT: Duration = Duration::from_secs(2);
/// How long one server may take to accept a connection, or to send something.
const STEP: Duration = Duration::from_millis(300);
/// More servers than these are not tried.
const SERVERS: usize = 5;

/// An engine's error, with what was found at its servers.
#[derive(Debug)]
struct Diagnosis {
    found: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.source.to_string();
        let lines: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        write!(f, "{}: {}", self.found, lines.join("; "))
    }
}

impl std::error::Error for Diagnosis {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// What is expected at the servers of a URL: the name of the product, and its default port.
fn expected(scheme: &str) -> Option<(&'static str, u16)> {
    Some(match scheme {
        "redis" | "rediss" | "redis+unix" | "unix" | "redis+cluster" | "redlock" => ("Redis", 6379),
        "redis+sentinel" => ("Redis Sentinel", 26379),
        "postgres" | "postgresql" => ("PostgreSQL", 5432),
        "mysql" | "mariadb" => ("MySQL or MariaDB", 3306),
        "zookeeper" => ("ZooKeeper", 2181),
        "etcd" | "etcds" => ("etcd", 2379),
        _ => return None,
    })
}

/// The servers of a URL, for an error of connecting to them.
pub(crate) struct Servers {
    product: &'static str,
    names: Vec<String>,
}

impl Servers {
    /// `None` for an engine without servers.
    pub(crate) fn of(address: &Address) -> Option<Self> {
        let (product, port) = expected(&address.scheme)?;
        if let Some(names) = sockets(address, port) {
            return Some(Self { product, names });
        }
        let local = [Host { name: "127.0.0.1".into(), port: None }];
        let hosts = if address.hosts.is_empty() { &local[..] } else { &address.hosts };
        Some(Self { product, names: hosts.iter().map(|host| host.with_port(port)).collect() })
    }

    /// The error, with what answers at the servers.
    pub(crate) async fn explain(self, error: Error) -> Error {
        let Error::Engine { engine, doing, temporary, source } = error else { return error };
        // A server that refuses us by its own protocol is the right one; only Redis clients do not tell the two apart.
        let found = if temporary || self.product.starts_with("Redis") {
            self.look().await
        } else {
            Some(self.names.join(", "))
        };
        let source = match found {
            Some(found) => Box::new(Diagnosis { found, source }),
            None => source,
        };
        Error::Engine { engine, doing, temporary, source }
    }

    /// Looks at the servers on a thread of its own, since looking up a name blocks.
    async fn look(self) -> Option<String> {
        let (sender, found) = tokio::sync::oneshot::channel();
        let look = move || {
            let servers = self.names.iter().take(SERVERS).map(|name| verdict(name, self.product));
            let _ = sender.send(servers.collect::<Vec<_>>().join(", "));
        };
        std::thread::Builder::new().name("lockkeeper-diagnosis".into()).spawn(look).ok()?;
        Clock::Boot.timeout(LIMIT, found).await.ok()?.ok()
    }
}

/// The Unix sockets that a URL names, if it does.
fn sockets(address: &Address, port: u16) -> Option<Vec<String>> {
    match address.scheme.as_str() {
        "redis+unix" | "unix" => Some(vec![address.path.clone()]),
        "mysql" | "mariadb" => address.get("socket").map(|path| vec![path.to_owned()]),
        "postgres" | "postgresql" => {
            let given = address.get("port").and_then(|port| port.parse().ok()).unwrap_or(port);
            let first = address.hosts.first();
            let port = first.and_then(|host| host.port).unwrap_or(given);
            let named = address.get("host").or(first.map(|host| host.name.as_str()))?;
            named.starts_with('/').then(|| vec![format!("{named}/.s.PGSQL.{port}")])
        }
        _ => None,
    }
}

/// What is at a Unix socket.
fn socket_verdict(path: &str, product: &str) -> String {
    match UnixStream::connect(path).map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => format!("there is no socket {path} ({product} expected there)"),
        Err(ErrorKind::ConnectionRefused) => format!("nothing listens on {path} ({product} expected there)"),
        Err(ErrorKind::PermissionDenied) => format!("this user may not open the socket {path}"),
        _ => format!("{path} ({product} expected there)"),
    }
}

/// What is there, in a few words.
fn verdict(server: &str, product: &str) -> String {
    if server.starts_with('/') {
        return socket_verdict(server, product);
    }
    let addresses: Vec<SocketAddr> = server.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    verdict_on(&addresses, server, product)
}

/// What is at the first of a server's addresses that accepts connections: `localhost` has two as a rule.
fn verdict_on(addresses: &[SocketAddr], server: &str, product: &str) -> String {
    if addresses.is_empty() {
        return format!("{server} has no address ({product} expected there)");
    }
    let mut is_refused = true;
    let connected = addresses.iter().find_map(|address| {
        let tried = TcpStream::connect_timeout(address, STEP);
        is_refused &= matches!(&tried, Err(error) if error.kind() == ErrorKind::ConnectionRefused);
        tried.ok()
    });
    let Some(stream) = connected else {
        return match is_refused {
            true => format!("nothing listens on {server} ({product} expected there)"),
            false => format!("{server} does not accept connections ({product} expected there)"),
        };
    };
    match protocol(stream) {
        Some("TLS") => format!("{server} speaks TLS ({product} expected there)"),
        Some(found) if !product.contains(found) => format!("{server} answers {found}, not {product}"),
        _ => format!("{server} ({product} expected there)"),
    }
}

/// The protocol of a server that speaks first, or answers a plain HTTP request in its own.
fn protocol(mut stream: TcpStream) -> Option<&'static str> {
    limit(&stream)?;
    let address = stream.peer_addr().ok()?;
    let mut bytes = [0; 64];
    let read = stream.read(&mut bytes).unwrap_or(0);
    let mut reply = bytes[..read].to_vec();
    if reply.is_empty() {
        stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").ok()?;
        // What has come when the time is over is kept.
        let ended = stream.take(1024).read_to_end(&mut reply).map_err(|error| error.kind());
        let is_silent = matches!(ended, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut));
        if reply.is_empty() && !is_silent {
            return is_postgres(&address).then_some("PostgreSQL");
        }
    }
    let says = |word: &[u8]| reply.windows(word.len()).any(|part| part == word);
    Some(match &reply[..] {
        [b'H', b'T', b'T', b'P', b'/', ..] if says(b"etcdserver") => "etcd",
        [b'H', b'T', b'T', b'P', b'/', ..] if says(b"HTTPS server") => "TLS",
        [b'H', b'T', b'T', b'P', b'/', ..] => "HTTP",
        [b'S', b'S', b'H', b'-', ..] => "SSH",
        [b'-' | b'+', b'A'..=b'Z', ..] => "Redis",
        [0x15, 0x03, ..] => "TLS",
        [_, _, 0, 0, 0x0a, ..] | [_, _, 0, 0, 0xff, ..] => "MySQL",
        _ => return None,
    })
}

/// Bounds every read and write.
fn limit(stream: &TcpStream) -> Option<()> {
    stream.set_read_timeout(Some(STEP)).ok()?;
    stream.set_write_timeout(Some(STEP)).ok()
}

/// Whether a server that closes the connection on everything else answers the question for TLS as PostgreSQL does: by one
/// letter.
fn is_postgres(address: &SocketAddr) -> bool {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let ask = || {
        let mut stream = TcpStream::connect_timeout(address, STEP).ok()?;
        limit(&stream)?;
        stream.write_all(&SSL_REQUEST).ok()?;
        let mut reply = [0];
        stream.read_exact(&mut reply).ok().map(|()| reply[0])
    };
    matches!(ask(), Some(b'S' | b'N'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers everything like this, or speaks first.
    fn server(first: &'static [u8], answer: &'static [u8]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(first).unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(answer);
        });
        name
    }

    #[test]
    fn a_server_of_another_kind_is_recognised() {
        let judged = |first, answer, product| {
            let server = server(first, answer);
            verdict(&server, product).replace(&server, "S")
        };
        let etcd = b"HTTP/1.0 200 OK\r\n\r\n{\"etcdserver\":\"3.5.1\"}";
        assert_eq!(judged(b"", b"HTTP/1.1 400 Bad Request\r\n", "Redis"), "S answers HTTP, not Redis");
        assert_eq!(judged(b"", etcd, "PostgreSQL"), "S answers etcd, not PostgreSQL");
        assert_eq!(judged(b"", etcd, "etcd"), "S (etcd expected there)");
        assert_eq!(
            judged(b"", b"-ERR unknown command", "Redis Sentinel"),
            "S (Redis Sentinel expected there)"
        );
        assert_eq!(judged(b"SSH-2.0-OpenSSH", b"", "Redis"), "S answers SSH, not Redis");
        assert_eq!(judged(b"\x4a\0\0\0\x0a8.0.36", b"", "PostgreSQL"), "S answers MySQL, not PostgreSQL");
        assert_eq!(judged(b"", b"\x15\x03\x01", "Redis"), "S speaks TLS (Redis expected there)");
        assert_eq!(judged(b"", b"", "ZooKeeper"), "S (ZooKeeper expected there)");
    }

    #[test]
    fn postgres_is_recognised_by_its_answer_to_the_question_for_tls() {
        for letter in [b"S", b"N"] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let name = listener.local_addr().unwrap().to_string();
            std::thread::spawn(move || {
                for stream in listener.incoming().take(2) {
                    let (mut stream, mut request) = (stream.unwrap(), [0; 64]);
                    let read = stream.read(&mut request).unwrap();
                    if request[..read] == [0, 0, 0, 8, 4, 210, 22, 47] {
                        stream.write_all(letter).unwrap();
                    }
                }
            });
            assert_eq!(verdict(&name, "Redis"), format!("{name} answers PostgreSQL, not Redis"));
        }
    }

    #[test]
    fn every_address_of_a_name_is_tried() {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let http = server(b"", b"HTTP/1.1 400 Bad Request\r\n").parse().unwrap();
        let judged = verdict_on(&[free(), http], "localhost:6379", "Redis");
        assert_eq!(judged, "localhost:6379 answers HTTP, not Redis");
        let judged = verdict_on(&[free(), free()], "localhost:6379", "Redis");
        assert_eq!(judged, "nothing listens on localhost:6379 (Redis expected there)");
        assert_eq!(verdict_on(&[], "h:1", "Redis"), "h:1 has no address (Redis expected there)");
    }
}
