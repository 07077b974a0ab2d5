//! What cannot be used is refused with a sentence that says why.

use crate::support::{File, keeper};
use std::time::Duration;

async fn refusal(url: &str) -> String {
    keeper(url, Duration::from_secs(2)).await.expect_err("must be refused").to_string()
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let file = File::new("queue");
    let text = refusal(&format!("sqlite:{}/not/there/x.db", file.directory().display())).await;
    assert!(text.contains("not/there does not exist"), "{text}");
    let text = refusal(&format!("sqlite:{}", file.directory().display())).await;
    assert!(text.contains("is a directory"), "{text}");
}

#[tokio::test]
async fn a_file_of_another_kind_is_not_touched() {
    let file = File::new("queue");
    let poem = "not a database, but a poem of more than a hundred bytes ".repeat(20);
    std::fs::write(file.path(), &poem).unwrap();
    let text = refusal(&file.url()).await;
    assert!(text.contains("not a SQLite database"), "{text}");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), poem);
}

#[tokio::test]
async fn a_database_that_stays_locked_is_reported_as_such() {
    let file = File::new("queue");
    let keeper = file.keeper(Duration::from_millis(200)).await;
    let shell = file.sql();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = keeper.mutex("job").try_lock().await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("kept the database locked"), "{error}");
}

/// Root may write anywhere, so this test runs once more as nobody.
fn run_as_nobody(test: &str) -> bool {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o755);
    let copy = directory.path().join("test");
    // By another process: a child that a neighbouring test starts while this one writes would inherit the open file, and a
    // program that is open for writing cannot be run.
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut nobody = std::process::Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(["--exact", test]);
    let output = nobody.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    true
}

fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn what_must_not_be_written_is_named() {
    if run_as_nobody("errors::what_must_not_be_written_is_named") {
        return;
    }
    let file = File::new("queue");
    file.keeper(Duration::from_secs(2)).await.close().await;
    let new = format!("sqlite:{}/new.db", file.directory().display());
    set_mode(file.directory(), 0o555);
    let in_the_directory = keeper(&new, Duration::from_secs(2)).await.map(drop);
    set_mode(file.directory(), 0o755);
    set_mode(&file.path(), 0o444);
    let the_file = keeper(&file.url(), Duration::from_secs(2)).await.map(drop);
    set_mode(&file.path(), 0o644);
    let text = in_the_directory.unwrap_err().to_string();
    assert!(text.contains("no permission to write to the directory"), "{text}");
    let text = the_file.unwrap_err().to_string();
    assert!(text.contains("no permission to read and write"), "{text}");
}

#[tokio::test]
async fn a_damaged_database_is_reported_as_such() {
    let file = File::new("queue");
    file.keeper(Duration::from_secs(2)).await.close().await;
    file.sql().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let mut bytes = std::fs::read(file.path()).unwrap();
    // The header stays, so that it still looks like a database.
    bytes[100..].fill(0xff);
    std::fs::write(file.path(), &bytes).unwrap();
    let text = refusal(&file.url()).await;
    assert!(text.contains("malformed") || text.contains("not a SQLite database"), "{text}");
}
