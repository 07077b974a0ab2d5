//! Uncontended locks against the floor: the two writes, create and delete, on a bare socket
//! of the same runtime; and against others.
//!
//! `cargo run --release -p lockkeeper-zookeeper --example zookeeper_floor` starts a server of its own. Everything is measured
//! in short turns on the same server; the figures are medians of the rounds, and of the ratios to the floor of the same
//! round, with their quartiles. With a number of tasks as its argument, only lockkeeper is measured, with that number.

#[path = "../tests/engine/foreign.rs"]
mod foreign;
/// What the foreign clients' file needs of the tests.
mod common {
    pub(crate) const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
}

use foreign::Foreign;
use lockkeeper_core::address::Address;
use lockkeeper_core::{DEFAULT_TTL, Keeper};
use lockkeeper_testkit::ZooKeeper;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a turn is, and how many turns lockkeeper and the floor have in a round. A disk that hangs now and then hits
/// any of them; with one task, where each write is waited for, short turns let it hit both alike.
const SHORT_TURNS: (Duration, u32) = (Duration::from_millis(20), 10);
const LONG_TURNS: (Duration, u32) = (Duration::from_millis(200), 1);
const ROUNDS: usize = 40;

/// How long another client's turn is.
const THEIR_TURN: Duration = Duration::from_millis(200);

/// The other clients are slow to measure, and need not be measured as often.
const OTHERS_EVERY: usize = 4;

