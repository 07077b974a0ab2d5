//! What the tests share: a place for locks, the built binary, and waiting for what must come.

#![allow(dead_code, missing_docs, unreachable_pub)]

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before a test gives up on it. Generous: only a hang reaches it.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A shell line that says it runs and then lives until its standard input ends.
pub const HOLD: &str = "echo holding; cat > /dev/null";

/// The end of a shell line that lives on for a minute, whatever signals its children die of. No command substitution: a
/// signal to the group would end that, and leave the loop nothing to count.
pub const LIVE_ON: &str = "n=0; while [ $n -lt 6000 ]; do n=$((n+1)); sleep 0.01; done";

/// A directory of the file engine's, gone with the test.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn url(&self) -> String {
        format!("file:{}", self.path("locks").display())
    }

    /// The binary, on this place's engine.
    pub fn lockkeeper<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        // Signals that the caller of the tests ignores (nohup does) would stay ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_lockkeeper")]);
        command.args(arguments).env("LOCKKEEPER_URL", self.url()).current_dir(self.dir.path());
        command.stdin(Stdio::null());
        command
    }

    pub fn output<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.lockkeeper(arguments).output().unwrap()
    }

    /// The exit status of a call, with what it said on standard error.
    pub fn status<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> (i32, String) {
        let output = self.output(arguments);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// Starts a command that holds the lock; returns when it does.
    pub fn hold(&self, arguments: &[&str]) -> Held {
        let mut all = vec!["run"];
        all.extend(arguments);
        all.extend(["--", "sh", "-c", HOLD]);
        self.start(&all)
    }

    /// Starts a call whose command says 'holding'; returns when it has.
    pub fn start(&self, arguments: &[&str]) -> Held {
        let mut held = self.start_waiting(arguments);
        assert_eq!(held.line(), "holding");
        held
    }

    /// Starts a call whose command will say something later.
    pub fn start_waiting(&self, arguments: &[&str]) -> Held {
        Held::start(self.lockkeeper(arguments))
    }

    /// The lock as `show --json` has it.
    pub fn show(&self, name: &str) -> Value {
        let output = self.output(["show", name, "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The standings of a lock's claims, in order.
    pub fn standings(&self, name: &str) -> Vec<String> {
        let lock = self.show(name);
        let claims = lock["claims"].as_array().unwrap();
        claims.iter().map(|claim| claim["standing"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a lock has this many claims.
    pub fn until_claims(&self, name: &str, count: usize) {
        until(&format!("{count} claims on {name}"), || self.standings(name).len() == count);
    }

    /// Nothing holds, nothing waits.
    pub fn assert_empty(&self) {
        let output = self.output(["ls", "--json"]);
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "[]");
    }
}

/// A call of the binary that runs beside the test; killed if the test ends without waiting for it.
pub struct Held {
    child: Child,
    pub stdin: Option<ChildStdin>,
    stdout: Lines,
    stderr: Lines,
}

/// The lines of a pipe, read beside the test so that a wait for one has a limit.
struct Lines(Receiver<String>);

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line; `None` at the end.
    fn next(&self) -> Option<String> {
        match self.0.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing and does not end"),
        }
    }

    fn rest(&self) -> String {
        std::iter::from_fn(|| self.next()).map(|line| line + "\n").collect()
    }
}

impl Held {
    /// Starts a command with pipes for its input and output.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::new(command.spawn().unwrap())
    }

    fn new(mut child: Child) -> Self {
        let stdin = child.stdin.take();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, stdin, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, without the line break; empty at the end.
    pub fn line(&mut self) -> String {
        self.stdout.next().unwrap_or_default()
    }

    /// All the output that is still to come.
    pub fn output(&mut self) -> String {
        self.stdout.rest()
    }

    /// Waits for a line on standard error that has this word.
    pub fn hears(&mut self, word: &str) {
        while !self.stderr.next().unwrap_or_else(|| panic!("it never said {word:?}")).contains(word) {}
    }

    pub fn say(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes its input and waits for its end.
    pub fn finish(mut self) -> i32 {
        self.stdin = None;
        self.end().0
    }

    /// Waits for its end: exit status and what it said on standard error.
    pub fn end(mut self) -> (i32, String) {
        let status = wait(&mut self.child);
        (status.code().unwrap_or(-1), self.stderr.rest())
    }

    /// Kills the binary, not its command, and reaps it.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A test that fails half-way leaves no process behind.
impl Drop for Held {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = self.pid();
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            for child in children.unwrap_or_default().split_whitespace() {
                let group = child.parse().ok().and_then(Pid::from_raw);
                group.map(|group| kill_process_group(group, Signal::KILL));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits for a process, within the limit.
pub fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the end of a process", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Looks until something has become true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "still no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process lives (a zombie does not).
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}
