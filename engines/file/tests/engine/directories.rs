//! Which directory it is, and who may use it: the default one of a user, and one that users share.

use crate::support::{Helper, Locks, as_user, is_root, public_program, wrapped};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

/// Users that exist nowhere else.
const USERS: [u32; 2] = [61_001, 61_002];
const GROUP: u32 = 61_100;

fn outcome(command: Command) -> String {
    Helper::start(command).receive()
}

/// The default directory of a throw-away user, or of the present one if only that can be had.
struct Default(Option<u32>);

impl Default {
    fn of(user: u32) -> Self {
        let default = Self(is_root().then_some(user));
        default.remove();
        default
    }

    fn remove(&self) {
        if let Some(user) = self.0 {
            let _ = std::fs::remove_dir_all(format!("/var/tmp/lockkeeper-{user}"));
        }
    }

    fn program(&self, locks: &Locks, task: &str) -> Command {
        let command = self.0.map_or_else(|| Command::new("env"), |user| as_user(user, GROUP));
        wrapped(command, &public_program(locks), task, "")
    }
}

impl Drop for Default {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn the_default_directory_is_the_same_whatever_the_environment() {
    let (locks, default) = (Locks::new(), Default::of(USERS[0]));
    let name = format!("default-{}", std::process::id());
    let mut shell = default.program(&locks, &format!("hold-default {name}"));
    shell.env("XDG_RUNTIME_DIR", locks.outside()).env("HOME", locks.outside()).env("USER", "somebody");
    let mut holder = Helper::start(shell);
    assert_eq!(holder.receive(), "waiting");
    assert!(holder.receive().starts_with("held "));
    for variable in ["XDG_RUNTIME_DIR", "TMPDIR", "HOME", "XDG_STATE_HOME"] {
        let mut cron = default.program(&locks, &format!("try-default {name}"));
        cron.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR").env_remove("HOME");
        assert_eq!(outcome(cron), "none", "without variables");
        let mut other = default.program(&locks, &format!("try-default {name}"));
        other.env(variable, "/var");
        assert_eq!(outcome(other), "none", "{variable}");
    }
    holder.kill();
    assert_eq!(outcome(default.program(&locks, &format!("try-default {name}"))), "granted");
    if let Some(user) = default.0 {
        let made = std::fs::metadata(format!("/var/tmp/lockkeeper-{user}")).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o700);
    }
}

/// Without root there is one user only, and the same steps are done by that one.
#[test]
fn users_who_share_a_directory_by_its_mode_exclude_each_other() {
    for mode in ["0770", "2770"] {
        let locks = Locks::new();
        let program = public_program(&locks);
        if is_root() {
            chown(locks.outside(), None, Some(GROUP)).unwrap();
            std::fs::set_permissions(locks.outside(), std::fs::Permissions::from_mode(0o775)).unwrap();
        }
        let url = format!("{}?mode={mode}", locks.url());
        let user = |user: u32, task: &str| {
            // The umask of the first user takes nothing away from the second.
            let command = if is_root() { as_user(user, GROUP) } else { Command::new("env") };
            let mut shell = command;
            shell.args(["sh", "-c", "umask 077; exec \"$@\"", "sh"]);
            wrapped(shell, &program, task, &url)
        };
        let [one, other] = USERS;
        let mut holder = Helper::start(user(one, "hold m"));
        assert_eq!(holder.receive(), "waiting");
        assert!(holder.receive().starts_with("held "));
        assert_eq!(outcome(user(other, "try m")), "none", "{mode}");
        let mut next = Helper::start(user(other, "hold m"));
        assert_eq!(next.receive(), "waiting");
        holder.kill();
        assert!(next.receive().starts_with("held "), "a killed process of another user is in nobody's way");
        assert_eq!(outcome(user(one, "try m")), "none", "{mode}");
        next.finish();
        assert_eq!(outcome(user(one, "try m")), "granted", "{mode}");
        assert_eq!(locks.leftovers(), [""; 0]);
    }
}
