//! Signals to a server's process and the processes it forked.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to one process; it may have ended already.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The children of a process; theirs are not looked for, since no server has any.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| status(*pid).is_some_and(|status| status.parent == parent))
        .collect()
}

/// Whether a process has ended, be it collected by its parent or not.
pub(crate) fn has_ended(pid: u32) -> bool {
    status(pid).is_none_or(|status| matches!(status.state, 'Z' | 'X'))
}

struct Status {
    state: char,
    parent: u32,
}

fn status(pid: u32) -> Option<Status> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces and parentheses of its own.
    let mut fields = line.rsplit_once(") ")?.1.split(' ');
    Some(Status { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}
