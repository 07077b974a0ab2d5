//! The engine's URL: which directory, who may share it, and whether it may be on the network.

use crate::network;
use crate::trouble::trouble;
use lockkeeper_core::address::Address;
use lockkeeper_core::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Only this user, unless the URL says otherwise.
const PRIVATE: u32 = 0o700;

/// What the URL says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Absolute, so that a change of the working directory does not move the locks.
    pub(crate) root: PathBuf,
    /// The permissions of directories; `None` means private to this user.
    mode: Option<u32>,
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
        Ok(Self { root, mode, network_allowed })
    }

    /// Makes the directory if it is not there, and refuses one that other machines share.
    pub(crate) fn prepare(&self) -> Result<()> {
        let failed = |errno| trouble("open the directory", &self.root, errno);
        self.make_root().map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &self.root, flags, Mode::empty()).map_err(failed)?;
        if self.network_allowed {
            return Ok(());
        }
        network::refuse(&directory, &self.root)
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

    /// Makes one directory with the permissions asked for; one that is there already stays as it is.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(self.mode.unwrap_or(PRIVATE));
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

    /// The permissions of gates and claims.
    pub(crate) fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode.unwrap_or(PRIVATE) & 0o666)
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
    fn a_url_without_parameters_is_private_and_local() {
        let config = config("file:/var/locks").unwrap();
        assert_eq!(config.root, Path::new("/var/locks"));
        assert_eq!(config.file_mode().as_raw_mode(), 0o600);
        assert!(!config.network_allowed && !config.is_shared());
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
}
