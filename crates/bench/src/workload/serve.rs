//! `lockkeeper serve` before the engine: what its hop adds to a call, and what waiters and sessions cost it.

mod http;
pub(crate) mod process;

use super::uncontended::Mutexes;
use super::{PAIRS, SHARES, settle, spread};
use crate::counters::Count;
use crate::floors::{Pairs, repeat};
use crate::measure::{Latencies, Pace};
use crate::scale::{Limit, Scale};
use crate::summary::{Sample, Unit};
use crate::target::{close, connect, fresh_name};
use crate::{Result, process as here};
use futures_util::future::{join_all, try_join_all};
use http::{EtcdHttp, Http};
use lockkeeper::{Keeper, State};
use lockkeeper_core::engine::Address;
use process::Served;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The TTL of sessions, as the clients of all languages have it by default. A heartbeat comes at a third of it.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// Before the clock starts.
const WARM_UP: Limit = Limit { turns: 500, time: Duration::from_millis(200) };

/// The number of client keepers, each with one session, over which the waiters are spread.
const KEEPERS: usize = 4;

/// How often the server is asked how many wait.
const PAUSE: Duration = Duration::from_millis(100);

/// Sessions made at the same time.
const AT_ONCE: usize = 50;

pub(crate) async fn run(url: &str, scale: &Scale) -> Result<Sample> {
    let served = Served::start(url, scale.patience)?;
    let mut sample = calls(url, &served, scale).await?;
    let throughput = {
        let keeper = client(&served, SESSION_TTL).await?;
        let locks = Arc::new(Mutexes::of(&keeper, scale.served_clients));
        let measured = spread::measure(locks, scale.served_clients, scale.limit).await;
        close(keeper).await;
        measured?
    };
    sample = sample.with_some(PAIRS, Unit::PerSecond, throughput.get(PAIRS)).with(
        "clients",
        Unit::Count,
        scale.served_clients as f64,
    );
    sample = waiters(url, &served, scale, sample).await?;
    sample = sessions(&served, scale, sample).await?;
    served.end()?;
    Ok(sample)
}

/// A keeper of a client: one session at the server.
async fn client(served: &Served, ttl: Duration) -> Result<Keeper> {
    let engine = lockkeeper_client::connect(Address::parse(&served.url)?, ttl).await?;
    Ok(Keeper::builder().ttl(ttl).namespace("").holder("bench").build(engine)?)
}

/// A run of pairs: how long one took, and the processor time that both sides spent on it.
struct Run {
    latencies: Latencies,
    cpu_seconds: f64,
}

async fn measure(pairs: &dyn Pairs, served: &Served, limit: Limit) -> Result<Run> {
    repeat(pairs, 0, &Pace::start(WARM_UP)).await?;
    let both = || Ok::<_, crate::Error>(here::cpu_seconds() + served.usage()?.cpu_seconds);
    let before = both()?;
    let turns = repeat(pairs, 0, &Pace::start(limit)).await?;
    Ok(Run { cpu_seconds: (both()? - before) / turns.all.max(1) as f64, latencies: turns.waits })
}

/// One client, with and without the server between, and the least that a request over HTTP takes. A pair is two calls.
async fn calls(url: &str, served: &Served, scale: &Scale) -> Result<Sample> {
    let direct = connect(url, None).await?;
    let through = client(served, SESSION_TTL).await?;
    let bare = Http::connect(&served.url).await?;
    let least = measure(&bare, served, scale.limit).await?;
    let of_direct = measure(&Mutexes::of(&direct, 1), served, scale.limit).await?;
    let of_served = measure(&Mutexes::of(&through, 1), served, scale.limit).await?;
    for keeper in [direct, through] {
        close(keeper).await;
    }
    let p50 = |run: &Run| run.latencies.quantile(0.5);
    let of_etcd = match EtcdHttp::connect(url).await? {
        Some(pairs) => Some(p50(&measure(&pairs, served, scale.limit).await?)),
        None => None,
    };
    Ok(Sample::default()
        .with_some("etcd's HTTP pair p50", Unit::Seconds, of_etcd)
        .with("direct pair p50", Unit::Seconds, p50(&of_direct))
        .with_latencies("served pair ", &of_served.latencies, SHARES)
        .with("HTTP round trip p50", Unit::Seconds, p50(&least))
        .with("added/call", Unit::Seconds, (p50(&of_served) - p50(&of_direct)) / 2.0)
        .with("added CPU/call", Unit::Seconds, (of_served.cpu_seconds - of_direct.cpu_seconds) / 2.0))
}

