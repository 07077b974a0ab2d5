//! The command as a child process with a process group of its own.

use crate::exit::{self, Failure};
use crate::lookup::not_started;
use crate::terminal::Terminal;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, getsid, kill_current_process_group, kill_process,
    kill_process_group, test_kill_process_group, waitpid,
};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal as listen};

/// A running command.
pub(crate) struct Child {
    group: Pid,
    changes: Changes,
    terminal: Option<Terminal>,
    /// This process was stopped together with the command, and continues with it.
    suspended: bool,
}

impl Child {
    /// Starts the command. It inherits standard input, output and error.
    pub(crate) fn start(command: &[OsString], variables: [(&str, String); 3]) -> Result<Self, Failure> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Failure::usage("no command is given"))?;
        let child = Command::new(program)
            .args(arguments)
            .envs(variables)
            .process_group(0)
            .spawn()
            .map_err(|error| not_started(program, &error))?;
        let group = Pid::from_child(&child);
        let terminal = Terminal::of(group);
        let changes = Changes::of(group, terminal.is_some())?;
        let child = Self { group, changes, terminal, suspended: false };
        child.enter_the_foreground();
        Ok(child)
    }

    fn enter_the_foreground(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.wanted_at_once())
            && terminal.hand_over()
        {
            // A command quick enough to read before it had the terminal has been stopped for it.
            self.signal(Signal::CONT);
        }
    }

    /// Sends a signal to the whole group, if it is still there.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    /// Sends TERM to the whole group, stopped members included.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Whether any process of the group is left.
    pub(crate) fn group_lives(&self) -> bool {
        test_kill_process_group(self.group).is_ok()
    }

    /// Passes on a signal that this process received.
    pub(crate) fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::CONT
            && std::mem::take(&mut self.suspended)
            && let Some(terminal) = &self.terminal
        {
            terminal.hand_over();
        }
        self.signal(signal);
        if signal == Signal::TSTP {
            self.suspend();
        }
    }

    /// The exit status of a command that has ended.
    pub(crate) fn has_ended(&self) -> Option<u8> {
        let (_, status) = waitpid(Some(self.group), WaitOptions::NOHANG).ok()??;
        Some(exit_status(status))
    }

    /// Resolves with the exit status when the command has ended; handles its stops on the way.
    ///
    /// Cancel safety: dropping the future loses nothing.
    pub(crate) async fn ended(&mut self) -> u8 {
        loop {
            match waitpid(Some(self.group), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => self.stopped(status),
                Ok(Some((_, status))) => return exit_status(status),
                Ok(None) => self.changes.next().await,
                Err(rustix::io::Errno::INTR) => {}
                // Nobody else waits for our child, so this cannot happen; a loop would be worse.
                Err(_) => return exit::UNAVAILABLE,
            }
        }
    }

    /// The command was stopped: by Ctrl-Z, because it needs the terminal, or by a signal from elsewhere. In the last
    /// case it keeps its lock, and nothing is done.
    fn stopped(&mut self, status: WaitStatus) {
        let by = status.stopping_signal();
        let for_terminal = by == Some(Signal::TTIN.as_raw()) || by == Some(Signal::TTOU.as_raw());
        match &self.terminal {
            Some(terminal) if for_terminal && terminal.hand_over() => self.signal(Signal::CONT),
            Some(terminal) if terminal.take_back() => self.suspend_the_job(),
            Some(_) if for_terminal => self.suspend(),
            _ => {}
        }
    }

    /// Stops everything the shell knows as this job, as Ctrl-Z would have without us.
    fn suspend_the_job(&mut self) {
        if getsid(None).ok() == Some(getpgrp()) {
            // No shell with job control could continue this process.
            self.terminal.as_ref().map(Terminal::hand_over);
            return self.signal(Signal::CONT);
        }
        self.suspended = true;
        let _ = kill_current_process_group(Signal::STOP);
    }

    /// Stops this process as well, so that the shell sees it. The lock is not renewed meanwhile; whether it is still
    /// held is checked before the command goes on.
    fn suspend(&mut self) {
        self.suspended = true;
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// The source of changes of the command's state.
enum Changes {
    /// Its end only, without the detour of a signal: all that matters without a terminal.
    End { descriptor: AsyncFd<OwnedFd>, seen: bool },
    /// Every change.
    Any(Stream),
}

impl Changes {
    fn of(child: Pid, in_a_terminal: bool) -> Result<Self, Failure> {
        if !in_a_terminal && let Some(end) = end_of(child) {
            return Ok(Self::End { descriptor: end, seen: false });
        }
        // A change before this is not missed: the state is looked at before each wait.
        listen(SignalKind::child())
            .map(Self::Any)
            .map_err(|error| Failure::new(exit::UNAVAILABLE, format!("could not receive signals: {error}")))
    }

    async fn next(&mut self) {
        match self {
            // It stays readable for ever, but a debugger may keep the end from us: then we must not spin.
            Self::End { seen: true, .. } => tokio::time::sleep(Duration::from_millis(5)).await,
            Self::End { descriptor, seen } => *seen = descriptor.readable().await.is_ok(),
            Self::Any(signals) => {
                signals.recv().await;
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn end_of(child: Pid) -> Option<AsyncFd<OwnedFd>> {
    let end = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::NONBLOCK).ok()?;
    // The successor of this function is unsafe for the sake of types that could swap their descriptor; an
    // `OwnedFd` cannot, and this crate forbids unsafe code.
    #[allow(deprecated)]
    AsyncFd::with_interest(end, tokio::io::Interest::READABLE).ok()
}

#[cfg(not(target_os = "linux"))]
fn end_of(_: Pid) -> Option<AsyncFd<OwnedFd>> {
    None
}

fn exit_status(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => u8::MAX,
    }
}
