//! What a cell has for itself: a process, and where its fault needs them a clock of the servers, a
//! network, a disk, process ids.

use crate::fault::Fault;
use crate::shim::Shim;
use crate::{Error, Result, isolation};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder for what is not the servers', if theirs is a disk that fills.
const SCRATCH: &str = "LOCKKEEPER_FAULTS_SCRATCH";
/// Room enough for every engine.
const ROOM: &str = "2g";

/// This program, to run a cell of this fault; the folder is for what it needs.
pub(crate) fn command(fault: Fault, folder: &Path) -> Result<Command> {
    // Also if the file was replaced by a newer one meanwhile.
    let program = format!("/proc/{}/exe", std::process::id());
    let mut command = if fault.needs_root() { Command::new("unshare") } else { Command::new(&program) };
    match fault {
        Fault::CutPackets | Fault::LeaderCut => {
            command.arg("--net").arg(&program);
        }
        Fault::ServerPids => {
            // The first process reaps those that lost their parent; the program has another number there.
            command.args([
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                "\"$@\"; exit $?",
                "sh",
            ]);
            command.arg(std::env::current_exe()?);
        }
        Fault::FullDisk => {
            command.arg("--mount").arg(&program);
            let disk = folder.join("disk");
            fs::create_dir(&disk)?;
            // Servers may run as another user.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            command.env(SCRATCH, std::env::temp_dir()).env("TMPDIR", disk);
        }
        fault if fault.sets_server_clock() => {
            command.envs(Shim::build(folder)?.environment());
        }
        _ => {}
    }
    Ok(command)
}

/// Makes ready what the cell has for itself.
pub(crate) fn enter(fault: Fault) -> Result<()> {
    match fault {
        Fault::CutPackets | Fault::LeaderCut => {
            run("ip", &["link", "set", "lo", "up"].map(OsStr::new))?;
            isolation::prepare()
        }
        Fault::FullDisk => {
            let options = format!("size={ROOM},mode=1777");
            run(
                "mount",
                &[
                    "-t".as_ref(),
                    "tmpfs".as_ref(),
                    "-o".as_ref(),
                    options.as_ref(),
                    "faults".as_ref(),
                    disk()?.as_os_str(),
                ],
            )
        }
        _ => Ok(()),
    }
}

/// Where histories are kept.
pub(crate) fn scratch() -> PathBuf {
    std::env::var_os(SCRATCH).map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The disk that fills.
fn disk() -> Result<PathBuf> {
    let disk = std::env::temp_dir();
    if disk == scratch() { Err(Error::new("there is no disk for this cell alone")) } else { Ok(disk) }
}

/// The next process gets this id, if it is free.
pub(crate) fn set_next_pid(pid: u32) -> Result<()> {
    Ok(fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?)
}

/// Leaves no room on the cell's disk.
pub(crate) fn fill_disk() -> Result<()> {
    const TRIES: u32 = 100;
    let disk = disk()?;
    let mut outcome = Ok(());
    // It cannot be smaller than what is written meanwhile.
    for _ in 0..TRIES {
        let status = rustix::fs::statvfs(&disk).map_err(std::io::Error::from)?;
        outcome = resize(&disk, &((status.f_blocks - status.f_bfree) * status.f_frsize).to_string());
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Makes room again.
pub(crate) fn empty_disk() -> Result<()> {
    resize(&disk()?, ROOM)
}

fn resize(disk: &Path, size: &str) -> Result<()> {
    let options = format!("remount,size={size}");
    run("mount", &["-o".as_ref(), options.as_ref(), disk.as_os_str()])
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(Error::new(format!("{program}: {}", text.trim()))) }
}