/// Many who wait on one lock, each with a connection: what they cost the server while nothing happens.
async fn waiters(url: &str, served: &Served, scale: &Scale, sample: Sample) -> Result<Sample> {
    let wanted = scale.served_waiters;
    let name = fresh_name("serve");
    let keepers = try_join_all((0..KEEPERS.min(wanted)).map(|_| client(served, SESSION_TTL))).await?;
    let holder = client(served, SESSION_TTL).await?;
    let guard = holder.mutex(&name).lock().await?;
    let before = served.usage()?;
    let mut tasks = JoinSet::new();
    for waiter in 0..wanted {
        let mutex = keepers[waiter % keepers.len()].mutex(&name);
        tasks.spawn(async move { mutex.lock().await });
    }
    let asking = Http::connect(&served.url).await?;
    let (started, mut waiting) = (Instant::now(), 0);
    while waiting < wanted && started.elapsed() < scale.patience {
        tokio::time::sleep(PAUSE).await;
        waiting = asking.waiters().await?;
    }
    // The last ones have come to the server, and are on their way to the engine.
    tokio::time::sleep(settle::MOMENT).await;
    let requests = Count::start(url).await?;
    let (started, at_rest) = (Instant::now(), served.usage()?);
    tokio::time::sleep(scale.idle).await;
    let (seconds, after) = (started.elapsed().as_secs_f64(), served.usage()?);
    let requests = requests.so_far().await?.map(|requests| requests / seconds);
    let waiting_still = asking.waiters().await?;
    if waiting < wanted || waiting_still < wanted {
        return Err(format!("only {waiting} of {wanted} waiters came, and {waiting_still} stayed").into());
    }
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    drop(guard);
    join_all(keepers.into_iter().chain([holder]).map(close)).await;
    Ok(sample
        .with("waiters", Unit::Count, waiting_still as f64)
        .with("memory/waiter", Unit::Bytes, (after.memory_bytes - before.memory_bytes) / wanted as f64)
        .with("idle CPU", Unit::Processor, (after.cpu_seconds - at_rest.cpu_seconds) / seconds)
        .with_some("idle engine requests/s", Unit::PerSecond, requests))
}

/// Many clients, each with a session of its own that holds one lock: what their heartbeats cost the server.
async fn sessions(served: &Served, scale: &Scale, sample: Sample) -> Result<Sample> {
    let name = fresh_name("sessions");
    let numbers: Vec<usize> = (0..scale.served_sessions).collect();
    let mut clients = Vec::new();
    for some in numbers.chunks(AT_ONCE) {
        let made = some.iter().map(|number| {
            let name = format!("{name}/{number}");
            async move {
                let keeper = client(served, SESSION_TTL).await?;
                let guard = keeper.mutex(name).lock().await?;
                Ok::<_, crate::Error>((keeper, guard))
            }
        });
        clients.extend(try_join_all(made).await?);
    }
    // Whole rounds of heartbeats, wherever in them this begins.
    let (started, before) = (Instant::now(), served.usage()?);
    tokio::time::sleep(scale.served_time).await;
    let (seconds, after) = (started.elapsed().as_secs_f64(), served.usage()?);
    let lost = clients.iter().filter(|(_, guard)| guard.state() == State::Lost).count();
    let count = clients.len() as f64;
    join_all(clients.into_iter().map(|(keeper, guard)| async move {
        drop(guard);
        close(keeper).await;
    }))
    .await;
    Ok(sample
        .with("sessions", Unit::Count, count)
        .with("heartbeats/s", Unit::PerSecond, count * 3.0 / SESSION_TTL.as_secs_f64())
        .with("heartbeat CPU", Unit::Processor, (after.cpu_seconds - before.cpu_seconds) / seconds)
        .with("lost", Unit::Count, lost as f64))
}
