//! Finds the servers' programs where Debian's packages put them.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// Debian's folders which the search path of a normal user may lack.
const USUAL_FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/bin"];
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";
const JARS: &str = "/usr/share/java";
/// Names a folder with the programs and jars of one other version; nothing else is looked at then, lest a test runs
/// unnoticed on the version that is installed. `scripts/versions` makes such folders.
const OTHER_VERSION: &str = "LOCKKEEPER_SERVERS";

/// Whether the servers of an engine are installed; the error tells how to install them.
///
/// The engines are those of `scripts/install-engines`: redis, zookeeper, etcd, mysql, postgres.
///
/// ```
/// assert!(lockkeeper_testkit::install::check("abacus").is_err());
/// ```
pub fn check(engine: &str) -> std::result::Result<(), String> {
    let found = match engine {
        "redis" => program("redis-server", "redis").and_then(|_| program("redis-sentinel", "redis")),
        "zookeeper" => program("java", "zookeeper").and_then(|_| jar("zookeeper.jar", "zookeeper")),
        "etcd" => program("etcd", "etcd"),
        "mysql" => program("mariadbd", "mysql").and_then(|_| program("mariadb-install-db", "mysql")),
        "postgres" => postgres("postgres"),
        _ => return Err(format!("unknown engine {engine:?}: redis, zookeeper, etcd, mysql or postgres")),
    };
    found.map(|_| ()).map_err(|error| error.to_string())
}

/// The path of a program which comes with an engine.
pub(crate) fn program(name: &str, engine: &'static str) -> Result<PathBuf> {
    find(name, folders(other_version())).ok_or(Error::NotInstalled { program: name.into(), engine })
}

fn other_version() -> Option<PathBuf> {
    env::var_os(OTHER_VERSION).map(PathBuf::from)
}

/// Where programs are looked for.
fn folders(other_version: Option<PathBuf>) -> Vec<PathBuf> {
    match other_version {
        Some(folder) => vec![folder],
        None => env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .chain(USUAL_FOLDERS.iter().map(PathBuf::from))
            .collect(),
    }
}

fn find(name: &str, folders: Vec<PathBuf>) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The path of one of the newest PostgreSQL's programs, which Debian keeps off the search path.
pub(crate) fn postgres(name: &str) -> Result<PathBuf> {
    if other_version().is_some() {
        return program(name, "postgres");
    }
    let folders = fs::read_dir(POSTGRES_VERSIONS).into_iter().flatten().flatten();
    folders
        .filter_map(|folder| Some((folder.file_name().to_str()?.parse().ok()?, folder.path())))
        .filter(|(_, folder): &(u32, PathBuf)| folder.join("bin").join(name).is_file())
        .max()
        .map(|(_, folder)| folder.join("bin").join(name))
        .map_or_else(|| program(name, "postgres"), Ok)
}

/// The path of a Java library.
pub(crate) fn jar(name: &str, engine: &'static str) -> Result<PathBuf> {
    let folder = other_version().unwrap_or_else(|| JARS.into());
    find(name, vec![folder]).ok_or(Error::NotInstalled { program: name.into(), engine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_the_remedy() {
        let error = program("no-such-server", "redis").unwrap_err().to_string();
        assert_eq!(error, "no-such-server is not installed: run scripts/install-engines redis");
    }

    #[test]
    fn another_version_is_looked_for_in_its_folder_only() {
        let other = tempfile::tempdir().unwrap();
        assert!(find("sh", folders(None)).is_some());
        assert_eq!(find("sh", folders(Some(other.path().into()))), None);
        fs::write(other.path().join("sh"), "").unwrap();
        assert_eq!(find("sh", folders(Some(other.path().into()))), Some(other.path().join("sh")));
    }
}
