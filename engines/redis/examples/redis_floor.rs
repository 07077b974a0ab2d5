//! Measures, in one run, the raw pair (SET NX PX, then compare-and-delete by EVALSHA) on the driver's connection against the styles
//! 'queue' and 'plain', and then hand-overs under contention. 'bare' is the raw pair on the engine's connection.
//!
//!     cargo run --release -p lockkeeper-redis --example redis_floor [THREADS [SECONDS [URL]]]
//!
//! THREADS 0 (the default) is a runtime on the current thread. SECONDS is how long each of them is measured in all, in
//! short slices that take turns, since a machine is seldom as quick as it was a second ago: what counts is the ratio
//! within a turn. Without a URL it starts a server of its own; one task is then measured with both sides on one processor, and again with
//! each on its own, since left alone the system changes between the two, which decides more than what is measured.

use hdrhistogram::Histogram;
use lockkeeper_core::Keeper;
use lockkeeper_core::address::Address;
use lockkeeper_redis::parts::{ConnectOptions, Connection, server};
use lockkeeper_testkit::{Placement, Redis};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Cmd, IntoConnectionInfo as _, ProtocolVersion};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(10);
/// How long one of them has its turn.
const SLICE: Duration = Duration::from_millis(100);
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().map_or(0, |word| word.parse().expect("THREADS is a number"));
    let seconds: f64 = words.next().map_or(3.0, |word| word.parse().expect("SECONDS is a number"));
    let own = std::env::args().nth(3).is_none().then(Redis::start);
    let url = std::env::args().nth(3).unwrap_or_else(|| own.as_ref().map(|it| it.url()).unwrap_or_default());
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().worker_threads(threads.max(1)).build().expect("a runtime");
    let length = Duration::from_secs_f64(seconds);
    runtime.block_on(async {
        for &placement in Placement::of_one_task(own.is_some()) {
            pairs(&url, 1, placement, length).await;
        }
        pairs(&url, 64, Placement::Free, length).await;
        for keepers in [2, 16] {
            hand_overs(&url, keepers, 1, length / 2).await;
        }
        hand_overs(&url, 16, 63, length / 2).await;
    });
}

async fn keeper(url: &str) -> Keeper {
    let engine = lockkeeper_redis::connect(Address::parse(url).expect("a URL"), TTL).await.expect("a server");
    Keeper::builder().ttl(TTL).build(engine).expect("a keeper")
}

