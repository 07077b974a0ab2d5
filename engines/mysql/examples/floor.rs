//! How near each style comes to the raw floor: the same server, the same driver, the same run.
//!
//! `cargo run --release -p lockkeeper-mysql --example floor [-- URL]`; without a URL it starts a server.

use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 5;
/// As many connections as the queue style opens.
const CONNECTIONS: usize = 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A connection for one task at a time, as the protocol wants it.
struct Raw {
    conn: tokio::sync::Mutex<Conn>,
    first: &'static str,
    second: &'static str,
}

async fn raw(url: &str, first: &'static str, second: &'static str) -> Result<Raw, Failure> {
    let conn = Conn::new(Opts::from_url(url)?).await?;
    Ok(Raw { conn: tokio::sync::Mutex::new(conn), first, second })
}

/// Pairs a second of so many tasks, each running pairs one after the other.
async fn rate<F>(tasks: usize, pair: impl Fn(usize, u64) -> F + Clone + Send + Sync + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let (count, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (pair, count) = (pair.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let mut turn = 0;
                while start.elapsed() < ROUND {
                    pair(task, turn).await;
                    count.fetch_add(1, Relaxed);
                    turn += 1;
                }
            })
        })
        .collect();
    for task in all {
        task.await.expect("a task");
    }
    count.load(Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

async fn compare(
    url: &str,
    style: &str,
    tasks: usize,
    floor: &[(&'static str, &'static str)],
    connections: usize,
) -> Result<(), Failure> {
    let more = if style == "session" { "&connections=64" } else { "" };
    let keeper = lockkeeper::connect(format!("{url}?style={style}{more}")).await?;
    let (first, second) = floor[0];
    let mut raws = Vec::new();
    for _ in 0..if tasks == 1 { 1 } else { connections } {
        raws.push(raw(url, first, second).await?);
    }
    let raws = Arc::new(raws);
    let (mut floors, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let raws = Arc::clone(&raws);
        let floor = rate(tasks, move |task, _| {
            let raws = Arc::clone(&raws);
            async move {
                let raw = &raws[task % raws.len()];
                let name = format!("floor/{task}");
                raw.conn.lock().await.exec_drop(raw.first, (&name,)).await.expect("the first");
                raw.conn.lock().await.exec_drop(raw.second, (&name,)).await.expect("the second");
            }
        })
        .await;
        let mine = keeper.clone();
        let our = rate(tasks, move |task, _| {
            let keeper = mine.clone();
            async move {
                let guard = keeper.mutex(format!("floor/{task}")).lock().await.expect("a lock");
                guard.release().await.expect("a release");
            }
        })
        .await;
        floors.push(floor);
        ours.push(our);
        ratios.push(our / floor);
    }
    println!(
        "{style:9} {tasks:3} task(s): floor {:7.0} pairs/s, ours {:7.0} pairs/s, ratio {:.2} (of {:.2?})",
        median(floors),
        median(ours),
        median(ratios.clone()),
        ratios
    );
    keeper.close().await;
    Ok(())
}

/// How long from a release until the next one holds, both in this process but on keepers of their own.
async fn hand_over(url: &str, style: &str) -> Result<(), Failure> {
    let url = format!("{url}?style={style}");
    let keepers = [lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?];
    let mut times = Vec::new();
    let mut guard = keepers[0].mutex("hand-over").lock().await?;
    for turn in 1..400usize {
        let keeper = keepers[turn % 2].clone();
        let next = tokio::spawn(async move {
            let guard = keeper.mutex("hand-over").lock().await.expect("a lock");
            (Instant::now(), guard)
        });
        tokio::time::sleep(Duration::from_millis(4)).await;
        let released = Instant::now();
        guard.release().await?;
        let (held, after) = next.await?;
        guard = after;
        times.push((held - released).as_secs_f64() * 1000.0);
    }
    guard.release().await?;
    times.sort_by(f64::total_cmp);
    println!(
        "{style:9} hand-over: median {:.2} ms, 99th of 100 {:.2} ms",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let given = std::env::args().nth(1);
    let server = given.is_none().then(|| MariaDb::start_with(&["--max-connections=300"]));
    let url = given.unwrap_or_else(|| server.as_ref().map(|server| server.url()).unwrap_or_default());
    let mut conn = Conn::new(Opts::from_url(&url)?).await?;
    conn.query_drop("CREATE TABLE IF NOT EXISTS floor (name VARBINARY(640) PRIMARY KEY)").await?;
    let writes = [("INSERT INTO floor VALUES (?)", "DELETE FROM floor WHERE name = ?")];
    let advisory = [("DO GET_LOCK(?, 0)", "DO RELEASE_LOCK(?)")];
    let styles: Vec<&str> = lockkeeper_mysql::STYLES.iter().map(|style| style.style).collect();
    for style in styles {
        let (floor, connections) = if style == "advisory" { (&advisory, 1) } else { (&writes, CONNECTIONS) };
        for tasks in [1, 64] {
            compare(&url, style, tasks, floor, connections).await?;
        }
        hand_over(&url, style).await?;
    }
    Ok(())
}
