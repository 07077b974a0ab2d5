//! A full disk, no permission, no file descriptors, no watches: clear errors, no false grant, nothing left behind.

use crate::support::{Helper, Locks, as_user, connect, is_root, leftovers, program, public_program, wrapped};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// The outcome of a helper that tries a lock once.
fn tried(command: Command) -> String {
    Helper::start(command).receive()
}

/// A file system of its own that can be filled, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "small"]).arg(&at).status();
        assert!(mounted.unwrap().success(), "root may mount");
        Self(at)
    }

    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let filled = std::fs::write(&path, vec![1; 1 << 20]);
        assert!(filled.unwrap_err().to_string().contains("No space left"));
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_passes() {
    if !is_root() {
        eprintln!(
            "only root may mount a small disk: the test with a limited file size stands in for this one"
        );
        return;
    }
    let locks = Locks::new();
    let disk = SmallDisk::mount(locks.outside().join("small"));
    let root = disk.0.join("locks");
    let url = format!("file:{}", root.display());
    let keeper = connect(&url).await;
    let held = keeper.mutex("held").lock().await.unwrap();
    let filler = disk.fill();
    for name in ["other", "held"] {
        let error = keeper.mutex(name).try_lock().await.map(|guard| guard.is_some()).unwrap_err();
        assert!(error.is_temporary() && error.to_string().contains("No space left"), "{error}");
        assert_eq!(leftovers(&root).len(), 1, "only the claim that is held");
    }
    held.release().await.expect("a release needs no room");
    assert_eq!(leftovers(&root), [""; 0]);
    std::fs::remove_file(filler).unwrap();
    keeper.mutex("other").lock().await.unwrap().release().await.unwrap();
    keeper.close().await;
}

#[tokio::test]
async fn a_limited_file_size_is_an_error_and_leaves_nothing_behind() {
    let locks = Locks::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]);
    let reply = tried(wrapped(shell, &std::env::current_exe().unwrap(), "try m", &locks.url()));
    assert!(reply.contains("could not join the queue") && reply.contains("File too large"), "{reply}");
    assert_eq!(locks.leftovers(), [""; 0]);
    let keeper = connect(&locks.url()).await;
    keeper.mutex("m").try_lock().await.unwrap().expect("a free lock").release().await.unwrap();
}

/// A command that runs a program as a user without any rights.
fn as_nobody() -> Command {
    as_user(65_534, 65_534)
}

#[tokio::test]
async fn without_permission_there_is_a_clear_error() {
    let locks = Locks::new();
    let reply = if is_root() {
        let keeper = connect(&locks.url()).await;
        keeper.mutex("m").lock().await.unwrap().release().await.unwrap();
        tried(wrapped(as_nobody(), &public_program(&locks), "try m", &locks.url()))
    } else {
        std::fs::create_dir(locks.root()).unwrap();
        std::fs::set_permissions(locks.root(), std::fs::Permissions::from_mode(0o000)).unwrap();
        tried(program("try m", &locks.url()))
    };
    assert!(reply.starts_with("temporary=false") && reply.contains("Permission denied"), "{reply}");
    assert!(reply.contains(locks.root().to_str().unwrap()), "{reply}");
}

#[tokio::test]
async fn users_who_share_a_directory_exclude_each_other() {
    if !is_root() {
        eprintln!("only root may become another user; nothing to show here");
        return;
    }
    let locks = Locks::new();
    let url = format!("{}?mode=0777", locks.url());
    let helper = public_program(&locks);
    let keeper = connect(&url).await;
    let guard = keeper.mutex("m").lock().await.unwrap();
    assert_eq!(tried(wrapped(as_nobody(), &helper, "try m", &url)), "none");
    guard.release().await.unwrap();
    assert_eq!(tried(wrapped(as_nobody(), &helper, "try m", &url)), "granted");
    // A claim of the other user's, killed, is in nobody's way either.
    let mut holder = Helper::start(wrapped(as_nobody(), &helper, "hold m", &url));
    assert_eq!(holder.receive(), "waiting");
    assert!(holder.receive().starts_with("held "));
    assert!(keeper.mutex("m").try_lock().await.unwrap().is_none());
    holder.kill();
    keeper.mutex("m").try_lock().await.unwrap().expect("a free lock").release().await.unwrap();
    assert_eq!(locks.leftovers(), [""; 0]);
}

#[tokio::test]
async fn without_file_descriptors_there_is_a_clear_error_and_holds_stay() {
    let locks = Locks::new();
    let keeper = connect(&locks.url()).await;
    let taken = keeper.mutex("taken").lock().await.unwrap();
    let mut helper = Helper::start(program("exhaust", &locks.url()));
    assert_eq!(helper.receive(), "fine");
    helper.finish();
    taken.release().await.unwrap();
    assert_eq!(locks.leftovers(), [""; 0]);
}

#[tokio::test]
async fn without_watches_a_waiter_polls() {
    let locks = Locks::new();
    let keeper = connect(&locks.url()).await;
    let guard = keeper.mutex("m").lock().await.unwrap();
    let mut unshare = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_inotify_instances || exit 9; exec \"$@\"";
    unshare.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    let command = wrapped(unshare, &std::env::current_exe().unwrap(), "hold m", &locks.url());
    let mut waiter = Helper::start(command);
    assert_eq!(waiter.receive(), "waiting");
    guard.release().await.unwrap();
    assert!(waiter.receive().starts_with("held "));
    waiter.finish();
    assert_eq!(locks.leftovers(), [""; 0]);
}
