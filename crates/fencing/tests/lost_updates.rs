//! One lost update in slow motion: a holder process is stopped between its read and its write until it has lost the lock.

use lockkeeper::{Connect, Keeper, Token};
use lockkeeper_fencing::file::FencedFile;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const STUCK: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq)]
enum Protection {
    Lock,
    FenceOnWrites,
    FenceOnReadsAndWrites,
}

fn protection(word: &str) -> Protection {
    match word {
        "lock" => Protection::Lock,
        "writes" => Protection::FenceOnWrites,
        _ => Protection::FenceOnReadsAndWrites,
    }
}

fn read(path: &Path, token: Token, protection: Protection) -> u64 {
    let content = match protection {
        Protection::FenceOnReadsAndWrites => FencedFile::at(path).read(token).unwrap(),
        _ => std::fs::read(path).unwrap_or_default(),
    };
    String::from_utf8(content).unwrap().parse().unwrap_or(0)
}

/// Whether the write was accepted.
fn write(path: &Path, token: Token, protection: Protection, number: u64) -> bool {
    let text = number.to_string();
    match protection {
        Protection::Lock => std::fs::write(path, text).is_ok(),
        _ => match FencedFile::at(path).write(token, text.as_bytes()) {
            Ok(()) => true,
            Err(error) => {
                assert!(error.is_stale(), "{error}");
                false
            }
        },
    }
}

async fn keeper(directory: &Path) -> Keeper {
    let url = format!("sqlite:{}", directory.join("locks.db").display());
    Connect::to(url).ttl(Duration::from_secs(2)).connect().await.unwrap()
}

/// The process to stop; does nothing in a usual test run.
#[tokio::test]
async fn the_process_to_stop() {
    let (Ok(directory), Ok(word)) = (std::env::var("FENCED_DIRECTORY"), std::env::var("FENCED_BY")) else {
        return;
    };
    let (directory, protection) = (Path::new(&directory), protection(&word));
    let guard = keeper(directory).await.mutex("number").lock().await.unwrap();
    let (path, token) = (directory.join("number"), guard.token().unwrap());
    let number = read(&path, token, protection);
    println!("\nread");
    std::io::stdin().lines().next();
    let accepted = write(&path, token, protection, number + 1);
    println!("\n{}", if accepted { "accepted" } else { "refused" });
}

struct Helper {
    child: std::process::Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<ChildStdout>>,
}

impl Helper {
    fn start(directory: &Path, word: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_to_stop", "--nocapture"])
            .env("FENCED_DIRECTORY", directory)
            .env("FENCED_BY", word)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    fn hear(&mut self, words: &[&str]) -> String {
        let mut lines = self.output.by_ref().map_while(|line| line.ok());
        lines.find(|line| words.contains(&line.as_str())).expect("the helper process says it")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two holders each add one; answers how many writes were accepted, and the number in the end.
async fn two_holders(word: &str) -> (u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    let (path, protection) = (directory.path().join("number"), protection(word));
    let mut first = Helper::start(directory.path(), word);
    first.hear(&["read"]);
    first.signal(Signal::STOP);
    // Granted when the stopped process's claim has expired.
    let keeper = keeper(directory.path()).await;
    let guard = tokio::time::timeout(STUCK, keeper.mutex("number").lock()).await.expect("stuck").unwrap();
    let token = guard.token().unwrap();
    let number = read(&path, token, protection);
    first.signal(Signal::CONT);
    first.input.write_all(b"go on\n").unwrap();
    let mut accepted = u64::from(first.hear(&["accepted", "refused"]) == "accepted");
    accepted += u64::from(write(&path, token, protection, number + 1));
    let text = std::fs::read_to_string(&path).unwrap();
    (accepted, text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_alone_loses_an_update_of_a_paused_holder() {
    assert_eq!(two_holders("lock").await, (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_on_writes_only_loses_it_too() {
    assert_eq!(two_holders("writes").await, (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_on_reads_and_writes_loses_nothing() {
    assert_eq!(two_holders("both").await, (1, 1));
}
