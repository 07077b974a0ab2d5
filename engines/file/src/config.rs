//! The engine's URL: which directory, who may share it, and whether it may be on the network.

use crate::error::from_errno;
use crate::network;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::background;
use lockkeeper_core::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The user's own.
const PRIVATE: u32 = 0o700;
/// What the umask leaves of it.
const BY_UMASK: u32 = 0o777;

/// The directory of a user who names none: one per user and machine, whatever the environment, so that a cron job, a
/// service, a shell and an ssh session of the same user exclude each other. Under sudo it is that of the user whom the
/// command runs as.
///
/// Why there: `/run/user` is there only during a session of the user, and files in `/dev/shm` are removed at its end; `/tmp`
/// is often emptied at boot and cleaned after ten days, and fencing tokens shall grow across a boot whatever the clock says.
pub fn default_directory() -> PathBuf {
    PathBuf::from(format!("/var/tmp/lockkeeper-{}", background::user_id()))
}

/// What the URL says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Absolute, so that a change of the working directory does not move the locks.
    pub(crate) root: PathBuf,
    /// The permissions of directories; `None` means as the umask leaves them.
    mode: Option<u32>,
    /// It is the default directory, in a place where everybody may make one: trusted only if it is the user's own.
    is_default: bool,
    network_allowed: bool,
}

impl Config {
    /// Takes the parameters of `file:/dir?mode=0770&network=allow`.
    pub(crate) fn take(mut address: Address) -> Result<Self> {
        address.take_style(&["queue"])?;
        let mode = address.take("mode").map(|text| parse_mode(&text)).transpose()?;
        let network_allowed = match address.take("network").as_deref() {
            None | Some("refuse") => false,
            Some("allow") => true,
            Some(other) => {
                let text = format!("bad parameter network={other}: expected 'allow' or 'refuse'");
                return Err(Error::invalid(text));
            }
        };
        address.finish()?;
        if !address.hosts.is_empty() {
            return Err(Error::invalid(format!(
                "the file engine serves one machine only, so '{}' must not name a host: write file:/dir",
                address.redacted()
            )));
        }
        let root = std::path::absolute(&address.path)
            .map_err(|_| Error::invalid("the file engine needs a directory: write file:/dir"))?;
        let is_default = root == default_directory();
        if is_default && mode.is_some() {
            return Err(Error::invalid(format!(
                "{} is the user's own and cannot be shared by mode=: name another directory",
                root.display()
            )));
        }
        Ok(Self { root, mode, is_default, network_allowed })
    }

    /// Makes the directory if it is not there, and refuses one that is not to be trusted or that other machines share.
    pub(crate) fn prepare(&self) -> Result<()> {
        let failed = |errno| from_errno("open the directory", &self.root, errno);
        self.make_root().map_err(failed)?;
        let directory = match self.open_root() {
            // Not a directory: O_NOFOLLOW finds a symlink to be one.
            Err(Errno::PERM | Errno::LOOP | Errno::NOTDIR) if self.is_default => return Err(self.foreign()),
            opened => opened.map_err(failed)?,
        };
        if self.network_allowed {
            return Ok(());
        }
        network::refuse(&directory, &self.root)
    }

    /// Opens the directory. The default one must be the user's own, not a symlink, and writable for nobody else; this is
    /// found by the open file, so nobody can exchange it in between. `PERM` if it is not so.
    pub(crate) fn open_root(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !self.is_default {
            return rustix::fs::openat(CWD, &self.root, flags, Mode::empty());
        }
        let directory = rustix::fs::openat(CWD, &self.root, flags | OFlags::NOFOLLOW, Mode::empty())?;
        let found = rustix::fs::fstat(&directory)?;
        let is_own = found.st_uid == background::user_id() && found.st_mode & 0o022 == 0;
        if is_own { Ok(directory) } else { Err(Errno::PERM) }
    }

    fn foreign(&self) -> Error {
        Error::invalid(format!(
            "{} is not trusted: it must be a directory (not a symlink) that belongs to the user {} and that nobody else may \
             write to. Remove it, or name a directory with file:/dir",
            self.root.display(),
            background::user_id()
        ))
    }

    /// Makes the root and whatever is missing above it.
    pub(crate) fn make_root(&self) -> Result<(), Errno> {
        self.make_with_parents(&self.root)
    }

