//! A process that locks by lockkeeper, as lines on its standard input say: `ID VERB NAME …`. Tests stop and kill it.
//!
//! `peer URL TTL_MS`, with an empty namespace. The verbs: `lock NAME`, `unlock NAME`, `contend NAME FILE TASKS MS`. A guard that is
//! lost is told with `ID lost NANOSECONDS`, on the clock that Java's `System.nanoTime` reads.

use lockkeeper::{Connect, Guard, Keeper};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The length of the file that [`contend`] counts in.
const RECORD: usize = 64;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, ttl_ms] = &arguments[..] else { return Err("usage: peer URL TTL_MS".into()) };
    let ttl = Duration::from_millis(ttl_ms.parse()?);
    let keeper = Connect::to(url).namespace("").ttl(ttl).connect().await?;
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut ids: HashMap<String, mpsc::UnboundedSender<Vec<String>>> = HashMap::new();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let [id, words @ ..] = &words[..] else { continue };
        let sender = ids.entry(id.clone()).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(serve(keeper.clone(), id.clone(), receiver));
            sender
        });
        let _ = sender.send(words.to_vec());
    }
    Ok(())
}

/// Does what one id is told, one after the other.
async fn serve(keeper: Keeper, id: String, mut commands: mpsc::UnboundedReceiver<Vec<String>>) {
    let mut held: Option<Guard> = None;
    loop {
        let lost = async {
            match &held {
                Some(guard) => guard.lost().await,
                None => std::future::pending().await,
            }
        };
        let command = tokio::select! {
            command = commands.recv() => command,
            _ = lost => {
                println!("{id} lost {}", now());
                held = None;
                continue;
            }
        };
        let Some(words) = command else { return };
        let outcome = run(&keeper, &mut held, &words).await;
        match outcome {
            Ok(reply) => println!("{id} {reply}"),
            Err(error) => println!("{id} failed {error}"),
        }
    }
}

async fn run(keeper: &Keeper, held: &mut Option<Guard>, words: &[String]) -> Result<String, Failure> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["lock", name] => {
            let guard = held.insert(keeper.mutex(name).lock().await?);
            Ok(format!("locked {}", guard.token()?))
        }
        ["unlock", _] => {
            held.take().ok_or("nothing is held")?.release().await?;
            Ok("unlocked".into())
        }
        ["contend", name, file, tasks, milliseconds] => {
            contend(keeper, name, file, tasks, milliseconds).await
        }
        _ => Err(format!("unknown command {words:?}").into()),
    }
}

/// Takes turns with all others that count in the file, until the time is over.
async fn contend(
    keeper: &Keeper,
    name: &str,
    path: &str,
    tasks: &str,
    milliseconds: &str,
) -> Result<String, Failure> {
    let end = Instant::now() + Duration::from_millis(milliseconds.parse()?);
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(path)?);
    let hand_overs: Arc<Mutex<Vec<u64>>> = Arc::default();
    let tasks: Vec<_> = (0..tasks.parse::<usize>()?)
        .map(|_| {
            let (mutex, file, hand_overs) = (keeper.mutex(name), Arc::clone(&file), Arc::clone(&hand_overs));
            tokio::spawn(async move {
                let mut turns = 0;
                while Instant::now() < end {
                    let guard = mutex.lock().await?;
                    if let Some(took) = turn(&file)? {
                        hand_overs.lock().map_err(|_| "a panic")?.push(took);
                    }
                    turns += 1;
                    guard.release().await?;
                }
                Ok::<u64, Failure>(turns)
            })
        })
        .collect();
    let mut turns = 0;
    for task in tasks {
        turns += task.await??;
    }
    let mut hand_overs = std::mem::take(&mut *hand_overs.lock().map_err(|_| "a panic")?);
    hand_overs.sort_unstable();
    let median =
        hand_overs.get(hand_overs.len() / 2).map_or(-1, |ns| i64::try_from(ns / 1000).unwrap_or(i64::MAX));
    Ok(format!("turns {turns} {} {median}", hand_overs.len()))
}

/// Raises the counter in the file. Says how long ago the other side has let go, if it had the turn before.
fn turn(file: &File) -> Result<Option<u64>, Failure> {
    let acquired = now();
    let mut record = [0; RECORD];
    file.read_exact_at(&mut record, 0)?;
    let record = std::str::from_utf8(&record)?;
    let [count, who, since] = record.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("a torn record: {record:?}").into());
    };
    let took =
        if who == "rust" || who == "none" { None } else { Some(acquired.saturating_sub(since.parse()?)) };
    let record = format!("{} rust {}", count.parse::<u64>()? + 1, now());
    file.write_all_at(format!("{record:RECORD$}").as_bytes(), 0)?;
    Ok(took)
}

/// On the clock that is common to all processes of the machine, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
