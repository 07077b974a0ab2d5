//! What the tests share: keepers on a throw-away file, a liveness limit, and a helper process to kill.

use lockkeeper_core::engine::Address;
use lockkeeper_core::{Keeper, Result};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take before the test calls it stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(30);

/// A TTL that no test lives to see: what happens before was a message, not an expiry.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(600);

pub(crate) struct File {
    directory: tempfile::TempDir,
    style: &'static str,
}

impl File {
    pub(crate) fn new(style: &'static str) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), style }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("locks.db")
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}?style={}", self.path().display(), self.style)
    }

    pub(crate) async fn keeper(&self, ttl: Duration) -> Keeper {
        keeper(&self.url(), ttl).await.unwrap()
    }

    /// A look or a change from outside, as with the sqlite3 shell.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(STUCK).unwrap();
        connection
    }

    pub(crate) fn count(&self, table: &str) -> i64 {
        self.sql().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    /// A process of this test binary that holds the lock until it is killed. Returns when it holds.
    pub(crate) fn holder(&self, ttl: Duration) -> Holder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "support::the_process_to_kill", "--nocapture"])
            .env("HOLD", self.url())
            .env("HOLD_TTL_MS", ttl.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(|line| line.ok()).any(|line| line.contains("holding")), "the helper holds");
        Holder(child)
    }
}

pub(crate) struct Holder(Child);

impl Holder {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of the helper process; does nothing in a usual test run.
#[tokio::test]
async fn the_process_to_kill() {
    let Ok(url) = std::env::var("HOLD") else { return };
    let ttl = Duration::from_millis(std::env::var("HOLD_TTL_MS").unwrap().parse().unwrap());
    let keeper = keeper(&url, ttl).await.unwrap();
    let _guard = keeper.mutex("job").lock().await.unwrap();
    println!("holding");
    std::future::pending::<()>().await;
}

pub(crate) async fn keeper(url: &str, ttl: Duration) -> Result<Keeper> {
    Keeper::builder().ttl(ttl).build(lockkeeper_sqlite::connect(Address::parse(url)?, ttl).await?)
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(STUCK, future).await.expect("stuck")
}

/// Waits until the condition holds, for what happens in the background.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
