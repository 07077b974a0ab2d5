//! Starts processes which die with this process, even when it is killed.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::error::{Error, Result, Trying};

/// A command which the kernel kills when the thread that spawned it ends.
///
/// PostgreSQL and MariaDB refuse to run as root: `user` is whom root becomes for them. Others cannot
/// become anyone, and run everything as themselves.
pub(crate) fn bound_command(program: &Path, user: Option<&str>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user.filter(|_| is_root()) {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    // setpriv asks for the signal after the change of user, which would clear it.
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.stdin(Stdio::null()).current_dir("/");
    command
}

/// Gives a file or folder, and all in it, to the user of [`bound_command`].
pub(crate) fn give(path: &Path, user: &str) -> Result<()> {
    if is_root() {
        let mut chown = Command::new("chown");
        chown.args(["-R", &format!("{user}:{user}")]).arg(path);
        run(chown)?;
    }
    Ok(())
}

/// Runs a command to its end; its output is told when it fails.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let program = name(&command);
    let output = command.output().trying(format!("run {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(Error::Command { program, output: String::from_utf8_lossy(&text).into_owned() })
}

/// Spawns from a thread that lives as long as the process: a server bound to the caller's thread would
/// be killed when, say, the test that started it for others ends.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (reply, spawned) = mpsc::channel();
    spawner().send((command, reply)).expect("the spawner lives as long as the process");
    spawned.recv().expect("the spawner lives as long as the process")
}

type Order = (Command, Sender<io::Result<Child>>);

fn spawner() -> &'static Sender<Order> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("testkit-spawner".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("the spawner's thread starts");
        orders
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What runs behind setpriv.
fn name(command: &Command) -> String {
    let program = command.get_args().skip_while(|argument| *argument != "--").nth(1);
    let program = program.filter(|_| command.get_program() == OsStr::new("setpriv"));
    program.unwrap_or(command.get_program()).to_string_lossy().into_owned()
}
