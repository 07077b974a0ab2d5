//! A worker as the run sees it: started, stopped, killed, told to end.

use crate::network::Network;
use crate::worker::{ASKED, BLOCK, READY, STOP, Task};
use lockkeeper_conformance::history::History;
use lockkeeper_core::engine::Clock;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// No file more than those that are open: the numbers below this one are those of the standard streams. It is not 0, for a
/// process may not even poll more files than it may open.
pub(crate) const NONE: Rlimit = Rlimit { current: Some(3), maximum: None };

/// How many files and connections a process may open from here on; what it could before.
pub(crate) fn limit_files(pid: Pid, limit: Rlimit) -> io::Result<Rlimit> {
    let Rlimit { current, maximum } = limit;
    let before = rustix::process::getrlimit(Resource::Nofile);
    // Only the soft limit, which may be raised again.
    let maximum = maximum.or(before.maximum);
    match prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum }) {
        // In some containers not even root may limit a server that runs as another user. That user may.
        Err(Errno::PERM) => limit_files_as_owner(pid, current).map(|()| before),
        limited => Ok(limited?),
    }
}

fn limit_files_as_owner(pid: Pid, soft: Option<u64>) -> io::Result<()> {
    let owner = std::fs::metadata(format!("/proc/{pid}"))?;
    let soft = soft.map_or("unlimited".to_owned(), |soft| soft.to_string());
    let status = Command::new("setpriv")
        .args(["--clear-groups", &format!("--reuid={}", owner.uid()), &format!("--regid={}", owner.gid())])
        .args(["prlimit", &format!("--pid={pid}"), &format!("--nofile={soft}:")])
        .status()?;
    if status.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// A worker process and the network in front of its servers.
pub(crate) struct Worker {
    pub(crate) task: Task,
    pub(crate) network: Option<Network>,
    child: Child,
    stdin: Option<ChildStdin>,
    ready: Receiver<()>,
    killed_at_ns: Option<u64>,
}

impl Worker {
    /// Starts it: this program, once more. `environment` is for it alone.
    pub(crate) fn start(mut task: Task, environment: &[(String, String)]) -> io::Result<Self> {
        let network = Network::in_front_of(&task.url);
        if let Some(network) = &network {
            task.url.clone_from(&network.url);
        }
        let mut command = Command::new("/proc/self/exe");
        // What the servers' clock needs is not for the workers.
        command.env_remove(crate::shim::PRELOAD).envs(environment.iter().cloned());
        command.env(ASKED, serde_json::to_string(&task)?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let (sender, ready) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("no output"))?).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line == READY {
                    let _ = sender.send(());
                }
            }
        });
        Ok(Self { task, network, child, stdin, ready, killed_at_ns: None })
    }

    /// Whether it has connected within this time.
    pub(crate) fn is_ready_within(&self, limit: Duration) -> bool {
        self.ready.recv_timeout(limit).is_ok()
    }

    fn signal(&self, signal: Signal) {
        // It was not waited for, so the id is still its own.
        let _ = kill_process(self.pid(), signal);
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Blocks its executor for this time.
    pub(crate) fn block(&mut self, time: Duration) {
        self.tell(&format!("{BLOCK} {}", time.as_millis()));
    }

    fn tell(&mut self, order: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{order}");
        }
    }

    /// Kills it; what it held counts as lost from just before.
    pub(crate) fn kill(&mut self) {
        self.killed_at_ns.get_or_insert(Clock::Boot.now().as_nanos());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end.
    pub(crate) fn ask_to_stop(&mut self) {
        self.tell(STOP);
        self.stdin = None;
    }

    /// Whether it has ended well by this moment; killed if it has not.
    pub(crate) fn ends_by(&mut self, deadline: Instant) -> bool {
        if self.killed_at_ns.is_some() {
            return true;
        }
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let ended_well = status.success();
                    if !ended_well {
                        self.killed_at_ns = Some(Clock::Boot.now().as_nanos());
                    }
                    return ended_well;
                }
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
        self.kill();
        false
    }

    /// The first error that its clients met, if any.
    pub(crate) fn error(&self) -> String {
        let errors = std::fs::read_to_string(self.task.history.with_extension("errors")).unwrap_or_default();
        let first = errors.lines().next().map(|error| format!("; its first error: {error}"));
        first.unwrap_or_default()
    }

    /// What it recorded, with its end if it was killed.
    pub(crate) fn history(&self) -> io::Result<History> {
        let Ok(file) = File::open(&self.task.history) else { return Ok(History::default()) };
        let mut history = History::read_json_lines(BufReader::new(file))?;
        if let Some(at_ns) = self.killed_at_ns {
            let first = self.task.process * crate::resource::CLIENTS_PER_PROCESS;
            for index in 0..self.task.clients.len() as u32 {
                history.bury(first + index, at_ns);
            }
        }
        Ok(history)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
