//! Finds the servers' programs where Debian's packages put them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Debian's folders which the search path of a normal user may lack.
const USUAL_FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/bin"];
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";
const JARS: &str = "/usr/share/java";

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
    let search_path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&search_path)
        .chain(USUAL_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or(Error::NotInstalled { program: name.into(), engine })
}

/// The path of one of the newest PostgreSQL's programs, which Debian keeps off the search path.
pub(crate) fn postgres(name: &str) -> Result<PathBuf> {
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
    let path = Path::new(JARS).join(name);
    if path.is_file() { Ok(path) } else { Err(Error::NotInstalled { program: name.into(), engine }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_the_remedy() {
        let error = program("no-such-server", "redis").unwrap_err().to_string();
        assert_eq!(error, "no-such-server is not installed: run scripts/install-engines redis");
    }
}
