//! The sale as a user runs it, on the file engine.

use serde_json::Value;
use std::process::Command;

fn sale(arguments: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_flash-sale"))
        .env("LOCKKEEPER_URL", format!("file:{}", folder.path().display()))
        .arg("--json")
        .args(arguments)
        .output()
        .expect("the sale");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn with_the_lock_just_the_stock_is_sold_and_in_order() {
    let outcome = &sale(&["--lock", "with", "--stock", "15", "--buyers", "40"])[0];
    assert_eq!((outcome["sold"].as_u64(), outcome["oversold"].as_u64()), (Some(15), Some(0)));
    assert_eq!(outcome["in_order"], true);
}

#[test]
fn without_the_lock_more_is_sold_than_there_is() {
    let outcome = &sale(&["--lock", "without", "--stock", "15", "--buyers", "80"])[0];
    assert!(outcome["oversold"].as_u64().expect("a number") > 0, "{outcome}");
}

#[test]
fn a_server_that_crashes_with_the_lock_does_not_stop_the_sale() {
    let outcome = &sale(&["--lock", "with", "--crash", "--stock", "15", "--buyers", "40"])[0];
    assert_eq!((outcome["sold"].as_u64(), outcome["oversold"].as_u64()), (Some(15), Some(0)));
    let delay = outcome["delay_after_crash_ms"].as_f64().expect("the crash happened in the middle");
    assert!(delay < 9_000.0, "the TTL of ten seconds was waited for: {delay} ms");
}

#[test]
fn both_rounds_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_flash-sale"))
        .env("LOCKKEEPER_URL", format!("file:{}", folder.path().display()))
        .args(["--stock", "5", "--buyers", "12"])
        .output()
        .expect("the sale");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("Without a lock") && text.contains("With the lock"), "{text}");
}
