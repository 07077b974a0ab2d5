//! Shows lost updates without a fence, and none with one: processes that hold a lock are stopped beyond its TTL.
//!
//! `cargo run --release -p lockkeeper-fencing --example lost_updates [SECONDS PER ROUND]`

use lockkeeper::{Connect, Token};
use lockkeeper_fencing::file::FencedFile;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROCESSES: usize = 4;
const TTL: Duration = Duration::from_millis(300);

/// How the shared number is protected besides the lock.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Protection {
    Lock,
    FenceOnWrites,
    FenceOnReadsAndWrites,
}

const ALL: [(Protection, &str, &str); 3] = [
    (Protection::Lock, "lock", "the lock alone"),
    (Protection::FenceOnWrites, "writes", "fence on writes"),
    (Protection::FenceOnReadsAndWrites, "both", "fence on reads and writes"),
];

/// The shared number.
struct Number {
    path: PathBuf,
    fenced: FencedFile,
    protection: Protection,
}

impl Number {
    fn new(directory: &Path, protection: Protection) -> Self {
        let path = directory.join("number");
        Self { fenced: FencedFile::at(&path), path, protection }
    }

    fn read(&self, token: Token) -> Result<u64, Box<dyn Error>> {
        let text = match self.protection {
            Protection::FenceOnReadsAndWrites => self.fenced.read(token)?,
            _ => std::fs::read(&self.path).unwrap_or_default(),
        };
        Ok(String::from_utf8(text)?.parse().unwrap_or(0))
    }

    fn write(&self, token: Token, number: u64) -> Result<(), Box<dyn Error>> {
        let text = number.to_string();
        if self.protection == Protection::Lock {
            // In one step, so that what is lost is lost by the order of things and not by half a write.
            let new = self.path.with_extension(format!("new-{}", std::process::id()));
            std::fs::write(&new, text)?;
            return Ok(std::fs::rename(new, &self.path)?);
        }
        Ok(self.fenced.write(token, text.as_bytes())?)
    }
}

/// One process: adds one under the lock, again and again; answers how often that was acknowledged and refused.
async fn work(
    directory: &Path,
    protection: Protection,
    time: Duration,
) -> Result<(u64, u64), Box<dyn Error>> {
    let url = format!("sqlite:{}", directory.join("locks.db").display());
    let keeper = Connect::to(url).ttl(TTL).connect().await?;
    let number = Number::new(directory, protection);
    let (mut added, mut refused) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        let Ok(guard) = keeper.mutex("number").lock().await else { continue };
        // A holder that asks its guard only before the work, as most programs do.
        let Ok(token) = guard.token() else { continue };
        let Ok(read) = number.read(token) else {
            refused += 1;
            continue;
        };
        std::thread::sleep(Duration::from_millis(5)); // the work, in which most of the pauses fall
        match number.write(token, read + 1) {
            Ok(()) => added += 1,
            Err(_) => refused += 1,
        }
        let _ = guard.release().await;
    }
    keeper.close().await;
    Ok((added, refused))
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process(process, signal);
}

/// Starts the processes, stops one after the other beyond the TTL, and counts.
fn round(protection: &(Protection, &str, &str), time: Duration) -> Result<(), Box<dyn Error>> {
    let (protection, word, title) = *protection;
    let directory = tempfile::tempdir()?;
    let spawn = |_| {
        Command::new(std::env::current_exe()?)
            .args(["work", word, &time.as_millis().to_string()])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut children = (0..PROCESSES).map(spawn).collect::<Result<Vec<Child>, _>>()?;
    let start = Instant::now();
    let mut pauses = 0;
    while start.elapsed() < time {
        let victim = &children[pauses % PROCESSES];
        signal(victim, rustix::process::Signal::STOP);
        std::thread::sleep(TTL.mul_f64(1.2));
        signal(victim, rustix::process::Signal::CONT);
        pauses += 1;
    }
    let (mut added, mut refused) = (0, 0);
    for child in children.drain(..) {
        let output = String::from_utf8(child.wait_with_output()?.stdout)?;
        let mut counts = output.split_whitespace().map(|count| count.parse::<u64>());
        added += counts.next().ok_or("a process died")??;
        refused += counts.next().ok_or("a process died")??;
    }
    let reached = Number::new(directory.path(), Protection::Lock).read(Token(0))?;
    let lost = added - reached;
    println!(
        "{title:<26} {added:>6} acknowledged {reached:>6} reached {lost:>5} lost {refused:>5} refused {pauses:>4} pauses"
    );
    assert!(
        protection != Protection::FenceOnReadsAndWrites || lost == 0,
        "the fence must not let an update be lost"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [work_word, word, millis, directory] = arguments.as_slice()
        && work_word == "work"
    {
        let (protection, ..) = ALL.iter().find(|(_, known, _)| known == word).ok_or("no such protection")?;
        let time = Duration::from_millis(millis.parse()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (added, refused) = runtime.block_on(work(Path::new(directory), *protection, time))?;
        println!("{added} {refused}");
        return Ok(());
    }
    let seconds = arguments.first().map_or(Ok(20), |text| text.parse())?;
    println!(
        "{PROCESSES} processes add one under a lock with a TTL of {TTL:?}; one after the other is stopped for longer"
    );
    ALL.iter().try_for_each(|protection| round(protection, Duration::from_secs(seconds)))
}
