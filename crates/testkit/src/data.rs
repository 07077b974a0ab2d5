//! Throw-away directories, removed on drop; those of dead processes are swept at first use.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;
use std::sync::Once;

use tempfile::TempDir;

use crate::error::{Result, Trying};

const PREFIX: &str = "lockkeeper-testkit-";

/// A new empty directory, which servers under another user may enter.
pub(crate) fn directory() -> Result<TempDir> {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(sweep);
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", process::id()))
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .trying("create a data directory")
}

/// Removes what killed processes left behind.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(owner).is_some_and(is_dead) {
            // Another user's directory is not ours to remove; another process may sweep it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process which made the directory of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_dead(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_name_tells_its_owner() {
        assert_eq!(owner("lockkeeper-testkit-42-x1y2"), Some(42));
        assert_eq!(owner("lockkeeper-42-x1y2"), None);
    }

    #[test]
    fn a_sweep_spares_the_living() {
        let own = directory().unwrap();
        let left_behind = std::env::temp_dir().join(format!("{PREFIX}{}-left", u32::MAX));
        fs::create_dir_all(&left_behind).unwrap();
        sweep();
        assert!(own.path().exists());
        assert!(!left_behind.exists());
    }
}
