//! Measures, in one run, the raw pair (SET NX PX, then compare-and-delete by EVALSHA) against the styles 'queue' and
//! 'plain', and then hand-overs under contention.
//!
//!     cargo run --release -p lockkeeper-redis --example floor [THREADS [SECONDS [URL]]]
//!
//! THREADS 0 (the default) is a runtime on the current thread. Without a URL it starts a server of its own.

use lockkeeper_core::Keeper;
use lockkeeper_core::address::Address;
use lockkeeper_testkit::Redis;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{IntoConnectionInfo as _, ProtocolVersion};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(10);
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

fn main() {
    let mut words = std::env::args().skip(1);
    let threads: usize = words.next().map_or(0, |word| word.parse().expect("THREADS is a number"));
    let seconds: f64 = words.next().map_or(1.0, |word| word.parse().expect("SECONDS is a number"));
    let own = std::env::args().nth(3).is_none().then(Redis::start);
    let url = std::env::args().nth(3).unwrap_or_else(|| own.as_ref().map(|it| it.url()).unwrap_or_default());
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().worker_threads(threads.max(1)).build().expect("a runtime");
    let length = Duration::from_secs_f64(seconds);
    let mode = std::env::var("MODE").unwrap();
    runtime.block_on(async {
        let connection = raw(&url).await;
        let script: String =
            redis::cmd("SCRIPT").arg("LOAD").arg(FREE).query_async(&mut connection.clone()).await.unwrap();
        let k = keeper(&format!("{url}{}", if mode == "plain" { "?style=plain" } else { "" })).await;
        let tasks: usize = std::env::var("TASKS").unwrap().parse().unwrap();
        let before = cpu(&connection).await;
        let r = if mode == "raw" {
            rate(tasks, length, |task| raw_pair(connection.clone(), script.clone(), task)).await
        } else {
            rate(tasks, length, |task| pair(k.clone(), task)).await
        };
        let after = cpu(&connection).await;
        let n = r * seconds;
        println!(
            "{mode} {tasks}: {r:.0}/s = {:.1} us; client cpu {:.2} us, server cpu {:.2} us per pair",
            1e6 / r,
            (after.0 - before.0) / n * 1e6,
            (after.1 - before.1) / n * 1e6
        );
    });
}

async fn cpu(connection: &MultiplexedConnection) -> (f64, f64) {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut connection.clone()).await.unwrap();
    let server: f64 = info
        .lines()
        .filter_map(|l| l.split_once(':'))
        .filter(|(k, _)| *k == "used_cpu_sys" || *k == "used_cpu_user")
        .map(|(_, v)| v.trim().parse::<f64>().unwrap())
        .sum();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    ((f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0, server)
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

/// How often all tasks together repeat what `step` makes, per second.
async fn rate<F>(tasks: usize, length: Duration, step: impl Fn(usize) -> F) -> f64
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
    count.load(Relaxed) as f64 / start.elapsed().as_secs_f64()
}

enum Repeat {
    Raw { connection: MultiplexedConnection, script: String, key: String },
    Ours { keeper: Keeper, name: String },
}

async fn raw_pair(connection: MultiplexedConnection, script: String, task: usize) -> Repeat {
    Repeat::Raw { connection, script, key: format!("raw/{task}") }
}

async fn pair(keeper: Keeper, task: usize) -> Repeat {
    Repeat::Ours { keeper, name: format!("pair/{task}") }
}

impl Repeat {
    async fn once(&mut self) {
        match self {
            Self::Raw { connection, script, key } => {
                let value = lockkeeper_core::ClaimId::random().to_string();
                let mut set = redis::cmd("SET");
                set.arg(&*key).arg(&value).arg("NX").arg("PX").arg(10_000);
                let set: Option<String> = set.query_async(connection).await.expect("SET");
                assert!(set.is_some());
                let mut free = redis::cmd("EVALSHA");
                free.arg(&*script).arg(1).arg(&*key).arg(&value);
                let freed: i64 = free.query_async(connection).await.expect("EVALSHA");
                assert_eq!(freed, 1);
            }
            Self::Ours { keeper, name } => {
                let guard = keeper.mutex(name.as_str()).lock().await.expect("a lock");
                guard.release().await.expect("a release");
            }
        }
    }
}