    fn make_with_parents(&self, path: &Path) -> Result<(), Errno> {
        match self.make_directory(path) {
            Err(Errno::NOENT) => {
                let parent = path.parent().ok_or(Errno::NOENT)?;
                self.make_with_parents(parent)?;
                self.make_directory(path)
            }
            settled => settled,
        }
    }

    /// Makes one directory with the permissions of the URL; one that is there already stays as it is.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(self.directory_mode());
        match rustix::fs::mkdirat(CWD, path, mode) {
            Err(Errno::EXIST) => return Ok(()),
            settled => settled?,
        }
        if self.mode.is_some() {
            // The user's umask must not take away what the URL grants to others.
            rustix::fs::chmodat(CWD, path, mode, rustix::fs::AtFlags::empty())?;
        }
        Ok(())
    }

    fn directory_mode(&self) -> u32 {
        self.mode.unwrap_or(if self.is_default { PRIVATE } else { BY_UMASK })
    }

    /// The permissions of gates and claims.
    pub(crate) fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(self.directory_mode() & 0o666)
    }

    /// Whether the file mode must be set again after creation, because of the umask.
    pub(crate) fn is_shared(&self) -> bool {
        self.mode.is_some()
    }
}

fn parse_mode(text: &str) -> Result<u32> {
    let bad = || {
        Error::invalid(format!(
            "bad parameter mode={text}: expected octal permissions that include the owner's, such as 0770"
        ))
    };
    let mode = u32::from_str_radix(text, 8).map_err(|_| bad())?;
    if mode > 0o7777 || mode & 0o700 != 0o700 { Err(bad()) } else { Ok(mode) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::take(Address::parse(url)?)
    }

    #[test]
    fn a_url_without_parameters_is_local_and_as_the_umask_gives() {
        let config = config("file:/var/locks").unwrap();
        assert_eq!(config.root, Path::new("/var/locks"));
        assert_eq!(config.file_mode().as_raw_mode(), 0o666);
        assert!(!config.network_allowed && !config.is_shared() && !config.is_default);
    }

    #[test]
    fn the_default_directory_is_private_however_it_is_named() {
        let url = format!("file:{}", default_directory().display());
        let default = config(&url).unwrap();
        assert_eq!(default.file_mode().as_raw_mode(), 0o600);
        assert!(default.is_default && !default.is_shared());
        assert!(config(&format!("{url}?mode=0770")).unwrap_err().to_string().contains("user's own"));
    }

    #[test]
    fn others_may_be_let_in() {
        let config = config("file:/var/locks?mode=2770&network=allow&style=queue").unwrap();
        assert_eq!(config.file_mode().as_raw_mode(), 0o660);
        assert!(config.network_allowed && config.is_shared());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, why) in [
            ("file:", "needs a directory"),
            ("file://host/dir", "must not name a host"),
            ("file:/x?mode=abc", "octal"),
            ("file:/x?mode=0070", "owner"),
            ("file:/x?network=yes", "'allow'"),
            ("file:/x?style=plain", "queue"),
            ("file:/x?moed=0770", "'moed'"),
        ] {
            let error = config(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn a_default_directory_that_is_not_ones_own_is_refused() {
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
        let temporary = tempfile::tempdir().unwrap();
        let default = |name: &str| Config {
            root: temporary.path().join(name),
            mode: None,
            is_default: true,
            network_allowed: false,
        };
        let refused = |config: Config| {
            let error = config.prepare().unwrap_err().to_string();
            assert!(error.contains("is not trusted"), "{error}");
            assert!(config.open_root().is_err(), "not later either");
        };
        default("new").prepare().unwrap();
        let made = std::fs::metadata(temporary.path().join("new")).unwrap().permissions();
        assert_eq!(made.mode() & 0o7777, 0o700);
        symlink(temporary.path().join("new"), temporary.path().join("link")).unwrap();
        refused(default("link"));
        std::fs::write(temporary.path().join("file"), "").unwrap();
        refused(default("file"));
        for mode in [0o770, 0o707, 0o1777] {
            default("open").make_root().unwrap();
            let open = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(temporary.path().join("open"), open).unwrap();
            refused(default("open"));
        }
        // Only root can make a directory of somebody else's; for all others root's is one.
        let foreign = if background::user_id() == 0 {
            default("foreign").make_root().unwrap();
            chown(temporary.path().join("foreign"), Some(65_534), None).unwrap();
            default("foreign")
        } else {
            default("/usr")
        };
        refused(foreign);
    }
}
