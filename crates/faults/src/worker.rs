//! A worker: a process of its own that uses the public API, and records what it sees.

use crate::clients::{Client, Errors, Kind, Registers};
use lockkeeper::Connect;
use lockkeeper_conformance::history::Recorder;
use lockkeeper_core::engine::Clock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub(crate) const ASKED: &str = "LOCKKEEPER_FAULTS_WORKER";
pub(crate) const READY: &str = "ready";
pub(crate) const STOP: &str = "stop";
pub(crate) const BLOCK: &str = "block";
/// How often a worker looks at the queue, so as to know which of its claims have a place.
const LOOK: Duration = Duration::from_millis(250);
/// How long a worker tries to connect: its server may be down when it starts.
const CONNECT: Duration = Duration::from_secs(60);
const THREADS: usize = 2;

/// What a worker is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) ttl_ms: u64,
    /// Its number: its clients' numbers begin with it.
    pub(crate) process: u32,
    pub(crate) seed: u64,
    /// Where it records.
    pub(crate) history: PathBuf,
    /// The socket of the resource.
    pub(crate) resource: PathBuf,
    pub(crate) clients: Vec<Kind>,
}

/// When each claim was first seen in the queue, by its id.
pub(crate) type Places = Arc<Mutex<HashMap<String, u64>>>;

/// If this process was started as a worker, works, and ends. Call it first in `main` of every program that starts runs: the
/// workers are that program, started again.
pub fn answer() {
    let Ok(task) = std::env::var(ASKED) else { return };
    // Who is stopped does not see that its input has ended.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let task: Task = serde_json::from_str(&task).expect("a task as a run writes it");
    work(task);
    std::process::exit(0);
}

fn work(task: Task) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (stopping, stop) = watch::channel(false);
    let working = runtime.spawn(run(task, stop));
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        match order.split_once(' ') {
            Some((BLOCK, time)) => block(&runtime, Duration::from_millis(time.parse().unwrap_or_default())),
            _ if order == STOP => break,
            _ => {}
        }
    }
    let _ = stopping.send(true);
    if let Err(error) = runtime.block_on(working) {
        panic!("the worker failed: {error}");
    }
}

/// Keeps every thread of the executor from running anything else.
fn block(runtime: &Runtime, time: Duration) {
    for _ in 0..THREADS {
        runtime.spawn(async move { std::thread::sleep(time) });
    }
}

async fn run(task: Task, stop: watch::Receiver<bool>) {
    let ttl = Duration::from_millis(task.ttl_ms);
    let connect = Connect::to(&task.url).namespace(&task.namespace).ttl(ttl).retry_for(CONNECT);
    let keeper = connect.holder(format!("worker {}", task.process)).connect().await.expect("a keeper");
    let recorder = Recorder::mirrored_to(File::create(&task.history).expect("a file for the history"));
    let registers = Arc::new(Registers::connect(&task.resource).await.expect("the resource"));
    let places = Places::default();
    let errors = Errors::create(&task.history.with_extension("errors")).expect("a file for errors");
    if keeper.abilities().fair {
        tokio::spawn(look(keeper.clone(), places.clone()));
    }
    let clients = task.clients.iter().enumerate().map(|(index, kind)| {
        let client =
            Client::new(&task, index as u32, *kind, &keeper, &recorder, &registers, &places, &errors);
        tokio::spawn(client.run(stop.clone()))
    });
    let clients: Vec<_> = clients.collect();
    println!("{READY}");
    for client in clients {
        client.await.expect("a client does not panic");
    }
    // A server that is gone must not keep it from ending: what it leaves behind expires.
    let _ = tokio::time::timeout(Duration::from_secs(10), keeper.close()).await;
}

async fn look(keeper: lockkeeper::Keeper, places: Places) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(Some(lock)) = keeper.look(&crate::clients::lock_name(0)).await else { continue };
        let seen = Clock::Boot.now().as_nanos();
        let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
        for claim in lock.claims {
            places.entry(claim.id).or_insert(seen);
        }
    }
}