async fn raw(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a URL");
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let info = info.set_redis_settings(settings).set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = redis::Client::open(info).expect("a client");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

/// The connection that the engine uses.
async fn bare(url: &str) -> Arc<Connection> {
    let mut address = Address::parse(url).expect("a URL");
    let options = ConnectOptions::read(&mut address).expect("a URL");
    Arc::new(Connection::open(&server(&address.hosts[0]), &options, TTL, None).await.expect("a connection"))
}

/// Pairs per second of raw, bare, queue and plain, each with that number of tasks on their own locks, in turns.
async fn pairs(url: &str, tasks: usize, placement: Placement, length: Duration) {
    let connection = raw(url).await;
    let script: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(FREE)
        .query_async(&mut connection.clone())
        .await
        .expect("the script is loaded");
    let connected = bare(url).await;
    let queue = keeper(url).await;
    let plain = keeper(&format!("{url}?style=plain")).await;
    let mut turns: [Vec<Turn>; 4] = Default::default();
    let rounds = (length.as_secs_f64() / SLICE.as_secs_f64()).ceil().max(1.0) as usize;
    let _placed = placement.hold().expect("may move its own server");
    // The first round only warms up.
    for round in 0..=rounds {
        let turn = [
            turn(&connection, tasks, |task| raw_pair(connection.clone(), script.clone(), task)).await,
            turn(&connection, tasks, |task| bare_pair(Arc::clone(&connected), script.clone(), task)).await,
            turn(&connection, tasks, |task| pair(queue.clone(), task)).await,
            turn(&connection, tasks, |task| pair(plain.clone(), task)).await,
        ];
        if round > 0 {
            turns.iter_mut().zip(turn).for_each(|(turns, turn)| turns.push(turn));
        }
    }
    println!("{tasks:>3} tasks, {placement}, {rounds} turns of {SLICE:?} each; medians (and quarters)");
    let rates = |turns: &[Turn]| turns.iter().map(|turn| turn.rate).collect::<Vec<f64>>();
    let floor = rates(&turns[0]);
    for (style, turns) in ["raw", "bare", "queue", "plain"].into_iter().zip(&turns) {
        let rates = rates(turns);
        let ratios = rates.iter().zip(&floor).map(|(rate, floor)| rate / floor).collect();
        let [_, server_us, _] = quarters(turns.iter().map(|turn| turn.server_us).collect());
        let ([_, rate, _], [low, ratio, high]) = (quarters(rates), quarters(ratios));
        println!(
            "  {style:5} {rate:7.0}/s, {ratio:.2} ({low:.2} to {high:.2}) of the raw pair, server {server_us:.1} us"
        );
    }
}

/// The values below which a quarter, half and three quarters of them are.
fn quarters(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// What a turn came to.
struct Turn {
    /// Pairs per second.
    rate: f64,
    /// The server's processor time for each pair, in microseconds.
    server_us: f64,
}

async fn turn<F>(connection: &MultiplexedConnection, tasks: usize, step: impl Fn(usize) -> F) -> Turn
where
    F: Future<Output = Repeat> + Send + 'static,
{
    let before = server_seconds(connection).await;
    let (count, rate) = rate(tasks, SLICE, step).await;
    let spent = server_seconds(connection).await - before;
    Turn { rate, server_us: spent * 1e6 / count as f64 }
}

/// The processor time the server has used by now.
async fn server_seconds(connection: &MultiplexedConnection) -> f64 {
    let info: String =
        redis::cmd("INFO").arg("cpu").query_async(&mut connection.clone()).await.expect("INFO");
    let used = |line: &str| line.split_once(':').and_then(|(_, seconds)| seconds.trim().parse::<f64>().ok());
    info.lines()
        .filter(|line| line.starts_with("used_cpu_user:") || line.starts_with("used_cpu_sys:"))
        .filter_map(used)
        .sum()
}

/// How often all tasks together repeat what `step` makes, and how often that is per second.
async fn rate<F>(tasks: usize, length: Duration, step: impl Fn(usize) -> F) -> (u64, f64)
where
    F: Future<Output = Repeat> + Send + 'static,
{
    let count = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (making, count) = (step(task), Arc::clone(&count));
            tokio::spawn(async move {
                let mut repeat = making.await;
                while start.elapsed() < length {
                    repeat.once().await;
                    count.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for task in running {
        task.await.expect("a task ends well");
    }
    let count = count.load(Relaxed);
    (count, count as f64 / start.elapsed().as_secs_f64())
}

enum Repeat {
    Raw { connection: MultiplexedConnection, script: String, key: String },
    Bare { connection: Arc<Connection>, script: String, key: String },
    Ours { keeper: Keeper, name: String },
}

async fn raw_pair(connection: MultiplexedConnection, script: String, task: usize) -> Repeat {
    Repeat::Raw { connection, script, key: format!("raw/{task}") }
}

async fn bare_pair(connection: Arc<Connection>, script: String, task: usize) -> Repeat {
    Repeat::Bare { connection, script, key: format!("raw/{task}") }
}

async fn pair(keeper: Keeper, task: usize) -> Repeat {
    Repeat::Ours { keeper, name: format!("pair/{task}") }
}

/// What takes a lock and what frees it.
fn raw_commands(key: &str, script: &str) -> (Cmd, Cmd) {
    let value = lockkeeper_core::ClaimId::random().to_string();
    let (mut set, mut free) = (redis::cmd("SET"), redis::cmd("EVALSHA"));
    set.arg(key).arg(&value).arg("NX").arg("PX").arg(10_000);
    free.arg(script).arg(1).arg(key).arg(&value);
    (set, free)
}

impl Repeat {
    async fn once(&mut self) {
        match self {
            Self::Raw { connection, script, key } => {
                let (set, free) = raw_commands(key, script);
                let set: Option<String> = set.query_async(connection).await.expect("SET");
                assert!(set.is_some());
                let freed: i64 = free.query_async(connection).await.expect("EVALSHA");
                assert_eq!(freed, 1);
            }
            Self::Bare { connection, script, key } => {
                let (set, free) = raw_commands(key, script);
                assert_eq!(connection.request(&set).await, Ok(redis::Value::Okay));
                assert_eq!(connection.request(&free).await, Ok(redis::Value::Int(1)));
            }
            Self::Ours { keeper, name } => {
                let guard = keeper.mutex(name.as_str()).lock().await.expect("a lock");
                guard.release().await.expect("a release");
            }
        }
    }
}

/// Requests the server has had by now: scripts, which are all that locking sends.
async fn requests(connection: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.expect("INFO");
    info.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once(":calls=")).fold(
        0,
        |sum, (_, rest)| {
            sum + rest.split(',').next().and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0)
        },
    )
}

/// Keepers that contend for one lock with an empty critical section.
async fn hand_overs(url: &str, keepers: usize, tasks_each: usize, length: Duration) {
    let mut connection = raw(url).await;
    let before = requests(&mut connection).await;
    let last_holder = Arc::new(AtomicU64::new(u64::MAX));
    let changes = Arc::new(AtomicU64::new(0));
    let freed_at = Arc::new(Mutex::new(Instant::now()));
    let latencies = Arc::new(Mutex::new(Histogram::<u64>::new(3).expect("a histogram")));
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..keepers).map(|_| AtomicU64::new(0)).collect());
    let mut running = Vec::new();
    let start = Instant::now();
    for number in 0..keepers {
        let keeper = keeper(url).await;
        for _ in 0..tasks_each {
            let (keeper, counts, changes) = (keeper.clone(), Arc::clone(&counts), Arc::clone(&changes));
            let (last_holder, freed_at, latencies) =
                (Arc::clone(&last_holder), Arc::clone(&freed_at), Arc::clone(&latencies));
            running.push(tokio::spawn(async move {
                while start.elapsed() < length {
                    let guard = keeper.mutex("contended").lock().await.expect("a lock");
                    let now = Instant::now();
                    if last_holder.swap(number as u64, Relaxed) != number as u64 {
                        changes.fetch_add(1, Relaxed);
                        let freed = *freed_at.lock().expect("not poisoned");
                        let took_us = now.saturating_duration_since(freed).as_micros() as u64;
                        latencies.lock().expect("not poisoned").saturating_record(took_us);
                    }
                    counts[number].fetch_add(1, Relaxed);
                    *freed_at.lock().expect("not poisoned") = Instant::now();
                    guard.release().await.expect("a release");
                }
            }));
        }
    }
    for task in running {
        task.await.expect("a task ends well");
    }
    let seconds = start.elapsed().as_secs_f64();
    let sent = requests(&mut connection).await - before;
    let changes = changes.load(Relaxed);
    let counts: Vec<u64> = counts.iter().map(|count| count.load(Relaxed)).collect();
    let (least, most) =
        (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    let latencies = latencies.lock().expect("not poisoned");
    println!(
        "{keepers:>3} keepers x {tasks_each} tasks: {:.0} hand-overs/s, {:.2} requests each, median {} us, p99 {} us, \
         every keeper {least} to {most}",
        changes as f64 / seconds,
        sent as f64 / counts.iter().sum::<u64>() as f64,
        latencies.value_at_quantile(0.5),
        latencies.value_at_quantile(0.99),
    );
}
