//! Processes of their own for the tests: the test program, started again with a task in its environment.

use lockkeeper::{Connect, Error, Keeper};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const TASK: &str = "LOCKKEEPER_FILE_TASK";
const URL: &str = "LOCKKEEPER_FILE_URL";
/// Marks our lines among those of the test harness.
const MARK: &str = "@ ";

/// A liveness limit: reached only when something is stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(30);

/// A directory for locks that goes away with the test.
pub(crate) struct Locks {
    temporary: tempfile::TempDir,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self { temporary: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn outside(&self) -> &Path {
        self.temporary.path()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.outside().join("locks")
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.root().display())
    }

    /// The names of all files but gates.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        leftovers(&self.root())
    }
}

pub(crate) fn leftovers(root: &Path) -> Vec<String> {
    let Ok(shards) = std::fs::read_dir(root) else { return Vec::new() };
    let shards = shards.map(|shard| shard.unwrap().path()).filter(|path| path.is_dir());
    let files = shards.flat_map(|shard| std::fs::read_dir(shard).unwrap());
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("gate")).collect()
}

pub(crate) async fn connect(url: &str) -> Keeper {
    Connect::to(url).connect().await.unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs a program as another user, without any rights of its own.
pub(crate) fn as_user(user: u32, group: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
    command
}

/// The test program where everybody may run it.
pub(crate) fn public_program(locks: &Locks) -> PathBuf {
    let allow = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = locks.outside().join("program");
    if !program.exists() {
        allow(locks.outside());
        // By another process: a child that a neighbouring test starts while this one writes would inherit the open file, and a
        // program that is open for writing cannot be run.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
        assert!(copied.success());
        allow(&program);
    }
    program
}

/// The test program as a command that does a task.
pub(crate) fn program(task: &str, url: &str) -> Command {
    as_helper(Command::new(std::env::current_exe().unwrap()), task, url)
}

/// A command that ends in the test program (which it gets as its last argument), as a command that does a task.
pub(crate) fn wrapped(mut command: Command, program: &Path, task: &str, url: &str) -> Command {
    command.arg(program);
    as_helper(command, task, url)
}

fn as_helper(mut command: Command, task: &str, url: &str) -> Command {
    command.args(["--exact", "support::the_helper", "--nocapture"]).env(TASK, task).env(URL, url);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// A process that does a task.
pub(crate) struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("a helper process");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// The next message of the process.
    pub(crate) fn receive(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the helper ended without a message");
            if let Some((_, reply)) = line.trim_end().split_once(MARK) {
                return reply.to_owned();
            }
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Ends its input and waits for its end, which must be a good one.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

fn report(text: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n{MARK}{text}").unwrap();
    stdout.flush().unwrap();
}

/// Does the task this process was started for; nothing in a usual test run.
#[test]
fn the_helper() {
    let Ok(task) = std::env::var(TASK) else { return };
    let url = std::env::var(URL).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match task.split_once(' ').unwrap_or((&task, "")) {
            ("hammer", ttl_ms) => hammer(&url, ttl_ms.parse().unwrap()).await,
            ("count", file) => count(&url, Path::new(file)).await,
            ("hold", name) => hold(&url, name).await,
            ("try", name) => try_once(&url, name).await,
            ("hold-default", name) => hold(&lockkeeper::default_url(), name).await,
            ("try-default", name) => try_once(&lockkeeper::default_url(), name).await,
            ("exhaust", _) => exhaust(&url).await,
            (other, _) => panic!("no task '{other}'"),
        }
    });
}

/// Locks and releases without end.
async fn hammer(url: &str, ttl_ms: u64) {
    let keeper = Connect::to(url).ttl(Duration::from_millis(ttl_ms)).connect().await.unwrap();
    report("ready");
    loop {
        match keeper.mutex("m").lock().await {
            Ok(guard) => match guard.release().await {
                Ok(()) | Err(Error::Lost { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Err(Error::Lost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Adds one to the number in a file, 200 times: read, add, write.
async fn count(url: &str, file: &Path) {
    let keeper = connect(url).await;
    for _ in 0..200 {
        let guard = keeper.mutex("m").lock().await.unwrap();
        let number: u64 = std::fs::read_to_string(file).unwrap().parse().unwrap();
        std::fs::write(file, (number + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
    report("done");
}

/// Holds a lock until its input ends.
async fn hold(url: &str, name: &str) {
    let keeper = connect(url).await;
    report("waiting");
    let guard = keeper.mutex(name).lock().await.unwrap();
    report(format!("held {}", guard.token().unwrap()));
    for _ in std::io::stdin().lines() {}
    guard.release().await.unwrap();
}

/// Tries once, and reports the outcome.
async fn try_once(url: &str, name: &str) {
    let tried = async { connect_to(url).await?.mutex(name).try_lock().await };
    match tried.await {
        Ok(Some(guard)) => {
            guard.release().await.unwrap();
            report("granted");
        }
        Ok(None) => report("none"),
        Err(error) => report(format!("temporary={} {error}", error.is_temporary())),
    }
}

async fn connect_to(url: &str) -> lockkeeper::Result<Keeper> {
    Connect::to(url).connect().await
}

/// Uses up its file descriptors while it holds one lock and asks for others.
async fn exhaust(url: &str) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let keeper = Connect::to(url).ttl(Duration::from_secs(2)).connect().await.unwrap();
    let held = keeper.mutex("held").lock().await.unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let mut files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    // Neither granted nor taken for held by somebody else.
    for name in ["held", "other", "taken"] {
        let error = keeper.mutex(name).try_lock().await.map(|guard| guard.is_some()).unwrap_err();
        assert!(error.to_string().contains("Too many open files"), "{error}");
        assert!(error.is_temporary());
    }
    // Renewals need no new descriptors.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(held.state(), lockkeeper::State::Held);
    files.truncate(files.len() - 10);
    assert!(keeper.mutex("held").try_lock().await.unwrap().is_none());
    assert!(keeper.mutex("taken").try_lock().await.unwrap().is_none());
    keeper.mutex("other").try_lock().await.unwrap().expect("a free lock").release().await.unwrap();
    held.release().await.unwrap();
    report("fine");
}
