//! Who takes part: lockkeeper's styles, and the peers that each is compared with.

use lockkeeper_bench::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How a peer's program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// This program, with a library of `libraries` and parameters of the URL.
    Rust(&'static str, &'static str),
    /// A class of `interop/java`.
    Java(&'static str),
    /// A client of `interop/go`.
    Go(&'static str),
    /// A library of `programs/peer.py`.
    Python(&'static str),
    /// `programs/peer.mjs`.
    Node,
}

/// A lock to measure.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub name: &'static str,
    pub engine: &'static str,
    /// The one of ours to compare with; none if this is ours.
    pub rival: Option<&'static str>,
    pub runs: Runs,
    /// Which of the library's locks, where the program has several.
    pub kind: &'static str,
    /// What its documentation has for safety, and is switched on or asked under faults.
    pub safety: &'static str,
    /// On Redis, the commands that it sends itself and that its scripts do not run.
    pub direct: &'static [&'static str],
}

const fn ours(engine: &'static str, name: &'static str, parameters: &'static str) -> Peer {
    Peer {
        name,
        engine,
        rival: None,
        runs: Runs::Rust("lockkeeper", parameters),
        kind: "",
        safety: "lost signal, `state()`",
        direct: &[],
    }
}

const fn peer(engine: &'static str, name: &'static str, rival: &'static str, runs: Runs) -> Peer {
    Peer { name, engine, rival: Some(rival), runs, kind: "", safety: "", direct: &[] }
}

impl Peer {
    const fn of(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    const fn safe(self, safety: &'static str) -> Self {
        Self { safety, ..self }
    }

    const fn sends(self, direct: &'static [&'static str]) -> Self {
        Self { direct, ..self }
    }

    const fn by(self, library: &'static str, parameters: &'static str) -> Self {
        Self { runs: Runs::Rust(library, parameters), ..self }
    }
}

/// These take a lock by SET; the scripts that release and renew it run none.
const SET: &[&str] = &["set"];
const REDISSON: Runs = Runs::Java("RedissonPeer");

/// Those whose speed is compared, ours before its peers.
pub const MEASURED: &[Peer] = &[
    ours("file", "file queue", ""),
    peer("file", "std File::lock", "file queue", Runs::Rust("file", "")),
    ours("redis", "redis queue", "?style=queue"),
    ours("redis", "redis plain", "?style=plain"),
    peer("redis", "rslock", "redis plain", Runs::Rust("rslock", "")).sends(SET),
    peer("redis", "distributed-lock (Redis)", "redis plain", Runs::Rust("distributed-lock-redis", ""))
        .sends(SET),
    peer("redis", "redis-py Lock", "redis plain", Runs::Python("redis-py")).sends(SET),
    peer("redis", "redsync", "redis plain", Runs::Go("redsync")).sends(SET),
    peer("redis", "redislock", "redis plain", Runs::Go("redislock")),
    ours("redis", "redis redisson", "?style=redisson"),
    peer("redis", "Redisson RLock", "redis redisson", REDISSON).of("mutex"),
    peer("redis", "Redisson RFairLock", "redis queue", REDISSON).of("fair"),
    ours("redis", "redis redisson-rw", "").by("lockkeeper-write", "?style=redisson-rw"),
    peer("redis", "Redisson RReadWriteLock", "redis redisson-rw", REDISSON).of("write"),
    ours("zookeeper", "zookeeper queue", "?style=queue"),
    peer("zookeeper", "zookeeper-client", "zookeeper queue", Runs::Rust("zookeeper-client", "")),
    peer("zookeeper", "Curator", "zookeeper queue", Runs::Java("CuratorPeer")).of("mutex"),
    peer("zookeeper", "kazoo", "zookeeper queue", Runs::Python("kazoo")),
    ours("etcd", "etcd queue", ""),
    peer("etcd", "etcd-client", "etcd queue", Runs::Rust("etcd-client", "")),
    peer("etcd", "Go concurrency.Mutex", "etcd queue", Runs::Go("etcd")),
    ours("postgres", "postgres advisory", "?style=advisory"),
    peer("postgres", "sqlx PgAdvisoryLock", "postgres advisory", Runs::Rust("sqlx", "")),
    peer(
        "postgres",
        "distributed-lock (PostgreSQL)",
        "postgres advisory",
        Runs::Rust("distributed-lock-postgres", ""),
    ),
];

