//! Lock clients of others, as processes that are led by lines of text.

#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Where Debian's packages put Java libraries.
const JARS: &str = "/usr/share/java";
const CURATOR_NEEDS: [&str; 11] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "netty-all",
    "metrics-core",
    "snappy-java",
];
/// Debian's Python, which has Debian's kazoo.
const PYTHON: &str = "/usr/bin/python3";

/// One process.
pub struct Foreign {
    _child: Child,
    commands: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/programs")
}

fn class_path(classes: &Path) -> String {
    let jars = CURATOR_NEEDS.map(|jar| format!("{JARS}/{jar}.jar"));
    format!("{}:{}", classes.display(), jars.join(":"))
}

/// The Java program, compiled once.
static CLASSES: LazyLock<TempDir> = LazyLock::new(|| {
    let classes = tempfile::tempdir().expect("a directory for classes");
    let status = Blocking::new("javac")
        .args(["-cp", &class_path(classes.path()), "-d"])
        .arg(classes.path())
        .arg(programs().join("CuratorClient.java"))
        .status()
        .expect("javac runs: scripts/install-engines zookeeper");
    assert!(status.success(), "the Java program compiles: scripts/install-engines zookeeper");
    classes
});

impl Foreign {
    /// A client on Curator: `mutex`, `read` or `write`.
    pub fn curator(servers: &str, path: &str, kind: &str) -> Self {
        let mut command = Command::new("java");
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
        command.args(["-cp", &class_path(CLASSES.path()), "CuratorClient", servers, path, kind]);
        Self::start(command)
    }

    /// A client on kazoo: `lock`, `read` or `write`; the patterns are those of other clients' nodes.
    pub fn kazoo(servers: &str, path: &str, kind: &str, patterns: &[&str]) -> Self {
        let mut command = Command::new(PYTHON);
        command.arg(programs().join("kazoo_client.py")).args([servers, path, kind]).args(patterns);
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the client starts: scripts/install-engines zookeeper");
        let commands = child.stdin.take().expect("its input");
        let replies = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { _child: child, commands, replies }
    }

    pub async fn send(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.expect("it listens");
    }

    pub async fn reply(&mut self) -> String {
        let line =
            timeout(super::common::LIMIT * 2, self.replies.next_line()).await.expect("a reply in time");
        line.expect("its output").expect("a reply before its end")
    }

    /// Sends a command and waits for the reply.
    pub async fn request(&mut self, command: &str) -> String {
        self.send(command).await;
        self.reply().await
    }
}
