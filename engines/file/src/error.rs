//! From a failed system call to an error that says what, where and whether it may pass.

use lockkeeper_core::Error;
use rustix::io::Errno;
use std::path::Path;

pub(crate) const ENGINE: &str = "file";

/// The error for a failed call on a path. Full disks and exhausted descriptors may pass; a missing permission or
/// a wrong kind of file will not.
pub(crate) fn from_errno(doing: &'static str, path: &Path, errno: Errno) -> Error {
    let mut source = format!("{}: {}", path.display(), std::io::Error::from(errno));
    if errno == Errno::ACCESS {
        source += "; if users share this directory, every user must give ?mode=…, such as file:/srv/locks?mode=0770, from its \
                   first use on";
    }
    if will_stay(errno) {
        Error::permanent(ENGINE, doing, source)
    } else {
        Error::temporary(ENGINE, doing, source)
    }
}

fn will_stay(errno: Errno) -> bool {
    let lasting = [
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::NOSYS,
        Errno::OPNOTSUPP,
        Errno::NOLCK,
    ];
    lasting.contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_may_pass_and_a_missing_permission_does_not() {
        let full = from_errno("join the queue", Path::new("/locks"), Errno::NOSPC);
        assert!(full.is_temporary());
        assert!(full.to_string().contains("/locks: No space left"), "{full}");
        let refused = from_errno("join the queue", Path::new("/locks"), Errno::ACCESS);
        assert!(
            !refused.is_temporary() && refused.to_string().contains("every user must give ?mode="),
            "{refused}"
        );
    }
}