/// Those that are put under faults, each with its options for safety.
pub const FAULTED: &[Peer] = &[
    ours("redis", "redis queue", "?style=queue"),
    ours("redis", "redis plain", "?style=plain"),
    peer("redis", "rslock", "", Runs::Rust("rslock-using", "")).safe("`using`, which renews"),
    peer("redis", "distributed-lock (Redis)", "", Runs::Rust("distributed-lock-redis", ""))
        .safe("renewal, `lost_token`"),
    peer("redis", "redis-py Lock", "", Runs::Python("redis-py")).safe("`owned()` before each step"),
    peer("redis", "node-redlock", "", Runs::Node).safe("`using` with its signal"),
    peer("redis", "redsync", "", Runs::Go("redsync")).safe("`Until()` before each step"),
    peer("redis", "redislock", "", Runs::Go("redislock")).safe("`TTL()` before each step"),
    ours("redis", "redis redisson", "?style=redisson"),
    peer("redis", "Redisson RFencedLock", "", REDISSON)
        .of("fenced")
        .safe("watchdog, `isHeldByCurrentThread()`"),
    ours("zookeeper", "zookeeper queue", "?style=queue"),
    peer("zookeeper", "Curator", "", Runs::Java("CuratorPeer"))
        .of("mutex")
        .safe("connection's listener, `isAcquiredInThisProcess()`"),
    peer("zookeeper", "kazoo", "", Runs::Python("kazoo")).safe("session's listener, `is_acquired`"),
    ours("etcd", "etcd queue", ""),
    peer("etcd", "Go concurrency.Mutex", "", Runs::Go("etcd"))
        .safe("`Session.Done`, `IsOwner` in a transaction"),
    ours("postgres", "postgres queue", "?style=queue"),
    ours("postgres", "postgres advisory", "?style=advisory"),
    peer("postgres", "sqlx PgAdvisoryLock", "", Runs::Rust("sqlx", "")).safe("`ping` on its connection"),
    peer("postgres", "distributed-lock (PostgreSQL)", "", Runs::Rust("distributed-lock-postgres", ""))
        .safe("keepalive, `lost_token`"),
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Peer {
    /// The program, on an engine at this URL (`redis://127.0.0.1:6379`), with locks that outlive their holder by the TTL.
    pub fn command(&self, url: &str, ttl: Duration) -> Result<Command> {
        let ttl_ms = ttl.as_millis().to_string();
        let place = crate::libraries::Place { url: url.into(), ttl };
        let (host, interop) = (place.host(), project().join("interop"));
        Ok(match self.runs {
            Runs::Rust(library, parameters) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["peer", library, &format!("{url}{parameters}"), &ttl_ms]);
                command
            }
            Runs::Java(class) => {
                let built = interop.join("java/target");
                let path = format!("{}:{}/*", built.join("classes").display(), built.join("jars").display());
                let mut command = Command::new("java");
                command.args(["-Xmx512m", "-cp", &path, class]);
                match class {
                    "RedissonPeer" => command.args(["single", &format!("redis://{host}"), &ttl_ms]),
                    _ => command.args([host, &ttl_ms]),
                };
                command
            }
            Runs::Go(client) => {
                let mut command = Command::new(interop.join("go/target/peer"));
                command.args([client, host, &ttl_ms, "0"]);
                command
            }
            Runs::Python(library) => {
                let python = std::env::var("PEERS_PYTHON").unwrap_or_else(|_| "python3".into());
                let mut command = Command::new(python);
                command.arg(project().join("bench-peers/programs/peer.py")).args([library, host, &ttl_ms]);
                command
            }
            Runs::Node => {
                let mut command = Command::new("node");
                command.arg(project().join("bench-peers/programs/peer.mjs")).args([host, &ttl_ms]);
                command
            }
        })
    }

    /// A command of the protocol: `THREAD VERB [KIND] NAME …`.
    pub fn line(&self, thread: &str, verb: &str, rest: &str) -> String {
        let kind = if self.kind.is_empty() { String::new() } else { format!("{} ", self.kind) };
        format!("{thread} {verb} {kind}{rest}")
    }
}
