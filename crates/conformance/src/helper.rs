//! A process of its own that holds a lock and can be killed or paused: the test binary, started again.

use lockkeeper::{Connect, State};
use lockkeeper_core::engine::Clock;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

const ASKED: &str = "LOCKKEEPER_CONFORMANCE_HELPER";

/// What the helper is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    url: String,
    namespace: String,
    name: String,
    ttl_ms: u64,
}

/// One line from the helper.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Report {
    state: String,
    token: Option<u64>,
    /// Nanoseconds on the boot-time clock, which all processes share.
    at_ns: u64,
}

/// A process that holds (or waits for) a lock.
pub struct Helper {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a process that locks the name.
    pub fn start(url: &str, namespace: &str, name: &str, ttl: Duration) -> Self {
        let task = Task {
            url: url.into(),
            namespace: namespace.into(),
            name: name.into(),
            ttl_ms: ttl.as_millis().try_into().expect("a sane TTL"),
        };
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .env(ASKED, serde_json::to_string(&task).expect("plain data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a helper process");
        let stdin = child.stdin.take().expect("its input");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, stdin, stdout }
    }

    fn read(&mut self) -> Report {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line from the helper");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the helper said {line:?}"))
    }

    /// Waits until it holds; its token.
    pub fn token(&mut self) -> u64 {
        let report = self.read();
        assert_eq!(report.state, "Held", "the helper must hold");
        report.token.expect("a token")
    }

    /// Asks it for its state, at once: `Held`, `Uncertain` or `Lost`.
    pub fn state(&mut self) -> String {
        writeln!(self.stdin, "state").expect("the helper listens");
        self.read().state
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a signal to the helper");
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("its end");
    }

    /// Stops it where it stands (SIGSTOP).
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this process was started as a helper.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(ASKED).is_some()
}

/// The helper's life: connect, lock, say so, answer questions until the input ends.
pub(crate) fn run() -> ExitCode {
    let task = std::env::var(ASKED).expect("the task");
    let task: Task = serde_json::from_str(&task).expect("a task as the suite writes it");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let guard = runtime.block_on(async {
        let connect = Connect::to(task.url).namespace(task.namespace).ttl(Duration::from_millis(task.ttl_ms));
        let keeper = connect.holder("helper").connect().await.expect("a keeper");
        keeper.mutex(task.name).lock().await.expect("the lock")
    });
    let say = || {
        let report = Report {
            state: format!("{:?}", guard.state()),
            token: guard.token().ok().map(|token| token.0),
            at_ns: Clock::Boot.now().as_nanos(),
        };
        println!("{}", serde_json::to_string(&report).expect("plain data"));
    };
    assert_ne!(guard.state(), State::Lost, "a fresh grant is held");
    say();
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        say();
    }
    ExitCode::SUCCESS
}
