//! How far the engine is from what SQLite itself can do: two committed single-statement writes against our pairs.
//!
//! `cargo run --release -p lockkeeper-sqlite --example sqlite_floor`

use lockkeeper_core::address::Address;
use lockkeeper_core::{Keeper, Result};
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(150);
const ROUNDS: usize = 25;

/// The raw floor: an insert and a delete under a unique name, each committed, with the engine's settings.
struct Raw(Mutex<Connection>);

impl Raw {
    fn open(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        connection.execute_batch(
            "CREATE TABLE raw (lock TEXT PRIMARY KEY, id TEXT, who TEXT, expires_at INTEGER) WITHOUT ROWID",
        )?;
        Ok(Self(Mutex::new(connection)))
    }

    fn pair(&self, name: &str) -> rusqlite::Result<()> {
        let id = format!("{:032x}", rand::random::<u128>());
        {
            let connection = self.0.lock().expect("no panic");
            let mut insert = connection.prepare_cached("INSERT INTO raw VALUES (?1, ?2, ?3, ?4)")?;
            insert.execute((name, &id, "floor", 1i64))?;
        }
        let connection = self.0.lock().expect("no panic");
        connection.prepare_cached("DELETE FROM raw WHERE lock = ?1 AND id = ?2")?.execute((name, &id))?;
        Ok(())
    }
}

/// What a round came to.
#[derive(Clone, Copy)]
struct Round {
    /// Pairs per second.
    rate: f64,
    /// Processor time per pair, which a busy machine disturbs less.
    cpu_micros: f64,
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// So many tasks, each on a name of its own.
async fn round<F>(tasks: usize, pair: impl Fn(String) -> F + Clone + Send + 'static) -> Round
where
    F: Future<Output = ()> + Send,
{
    let (start, cpu) = (Instant::now(), cpu_time());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let pair = pair.clone();
            tokio::spawn(async move {
                let mut pairs = 0u64;
                while start.elapsed() < ROUND {
                    pair(format!("lock/{task}")).await;
                    tokio::task::consume_budget().await;
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let mut pairs = 0;
    for task in running {
        pairs += task.await.expect("no panic");
    }
    let pairs = pairs as f64;
    let cpu_micros = (cpu_time() - cpu).as_secs_f64() * 1e6 / pairs;
    Round { rate: pairs / start.elapsed().as_secs_f64(), cpu_micros }
}

async fn keeper(directory: &Path, style: &str) -> Result<Keeper> {
    let url = format!("sqlite:{}?style={style}", directory.join(format!("{style}.db")).display());
    let ttl = Duration::from_secs(10);
    Keeper::builder().ttl(ttl).build(lockkeeper_sqlite::connect(Address::parse(&url)?, ttl).await?)
}

/// The value below which so many quarters of the numbers are.
fn quartile(numbers: impl Iterator<Item = f64>, quarters: usize) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * quarters / 4]
}

async fn floor_round(tasks: usize, raw: &Arc<Raw>) -> Round {
    let raw = Arc::clone(raw);
    round(tasks, move |name: String| {
        let raw = Arc::clone(&raw);
        async move { raw.pair(&name).expect("the raw floor works") }
    })
    .await
}

async fn our_round(tasks: usize, keeper: &Keeper) -> Round {
    let keeper = keeper.clone();
    round(tasks, move |name: String| {
        let keeper = keeper.clone();
        async move {
            let guard = keeper.mutex(name).lock().await.expect("a lock of one's own is free");
            guard.release().await.expect("it is ours");
        }
    })
    .await
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let raw = Arc::new(Raw::open(&directory.path().join("raw.db"))?);
    println!("pairs per second, median of {ROUNDS} rounds, raw and ours by turns");
    for tasks in [1, 64] {
        for style in lockkeeper_sqlite::STYLES.iter().map(|style| style.style) {
            let keeper = keeper(directory.path(), style).await?;
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                rounds.push((floor_round(tasks, &raw).await, our_round(tasks, &keeper).await));
            }
            keeper.close().await;
            let median = |of: fn(&(Round, Round)) -> f64| quartile(rounds.iter().map(of), 2);
            let ratio =
                |quarters| quartile(rounds.iter().map(|(floor, our)| our.rate / floor.rate), quarters);
            println!(
                "{style:<6} {tasks:>3} task(s): floor {:>6.0} ({:.1} µs of processor time), ours {:>6.0} ({:.1} µs), \
                 ratio {:.2} (half of the rounds within {:.2} to {:.2})",
                median(|(floor, _)| floor.rate),
                median(|(floor, _)| floor.cpu_micros),
                median(|(_, our)| our.rate),
                median(|(_, our)| our.cpu_micros),
                ratio(2),
                ratio(1),
                ratio(3)
            );
        }
    }
    Ok(())
}
