//! What the kit's own tests share.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::path::PathBuf;
use std::process::Command;

/// The answer of a Redis server.
pub(crate) fn redis_cli(port: u16, command: &[&str]) -> String {
    output(Command::new("redis-cli").args(["-p", &port.to_string()]).args(command))
}

/// What a command which must succeed prints.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Checks that process and directory exist, and no longer do after `dropping`.
pub(crate) fn assert_gone(pid: u32, directory: PathBuf, dropping: impl FnOnce()) {
    assert!(runs(pid) && directory.exists());
    dropping();
    assert!(!runs(pid), "process {pid} is left");
    assert!(!directory.exists(), "{} is left", directory.display());
}

/// Whether a process is stopped by SIGSTOP.
pub(crate) fn is_stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ")
}

/// Whether a process exists and is not a zombie.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
