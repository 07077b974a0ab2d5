//! Uncontended locks against the floor: the two writes, create and delete, on a bare socket; and against others.
//!
//! `cargo run --release -p lockkeeper-zookeeper --example zookeeper_floor` starts a server of its own. Everything is measured
//! in turns on the same server; the figures are medians of the rounds, and of the ratios to the floor just before.

#[path = "../tests/common/foreign.rs"]
mod foreign;
/// What the foreign clients' file needs of the tests.
mod common {
    pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
}

use foreign::Foreign;
use lockkeeper_core::address::Address;
use lockkeeper_core::{DEFAULT_TTL, Keeper};
use lockkeeper_testkit::ZooKeeper;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Short rounds and many of them: what disturbs one hits its neighbours as well.
const ROUND: Duration = Duration::from_millis(600);
const ROUNDS: usize = 15;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = ZooKeeper::start();
    let address = server.url().trim_start_matches("zookeeper://").to_owned();
    let engine = lockkeeper_zookeeper::connect(Address::parse(&server.url()).unwrap(), DEFAULT_TTL).await;
    let keeper = Keeper::builder().build(engine.unwrap()).unwrap();
    let mut curator = Foreign::curator(&address, "/curator", "mutex");
    let mut kazoo = Foreign::kazoo(&address, "/kazoo", "lock", &[]);
    let mut figures: HashMap<&str, Vec<f64>> = HashMap::new();
    for round in 0..=ROUNDS {
        let row = [
            ("1 floor: create, delete", floor(&address, 1)),
            ("1 lockkeeper", ours(&keeper, 1).await),
            ("1 Curator's InterProcessMutex", asked(&mut curator, 1).await),
            ("1 kazoo's Lock", asked(&mut kazoo, 1).await),
            ("64 floor: create, delete", floor(&address, 64)),
            ("64 lockkeeper", ours(&keeper, 64).await),
            ("64 Curator's InterProcessMutex", asked(&mut curator, 64).await),
            ("64 kazoo's Lock", asked(&mut kazoo, 64).await),
        ];
        // The first round warms the servers and the Java machine up.
        for (name, rate) in row.into_iter().filter(|_| round > 0) {
            figures.entry(name).or_default().push(rate);
        }
    }
    report(&figures, "1 ");
    report(&figures, "64 ");
}

/// Prints the rows of so many tasks, each beside its floor.
fn report(figures: &HashMap<&str, Vec<f64>>, tasks: &str) {
    let mut names: Vec<_> = figures.keys().filter(|name| name.starts_with(tasks)).collect();
    names.sort();
    let floor = &figures[format!("{tasks}floor: create, delete").as_str()];
    for name in names {
        let rates = &figures[name];
        let ratios = rates.iter().zip(floor).map(|(rate, floor)| rate / floor).collect();
        let (rate, ratio) = (median(rates.clone()), median(ratios));
        println!("{name:32} {rate:8.0} pairs/s  {ratio:5.2} of the floor");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// So many threads of another client, over one session.
async fn asked(client: &mut Foreign, threads: usize) -> f64 {
    let start = Instant::now();
    let pairs: f64 = client.ask(&format!("pairs {} {threads}", ROUND.as_millis())).await.parse().unwrap();
    pairs / start.elapsed().as_secs_f64()
}

/// Each task locks and releases a lock of its own, over one keeper.
async fn ours(keeper: &Keeper, tasks: usize) -> f64 {
    let start = Instant::now();
    let mut running = Vec::new();
    for task in 0..tasks {
        let mutex = keeper.mutex(format!("speed/{task}"));
        running.push(tokio::spawn(async move {
            let mut pairs = 0;
            while start.elapsed() < ROUND {
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
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

/// A bare socket with so many pairs under way.
fn floor(address: &str, at_once: usize) -> f64 {
    let mut client = Raw::connect(address);
    client.call(&Raw::create(1, "/floor", 0));
    let mut nodes: HashMap<i32, bool> = HashMap::new();
    let (mut xid, mut pairs) = (1, 0);
    for task in 0..at_once {
        xid += 1;
        client.send(&Raw::create(xid, &format!("/floor/{task}-"), 3));
        nodes.insert(xid, true);
    }
    let start = Instant::now();
    while start.elapsed() < ROUND {
        let reply = client.receive();
        let answered = i32::from_be_bytes(reply[..4].try_into().unwrap());
        xid += 1;
        if nodes.remove(&answered).unwrap() {
            let length = i32::from_be_bytes(reply[16..20].try_into().unwrap()) as usize;
            let path = std::str::from_utf8(&reply[20..20 + length]).unwrap();
            client.send(&Raw::delete(xid, path));
            nodes.insert(xid, false);
        } else {
            pairs += 1;
            client.send(&Raw::create(xid, "/floor/0-", 3));
            nodes.insert(xid, true);
        }
    }
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

struct Raw(TcpStream);

impl Raw {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self(stream);
        let mut hello = vec![0; 12];
        hello.extend(10_000i32.to_be_bytes());
        hello.extend([0; 8]);
        hello.extend(16i32.to_be_bytes());
        hello.extend([0; 17]);
        client.send(&hello);
        client.receive();
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

    fn send(&mut self, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap();
        self.0.write_all(&[&length.to_be_bytes(), body].concat()).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    fn call(&mut self, body: &[u8]) {
        self.send(body);
        self.receive();
    }
}

fn text(body: &mut Vec<u8>, value: &str) {
    body.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
    body.extend(value.as_bytes());
}
