//! One server process: spawn, wait until ready, signal, restart, stop.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::error::{Error, Result, Trying, or_panic};
use crate::wait::{holds_within, succeeds_within};
use crate::wall_clock::Preload;
use crate::{data, port, process, spawner};

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Shorter, since nobody needs the data again: an etcd leader would wait for members who are gone as well.
const DROP_TIMEOUT: Duration = Duration::from_millis(500);
const LOG_TAIL_LINES: usize = 40;

/// Asks a server, over its socket, whether it is ready; the error says why not.
pub(crate) type Probe = Box<dyn Fn() -> std::result::Result<(), String> + Send + Sync>;

/// How to run a server, the first time and again.
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// Whom root becomes to run it.
    pub(crate) user: Option<&'static str>,
    /// Asks for a quick but orderly end.
    pub(crate) stop: Signal,
    pub(crate) port: u16,
    pub(crate) ready: Probe,
}

/// A running server with its own port and data; stopped, and its data removed, on drop.
pub struct Server {
    launch: Launch,
    preload: Option<Preload>,
    child: Mutex<Child>,
    // Removed after the process has ended: fields drop after `Drop::drop`.
    directory: TempDir,
}

impl Server {
    /// Starts the process in a new directory without waiting until it is ready.
    ///
    /// `launch` puts into the directory what the server needs, and may run for long.
    pub(crate) fn spawn(launch: impl FnOnce(&Path) -> Result<Launch>) -> Result<Server> {
        let directory = data::directory()?;
        let launch = launch(directory.path())?;
        let preload = Preload::current();
        let child = Mutex::new(run(&launch, preload.as_ref(), directory.path())?);
        Ok(Server { launch, preload, child, directory })
    }

    /// Waits until the server answers.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        self.wait_for(&self.launch.ready)
    }

    /// Waits until the server meets a condition, as long as it runs.
    pub(crate) fn wait_for(&self, condition: impl Fn() -> std::result::Result<(), String>) -> Result<()> {
        let mut exit = None;
        let ready = succeeds_within(READY_TIMEOUT, || {
            exit = self.child().try_wait().ok().flatten();
            if exit.is_some() {
                return Ok(());
            }
            if !port::is_held_by(self.pid(), self.port()) {
                return Err(format!("it does not listen on port {}", self.port()));
            }
            condition()
        });
        match (ready, exit) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(exit)) => Err(self.failure(&format!("ended with {exit}"))),
            (Err(why), _) => Err(self.failure(&format!("was not ready after {READY_TIMEOUT:?}: {why}"))),
        }
    }

    fn failure(&self, what: &str) -> Error {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        let text = format!("{} {what}; its log ends with:\n{tail}", self.launch.program.display());
        if log.to_lowercase().contains("address already in use") {
            Error::PortTaken(text)
        } else {
            Error::NotReady(text)
        }
    }

    /// The process id; after [`kill`](Self::kill), that of the dead process.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// The port of 127.0.0.1 it serves clients on.
    pub fn port(&self) -> u16 {
        self.launch.port
    }

    /// All the server has written so far.
    pub fn log(&self) -> String {
        fs::read(log_path(self.directory()))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Its throw-away directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether the process has not ended; a paused one runs.
    pub fn is_running(&self) -> bool {
        is_running(&mut self.child())
    }

    /// Kills the process, and what it forked, with SIGKILL; returns when they are gone.
    pub fn kill(&self) {
        let mut child = self.child();
        if !is_running(&mut child) {
            return;
        }
        // Stopped first, so that it forks no more.
        process::signal(child.id(), Signal::STOP);
        let children = process::children(child.id());
        children.iter().for_each(|pid| process::signal(*pid, Signal::KILL));
        process::signal(child.id(), Signal::KILL);
        let _ = child.wait();
        // A backend that still holds shared memory would forbid PostgreSQL to start again.
        holds_within(STOP_TIMEOUT, || children.iter().all(|pid| process::has_ended(*pid)));
    }

    /// Freezes the process, and what it forked, with SIGSTOP; its connections stay open.
    ///
    /// The kernel still accepts bytes, and even new connections, for a frozen server.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Thaws the process with SIGCONT.
    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Stops the server if it runs, starts it with the same port and data, and waits until it answers.
    ///
    /// # Panics
    /// With the tail of its log, when it does not answer within 60 s.
    #[track_caller]
    pub fn restart(&self) {
        or_panic(self.respawn().and_then(|()| self.wait_ready()));
    }

    /// Stops the server and starts it again, without waiting until it is ready.
    ///
    /// For a member that cannot be ready before others are started as well.
    ///
    /// # Panics
    /// When the process cannot be started.
    #[track_caller]
    pub fn restart_without_waiting(&self) {
        or_panic(self.respawn());
    }

    fn respawn(&self) -> Result<()> {
        self.stop();
        *self.child() = run(&self.launch, self.preload.as_ref(), self.directory())?;
        Ok(())
    }

    /// Stops the server in an orderly way, or kills it when it does not end within 3 s.
    pub fn stop(&self) {
        self.stop_within(STOP_TIMEOUT);
    }

    fn stop_within(&self, timeout: Duration) {
        self.ask_to_stop();
        if !holds_within(timeout, || !self.is_running()) {
            self.kill();
        }
    }

    /// Asks for an orderly end without waiting for it.
    fn ask_to_stop(&self) {
        let mut child = self.child();
        if is_running(&mut child) {
            process::signal(child.id(), self.launch.stop);
        }
        drop(child);
        // A paused process would not heed the request.
        self.resume();
    }

    fn signal_all(&self, signal: Signal) {
        let mut child = self.child();
        // A process that has been waited for may have left its id to a stranger.
        if is_running(&mut child) {
            process::signal(child.id(), signal);
            process::children(child.id()).into_iter().for_each(|pid| process::signal(pid, signal));
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("program", &self.launch.program)
            .field("pid", &self.pid())
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_within(DROP_TIMEOUT);
    }
}

/// Servers that belong together, and are stopped together.
#[derive(Debug)]
pub(crate) struct Servers(Vec<Server>);

impl Servers {
    /// Spawns one server per item.
    pub(crate) fn spawn<T>(
        items: impl IntoIterator<Item = T>,
        spawn: impl FnMut(T) -> Result<Server>,
    ) -> Result<Servers> {
        items.into_iter().map(spawn).collect::<Result<_>>().map(Servers)
    }

    /// Waits until every one answers.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        self.iter().try_for_each(Server::wait_ready)
    }

    /// "127.0.0.1:1,127.0.0.1:2,…"
    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<String> =
            self.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        addresses.join(",")
    }
}

impl Deref for Servers {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.0
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // All are asked before any is waited for, so that they stop at the same time.
        self.iter().for_each(Server::ask_to_stop);
        if !holds_within(DROP_TIMEOUT, || !self.iter().any(Server::is_running)) {
            self.iter().for_each(Server::kill);
        }
    }
}

fn run(launch: &Launch, preload: Option<&Preload>, directory: &Path) -> Result<Child> {
    let log =
        OpenOptions::new().create(true).append(true).open(log_path(directory)).trying("open the log")?;
    let mut command = spawner::bound_command(&launch.program, launch.user);
    command.args(&launch.args).stdout(log.try_clone().trying("open the log")?).stderr(log);
    command.envs(preload.iter().flat_map(|preload| preload.environment()));
    spawner::spawn(command).trying(format!("start {} through setpriv", launch.program.display()))
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}
