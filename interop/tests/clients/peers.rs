//! Clients as processes that are led by lines of text: each line is for one of their threads, which replies with a line.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a reply may take that nothing holds up.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// One process.
pub(crate) struct Peer {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Lines of threads that nobody has waited for yet.
    early: HashMap<String, VecDeque<String>>,
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

impl Peer {
    async fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/interop-clients builds it"));
        let commands = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut peer = Self { child, commands, lines, early: HashMap::new() };
        let first = timeout(SOON, peer.lines.next_line()).await.expect("it starts").expect("a line");
        assert_eq!(first.as_deref(), Some("ready"), "{command:?}");
        peer
    }

    /// A Java program of `java/`.
    pub(crate) async fn java(class: &str, arguments: &[&str]) -> Self {
        let built = here().join("java/target");
        let mut command = Command::new("java");
        let class_path = format!("{}:{}/*", built.join("classes").display(), built.join("jars").display());
        // The tests run many of them at once on few processors.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", &class_path, class]);
        command.args(arguments);
        Self::start(command).await
    }

    /// The program of `go/`, as this client.
    pub(crate) async fn go(client: &str, addresses: &str) -> Self {
        let mut command = Command::new(here().join("go/target/peer"));
        command.args([client, addresses]);
        Self::start(command).await
    }

    /// Our own program.
    pub(crate) async fn rust(url: &str, ttl: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        command.arg(url).arg(ttl.as_millis().to_string());
        Self::start(command).await
    }

    /// Sends a command, `THREAD VERB …`, without waiting for the reply.
    pub(crate) async fn send(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.expect("it listens");
    }

    /// The next line of a thread.
    pub(crate) async fn reply(&mut self, thread: &str) -> String {
        self.reply_within(thread, SOON).await.unwrap_or_else(|| panic!("no reply of the thread {thread}"))
    }

    /// The next line of a thread, if it comes in time.
    pub(crate) async fn reply_within(&mut self, thread: &str, limit: Duration) -> Option<String> {
        let read = async {
            loop {
                if let Some(line) = self.early.get_mut(thread).and_then(VecDeque::pop_front) {
                    return line;
                }
                let line = self.lines.next_line().await.expect("a line").expect("it has not ended");
                let (of, line) = line.split_once(' ').expect("a thread and a reply");
                self.early.entry(of.to_owned()).or_default().push_back(line.to_owned());
            }
        };
        timeout(limit, read).await.ok()
    }

    /// Sends a command and waits for the reply.
    pub(crate) async fn call(&mut self, command: &str) -> String {
        self.send(command).await;
        self.reply(command.split(' ').next().unwrap_or_default()).await
    }

    /// Sends a command, whose reply must be this.
    pub(crate) async fn must(&mut self, command: &str, reply: &str) {
        assert_eq!(self.call(command).await, reply, "{command}");
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("it runs"), signal).expect("a signal");
    }
}

/// What one side tells of its turns: how many, how many hand-overs from the other side, and their median in µs.
#[derive(Debug)]
struct Turns {
    count: u64,
    hand_overs: u64,
    median_us: i64,
}

impl Turns {
    fn read(reply: &str) -> Self {
        let words: Vec<&str> = reply.split(' ').collect();
        let ["turns", count, hand_overs, median_us] = words[..] else { panic!("{reply}") };
        Self {
            count: count.parse().unwrap(),
            hand_overs: hand_overs.parse().unwrap(),
            median_us: median_us.parse().unwrap(),
        }
    }
}

/// A contended run in which the counter was exact.
#[derive(Debug)]
pub(crate) struct Contended {
    ours: Turns,
    theirs: Turns,
}

impl Contended {
    /// Neither side starves.
    pub(crate) fn is_fair(&self) {
        let all = self.ours.count + self.theirs.count;
        for side in [&self.ours, &self.theirs] {
            assert!(side.count * 5 >= all, "one side starves: {self:?}");
        }
    }

    /// Half of the hand-overs take less than 5 ms, both ways.
    pub(crate) fn is_quick(&self) {
        for side in [&self.ours, &self.theirs] {
            assert!(side.hand_overs > 0 && side.median_us < 5000, "hand-overs are slow: {self:?}");
        }
    }

    /// Both sides have had turns.
    pub(crate) fn is_shared(&self) {
        assert!(self.ours.count > 0 && self.theirs.count > 0, "one side never had it: {self:?}");
    }
}

/// Both sides raise a counter in a file that nothing but the lock protects.
pub(crate) async fn contend(
    url: &str,
    peer: &mut Peer,
    name: &str,
    each: usize,
    time: Duration,
) -> Contended {
    let mut rust = Peer::rust(url, Duration::from_secs(10)).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("{:64}", "0 none 0")).expect("a record");
    let command = format!("contending contend {name} {} {each} {}", file.path().display(), time.as_millis());
    peer.send(&command).await;
    rust.send(&command).await;
    let theirs = Turns::read(&peer.reply_within("contending", time + SOON).await.expect("their turns"));
    let ours = Turns::read(&rust.reply_within("contending", time + SOON).await.expect("our turns"));
    let record = std::fs::read_to_string(file.path()).expect("the record");
    let count: u64 = record.split(' ').next().unwrap_or_default().parse().expect("a count");
    let contended = Contended { ours, theirs };
    eprintln!("{url} {name}: {contended:?}");
    assert_eq!(count, contended.ours.count + contended.theirs.count, "the counter is exact");
    contended
}
