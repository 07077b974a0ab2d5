//! What the URL says: the file, the style, and whether the file is in a place where SQLite's locks work.

use lockkeeper_core::engine::Address;
use lockkeeper_core::{Error, Result};
use rustix::fs::{Access, access, statfs};
use std::path::{Path, PathBuf};

/// The settings of one engine.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) style: &'static str,
    pub(crate) path: PathBuf,
    allow_network: bool,
}

/// The styles there are; the first is the default.
pub(crate) const STYLE_NAMES: &[&str] = &["queue", "row"];

impl Config {
    /// Takes the parameters this engine knows.
    pub(crate) fn from(mut address: Address) -> Result<Self> {
        let style = address.take_style(STYLE_NAMES)?;
        let allow_network = address.take_flag("allow_network_fs")?;
        address.finish()?;
        if !address.hosts.is_empty() || address.path.is_empty() {
            return Err(Error::invalid(
                "bad SQLite URL: write sqlite:/path/to/locks.db, with one slash and the file's path",
            ));
        }
        Ok(Self { style, path: PathBuf::from(address.path), allow_network })
    }

    /// Finds what SQLite would only report as 'unable to open database file'.
    ///
    /// The file itself is never opened here: closing any descriptor of a file drops every POSIX lock this process has
    /// on it, those of SQLite's own connections included.
    pub(crate) fn check(&self) -> Result<()> {
        let directory = self.directory();
        let refuse = |why: String| Err(Error::permanent("sqlite", "open the database", why));
        if !directory.is_dir() {
            return refuse(format!("the directory {} does not exist: create it first", directory.display()));
        }
        if self.path.is_dir() {
            return refuse(format!("{} is a directory: name a file", self.path.display()));
        }
        if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            let place = directory.display();
            return refuse(format!(
                "no permission to write to the directory {place}, where SQLite keeps its -wal and -shm files"
            ));
        }
        if self.path.exists() && access(&self.path, Access::READ_OK | Access::WRITE_OK).is_err() {
            return refuse(format!(
                "no permission to read and write {}, or it is read-only",
                self.path.display()
            ));
        }
        if self.allow_network {
            return Ok(());
        }
        match statfs(directory).map(|found| network_file_system(found.f_type as u64)) {
            Ok(Some(kind)) => refuse(format!(
                "{} is on {kind}, where SQLite's WAL does not work between machines: choose a local disk, \
                 or give ?allow_network_fs if just this one machine uses it",
                directory.display()
            )),
            // A file system that does not say what it is can still be tried.
            _ => Ok(()),
        }
    }

    /// The directory that the file is in.
    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// The name of a network (or shared) file system, by the kernel's magic number.
fn network_file_system(magic: u64) -> Option<&'static str> {
    // The kernel's field is signed and of 32 bits on some machines.
    match magic & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9p (a virtual machine's share)"),
        0x6573_5546 => Some("FUSE (sshfs, virtiofs or the like)"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from(Address::parse(url).unwrap())
    }

    #[test]
    fn the_url_names_a_file_and_a_style() {
        let config = config("sqlite:/var/lib/locks.db?style=row").unwrap();
        assert_eq!((config.style, config.path.to_str()), ("row", Some("/var/lib/locks.db")));
        assert_eq!(config.directory(), Path::new("/var/lib"));
        assert_eq!(
            super::Config::from(Address::parse("sqlite:locks.db").unwrap()).unwrap().directory(),
            Path::new(".")
        );
    }

    #[test]
    fn a_wrong_url_is_refused_with_advice() {
        for (url, advice) in [
            ("sqlite:", "sqlite:/path"),
            ("sqlite://locks.db", "one slash"),
            ("sqlite:/x?style=plain", "queue, row"),
            ("sqlite:/x?colour=red", "allow_network_fs"),
        ] {
            assert!(config(url).unwrap_err().to_string().contains(advice), "{url}");
        }
    }

    #[test]
    fn network_file_systems_are_known_and_local_ones_pass() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        assert_eq!(network_file_system(0xff53_4d42_u32 as i32 as i64 as u64), Some("SMB"));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e] {
            assert_eq!(network_file_system(local), None);
        }
    }
}
