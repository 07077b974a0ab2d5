//! A process of its own that holds a lock and can be killed or paused: the test binary, started again.

use lockkeeper::{Connect, Guard, State};
use lockkeeper_core::engine::Clock;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ASKED: &str = "LOCKKEEPER_CONFORMANCE_HELPER";

/// What the helper is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    url: String,
    namespace: String,
    name: String,
    ttl_ms: u64,
    /// The least time of its hold, if it has one.
    at_least_ms: Option<u64>,
    runs: Runs,
}

/// How the helper's `main` runs its async code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Runs {
    /// Holds the guard outside of the runtime, and drops it there.
    Outside,
    /// As `#[tokio::main(flavor = "current_thread")]`: drops the guard on the runtime's only thread.
    OnOneThread,
    /// As `#[tokio::main]`, with the guard in a task that is still there at the end of `main`.
    InATask,
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
    /// Gone when its `main` is to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a process that locks the name.
    pub fn start(url: &str, namespace: &str, name: &str, ttl: Duration) -> Self {
        Self::start_with(url, namespace, name, ttl, None)
    }

    /// Starts a process that locks the name for at least a time.
    pub fn start_with(
        url: &str,
        namespace: &str,
        name: &str,
        ttl: Duration,
        at_least: Option<Duration>,
    ) -> Self {
        Self::start_task(Runs::Outside, url, namespace, name, ttl, at_least)
    }

    /// Starts a process that locks the name and runs its `main` in this way.
    pub(crate) fn start_as(runs: Runs, url: &str, namespace: &str, name: &str, ttl: Duration) -> Self {
        Self::start_task(runs, url, namespace, name, ttl, None)
    }

    fn start_task(
        runs: Runs,
        url: &str,
        namespace: &str,
        name: &str,
        ttl: Duration,
        at_least: Option<Duration>,
    ) -> Self {
        let milliseconds = |time: Duration| time.as_millis().try_into().expect("a sane duration");
        let task = Task {
            url: url.into(),
            namespace: namespace.into(),
            name: name.into(),
            ttl_ms: milliseconds(ttl),
            at_least_ms: at_least.map(milliseconds),
            runs,
        };
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .env(ASKED, serde_json::to_string(&task).expect("plain data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a helper process");
        let stdin = child.stdin.take();
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
        writeln!(self.stdin.as_mut().expect("its input"), "state").expect("the helper listens");
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

    /// Lets its `main` end with the guard still in a variable, and waits until the process is gone.
    pub fn end(&mut self) {
        self.stdin = None;
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "the helper ended with {status}");
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
    let mut builder = match task.runs {
        Runs::OnOneThread => tokio::runtime::Builder::new_current_thread(),
        Runs::Outside | Runs::InATask => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
    match task.runs {
        Runs::Outside => {
            let guard = runtime.block_on(lock(task));
            answer(&guard);
        }
        Runs::OnOneThread => runtime.block_on(async {
            let guard = lock(task).await;
            answer(&guard);
        }),
        Runs::InATask => runtime.block_on(async {
            let (sender, guard) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let guard = Arc::new(lock(task).await);
                sender.send(Arc::clone(&guard)).expect("main waits");
                std::future::pending::<()>().await;
            });
            answer(&guard.await.expect("a guard"));
        }),
    }
    ExitCode::SUCCESS
}

async fn lock(task: Task) -> Guard {
    let connect = Connect::to(task.url).namespace(task.namespace).ttl(Duration::from_millis(task.ttl_ms));
    let keeper = connect.holder("helper").connect().await.expect("a keeper");
    let mut mutex = keeper.mutex(task.name);
    if let Some(least) = task.at_least_ms {
        mutex = mutex.hold_at_least(Duration::from_millis(least));
    }
    mutex.lock().await.expect("the lock")
}

fn answer(guard: &Guard) {
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
}
