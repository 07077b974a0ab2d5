//! A disk that does not answer costs only the locks that are on it.

use crate::support::{File, soon};
use lockkeeper_core::engine::Memory;
use lockkeeper_core::{Guard, Keeper, State};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The TTL of the keeper on another engine of the same process.
const TTL: Duration = Duration::from_millis(900);

/// A process that was stopped in the middle of a commit. SQLite waits some ten seconds for it, inside of each call.
struct StoppedCommit(Child);

impl StoppedCommit {
    fn of(file: &File) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stall::the_process_to_stop", "--nocapture"])
            .env("COMMIT", file.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(|line| line.ok()).any(|line| line.contains("committing")));
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        Self(child)
    }
}

impl Drop for StoppedCommit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of the helper process; does nothing in a usual test run.
#[test]
fn the_process_to_stop() {
    let Ok(path) = std::env::var("COMMIT") else { return };
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The index of the log has its head twice, and a commit writes one after the other: between them they differ. The file
    // is not closed, since that would drop the locks which SQLite has on it.
    let index = std::fs::File::options().read(true).write(true).open(format!("{path}-shm")).unwrap();
    let mut change = [0; 4];
    index.read_exact_at(&mut change, 8).unwrap();
    index.write_all_at(&change.map(|byte| !byte), 8).unwrap();
    println!("committing");
    loop {
        std::thread::park();
    }
}

/// Watches the lock of another engine for three of its TTLs.
fn stays_held(guard: &Guard, doing: &str) {
    let start = Instant::now();
    while start.elapsed() < TTL * 3 {
        assert_eq!(guard.state(), State::Held, "after {:?} {doing}", start.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn a_stalled_database_costs_no_other_lock(style: &'static str) {
    let elsewhere = Keeper::builder().ttl(TTL).build(Memory::engine()).unwrap();
    let other = elsewhere.mutex("other").lock().await.unwrap();
    let file = File::new(style);
    let keeper = file.keeper(Duration::from_secs(2)).await;
    let [renewed, dropped] = [keeper.mutex("renewed").lock().await, keeper.mutex("dropped").lock().await];
    let renewed = renewed.unwrap();
    let stopped = StoppedCommit::of(&file);
    drop(dropped);
    stays_held(&other, "of renewals and departures that stall");
    assert_eq!(renewed.state(), State::Lost, "its own lock is not believed in for longer than its TTL");
    drop((keeper, renewed));
    stays_held(&other, "of a close that stalls");
    drop(stopped);
    let keeper = file.keeper(Duration::from_secs(30)).await;
    for name in ["renewed", "dropped"] {
        soon(keeper.mutex(name).lock()).await.unwrap().release().await.unwrap();
    }
    other.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_database_costs_no_other_lock_in_style_queue() {
    a_stalled_database_costs_no_other_lock("queue").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_database_costs_no_other_lock_in_style_row() {
    a_stalled_database_costs_no_other_lock("row").await;
}
