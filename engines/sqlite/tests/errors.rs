//! What cannot be used is refused with a sentence that says why.

mod common;

use common::{File, keeper};
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
async fn tables_of_another_version_are_refused() {
    let file = File::new("queue");
    file.keeper(Duration::from_secs(2)).await.close().await;
    file.sql().execute("UPDATE lockkeeper_counter SET layout = 2", []).unwrap();
    let text = refusal(&file.url()).await;
    assert!(text.contains("layout 2"), "{text}");
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