/// Until the servers and the Java machine are warm.
const WARM_UP: usize = 8;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = ZooKeeper::start();
    let address = server.url().trim_start_matches("zookeeper://").to_owned();
    let engine = lockkeeper_zookeeper::connect(Address::parse(&server.url()).unwrap(), DEFAULT_TTL).await;
    let keeper = Keeper::builder().build(engine.unwrap()).unwrap();
    let mut floor = Floor::connect(&address).await;
    let only = std::env::args().nth(1).map(|tasks| tasks.parse().expect("a number of tasks"));
    let mut others = if only.is_some() {
        Vec::new()
    } else {
        vec![Foreign::curator(&address, "/curator", "mutex"), Foreign::kazoo(&address, "/kazoo", "lock", &[])]
    };
    for tasks in only.map_or(vec![1, 64], |tasks| vec![tasks]) {
        let (turn, turns) = if tasks == 1 { SHORT_TURNS } else { LONG_TURNS };
        let mut figures: [Vec<(f64, f64)>; 4] = Default::default();
        for round in 0..WARM_UP + ROUNDS {
            let (mut bare, mut ours) = (Total::default(), Total::default());
            for _ in 0..turns {
                // Before and after, so that neither comes always first.
                floor = bare.add_floor(floor, tasks, turn / 2).await;
                ours.add(our_pairs(&keeper, tasks, turn).await);
                floor = bare.add_floor(floor, tasks, turn / 2).await;
            }
            let mut row = vec![bare.rate(), ours.rate()];
            if round % OTHERS_EVERY == 0 {
                for other in &mut others {
                    row.push(their_rate(other, tasks).await);
                }
            }
            if round >= WARM_UP {
                row.iter()
                    .zip(&mut figures)
                    .for_each(|(rate, figures)| figures.push((*rate, rate / bare.rate())));
            }
        }
        println!("{tasks} tasks");
        let names = ["floor: create, delete", "lockkeeper", "Curator's InterProcessMutex", "kazoo's Lock"];
        for (name, figures) in names.iter().zip(figures).filter(|(_, figures)| !figures.is_empty()) {
            let (rates, ratios): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
            let [_, rate, _] = quartiles(rates);
            let [low, ratio, high] = quartiles(ratios);
            println!("  {name:28} {rate:8.0} pairs/s  {ratio:5.2} of the floor ({low:.2} to {high:.2})");
        }
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Pairs and the time they took.
#[derive(Clone, Copy, Default)]
struct Total {
    pairs: u32,
    seconds: f64,
}

impl Total {
    fn add(&mut self, (pairs, took): (u32, Duration)) {
        self.pairs += pairs;
        self.seconds += took.as_secs_f64();
    }

    /// The floor's turn, in a task of the same runtime as ours.
    async fn add_floor(&mut self, mut floor: Floor, at_once: usize, turn: Duration) -> Floor {
        let task = tokio::spawn(async move {
            let figures = floor.pairs(at_once, turn).await;
            (floor, figures)
        });
        let (floor, figures) = task.await.unwrap();
        self.add(figures);
        floor
    }

    fn rate(self) -> f64 {
        f64::from(self.pairs) / self.seconds
    }
}

/// A number of threads of another client, over one session.
async fn their_rate(client: &mut Foreign, threads: usize) -> f64 {
    let start = Instant::now();
    let pairs: f64 =
        client.request(&format!("pairs {} {threads}", THEIR_TURN.as_millis())).await.parse().unwrap();
    pairs / start.elapsed().as_secs_f64()
}

/// Each task locks and releases a lock of its own, over one keeper.
async fn our_pairs(keeper: &Keeper, tasks: usize, turn: Duration) -> (u32, Duration) {
    let start = Instant::now();
    let mut running = Vec::new();
    for task in 0..tasks {
        let mutex = keeper.mutex(format!("speed/{task}"));
        running.push(tokio::spawn(async move {
            let mut pairs = 0;
            while start.elapsed() < turn {
                mutex.lock().await.unwrap().release().await.unwrap();
                pairs += 1;
            }
            pairs
        }));
    }
    let mut pairs = 0;
    for task in running {
        pairs += task.await.unwrap();
    }
    (pairs, start.elapsed())
}

/// A bare socket with a number of pairs under way.
struct Floor {
    client: Raw,
    xid: i32,
    /// The requests under way, and whether they are creates.
    under_way: HashMap<i32, bool>,
}

impl Floor {
    async fn connect(address: &str) -> Self {
        let mut client = Raw::connect(address).await;
        client.call(&Raw::create(1, "/floor", 0)).await;
        Self { client, xid: 1, under_way: HashMap::new() }
    }

    async fn create(&mut self) {
        self.xid += 1;
        self.client.send(&Raw::create(self.xid, "/floor/127.0.0.1-", 3)).await;
        self.under_way.insert(self.xid, true);
    }

    /// Deletes what a reply says was created; says whether the reply was to a delete instead.
    async fn receive(&mut self) -> bool {
        let reply = self.client.receive().await;
        let xid = i32::from_be_bytes(reply[..4].try_into().unwrap());
        let is_create = self.under_way.remove(&xid).unwrap();
        if is_create {
            let length = i32::from_be_bytes(reply[16..20].try_into().unwrap()) as usize;
            let path = std::str::from_utf8(&reply[20..20 + length]).unwrap();
            self.xid += 1;
            self.client.send(&Raw::delete(self.xid, path)).await;
            self.under_way.insert(self.xid, false);
        }
        !is_create
    }

    /// Pairs, and how long they took.
    async fn pairs(&mut self, at_once: usize, turn: Duration) -> (u32, Duration) {
        let start = Instant::now();
        for _ in 0..at_once {
            self.create().await;
        }
        let mut pairs = 0;
        while start.elapsed() < turn {
            if self.receive().await {
                pairs += 1;
                self.create().await;
            }
        }
        while !self.under_way.is_empty() {
            pairs += u32::from(self.receive().await);
        }
        (pairs, start.elapsed())
    }
}

struct Raw(TcpStream, Vec<u8>);

impl Raw {
    async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self(stream, Vec::new());
        let mut hello = vec![0; 12];
        hello.extend(40_000i32.to_be_bytes());
        hello.extend([0; 8]);
        hello.extend(16i32.to_be_bytes());
        hello.extend([0; 17]);
        client.send(&hello).await;
        client.receive().await;
        client
    }

    fn create(xid: i32, path: &str, flags: i32) -> Vec<u8> {
        let mut body = [xid.to_be_bytes(), 15i32.to_be_bytes()].concat();
        text(&mut body, path);
        text(&mut body, "127.0.0.1");
        body.extend(1i32.to_be_bytes());
        body.extend(31i32.to_be_bytes());
        text(&mut body, "world");
        text(&mut body, "anyone");
        body.extend(flags.to_be_bytes());
        body
    }

    fn delete(xid: i32, path: &str) -> Vec<u8> {
        let mut body = [xid.to_be_bytes(), 2i32.to_be_bytes()].concat();
        text(&mut body, path);
        body.extend((-1i32).to_be_bytes());
        body
    }

    async fn send(&mut self, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap();
        self.0.write_all(&[&length.to_be_bytes(), body].concat()).await.unwrap();
    }

    /// A whole reply in one read, as a rule: what more has come is kept.
    async fn receive(&mut self) -> Vec<u8> {
        loop {
            if let Some((length, rest)) = self.1.split_first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                if rest.len() >= length {
                    let body = rest[..length].to_vec();
                    self.1.drain(..4 + length);
                    return body;
                }
            }
            self.1.reserve(4096);
            assert!(self.0.read_buf(&mut self.1).await.unwrap() > 0, "the server hung up");
        }
    }

    async fn call(&mut self, body: &[u8]) {
        self.send(body).await;
        self.receive().await;
    }
}

fn text(body: &mut Vec<u8>, value: &str) {
    body.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
    body.extend(value.as_bytes());
}
