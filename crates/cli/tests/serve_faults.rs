//! What clients see of two servers on one engine when a server is paused, another is killed, both hops fail and clients fall
//! silent, judged by the checker: no overlap, no late lost signal, and in the end nothing is left behind.

#![cfg(all(feature = "serve", feature = "redis"))]

mod support;

use lockkeeper_conformance::history::{Event, EventKind, Recorder};
use lockkeeper_core::engine::{Address, Clock};
use lockkeeper_core::{Demand, Keeper};
use lockkeeper_testkit::{Proxy, Redis};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use support::{LIMIT, Place};

const TTL: Duration = Duration::from_secs(2);
const CLIENTS: u32 = 6;
const LOCKS: u32 = 2;

/// The program, on an address that stays when it is started again.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(place: &Place, engine: &str, listen: &str) -> Self {
        let ttl = format!("{}s", TTL.as_secs());
        let words = ["serve", "--engine", engine, "--ttl", &ttl, "--namespace", "faults", "--listen", listen];
        let mut child = place.lockkeeper(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line:?}"));
        Self { child, address: address.parse().unwrap() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it and waits until its port is free.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn keeper(server: SocketAddr) -> Keeper {
    let address = Address::parse(&format!("http://{server}")).unwrap();
    let engine = async {
        loop {
            match lockkeeper_client::connect(address.clone(), TTL).await {
                Ok(engine) => return engine,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let engine = tokio::time::timeout(LIMIT, engine).await.unwrap();
    Keeper::builder().ttl(TTL).namespace("").build(engine).unwrap()
}

/// Requests a lock, holds it for a while and gives it back, and records all of it.
async fn turn(keeper: &Keeper, recorder: &Recorder, client: u32, round: u32) {
    // Two of them, one on each server, hold a lock of their own for as long as they can: faults must take it from them.
    let (lock, writes, hold) = match client {
        0 | 1 => (LOCKS, true, 5 * TTL),
        _ => (round % LOCKS, !(round + client).is_multiple_of(3), Duration::from_millis(10)),
    };
    let demand = if writes { Demand::Exclusive } else { Demand::Shared };
    let story = recorder.asks(client, lock, demand);
    let name = keeper.rwlock(format!("history/{lock}"));
    let guard = if writes { name.write_within(2 * TTL).await } else { name.read_within(2 * TTL).await };
    let failed = guard.is_err();
    story.gets(guard, tokio::time::sleep(hold)).await;
    if failed {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until clients of this server are granted locks from now on.
fn until_granted_by(server: usize, recorder: &Recorder) {
    let since = Clock::Boot.now().as_nanos();
    support::until("clients of the live server are granted locks", || {
        let granted = |event: &Event| matches!(event.kind, EventKind::Granted { .. }) && event.at_ns > since;
        let on_server = |event: &Event| event.client < CLIENTS && event.client as usize % 2 == server;
        recorder.history().events.iter().filter(|event| on_server(event) && granted(event)).count() > 2
    });
}

fn post(server: SocketAddr, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// A client that holds a lock, says nothing from then on, and believes what it was told until its time is over.
fn silent_client(server: SocketAddr, recorder: &Recorder, client: u32) {
    let session = post(server, "/v1/sessions", &json!({"ttl": "700ms"}));
    let story = recorder.asks(client, 0, Demand::Exclusive);
    let sent = Clock::Boot.now();
    let hold = json!({"session": session["session"], "names": ["history/0"], "wait": "600ms"});
    let hold = post(server, "/v1/holds", &hold);
    let Some(valid) = hold["valid_for_ms"].as_u64() else {
        return story.is_cancelled(Clock::Boot.now().as_nanos());
    };
    let waited = hold["waited_ms"].as_u64().unwrap() * 99 / 100;
    let deadline = sent.plus(Duration::from_millis(valid + waited));
    let now = Clock::Boot.now();
    if now < deadline {
        story.is_granted(now.as_nanos(), hold["tokens"][0]["token"].as_u64().unwrap(), deadline.as_nanos());
        std::thread::sleep(deadline.since(now));
        story.is_lost(deadline.as_nanos());
    } else {
        story.is_unknown(now.as_nanos());
    }
}

#[test]
fn histories_hold_while_servers_are_paused_and_killed_and_clients_fall_silent() {
    let redis = Redis::start();
    let place = Place::new();
    let to_engine = Proxy::start(([127, 0, 0, 1], redis.port()).into());
    let far = format!("redis://{}", to_engine.addr());
    let near = format!("redis://127.0.0.1:{}", redis.port());
    let mut servers =
        [Server::start(&place, &far, "127.0.0.1:0"), Server::start(&place, &near, "127.0.0.1:0")];
    let to_servers = [Proxy::start(servers[0].address), Proxy::start(servers[1].address)];
    let recorder = Recorder::new();
    let over = Arc::new(AtomicBool::new(false));
    let clients = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let turns: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let server = to_servers[client as usize % 2].addr();
            let (recorder, over) = (recorder.clone(), Arc::clone(&over));
            clients.spawn(async move {
                let keeper = keeper(server).await;
                for round in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    turn(&keeper, &recorder, client, round).await;
                }
                keeper.close().await;
            })
        })
        .collect();
    let pause = |time: Duration| std::thread::sleep(time);
    pause(TTL);
    silent_client(servers[1].address, &recorder, CLIENTS);
    // A server stops beyond every TTL, with requests under way, and goes on: it must not believe what it knew.
    servers[0].signal(Signal::STOP);
    pause(TTL * 3 / 2);
    servers[0].signal(Signal::CONT);
    pause(TTL);
    // The same while the engine is out of its reach when it wakes, and replies to its clients are late.
    to_engine.cut_replies();
    servers[0].signal(Signal::STOP);
    pause(TTL);
    to_servers[0].delay(TTL / 8);
    servers[0].signal(Signal::CONT);
    pause(TTL / 2);
    to_engine.heal();
    to_servers[0].heal();
    pause(TTL);
    // Killed with all that it holds, and started again: its clients come back with new sessions.
    let listen = servers[1].address.to_string();
    servers[1].kill();
    pause(TTL / 2);
    until_granted_by(0, &recorder);
    servers[1] = Server::start(&place, &near, &listen);
    pause(TTL);
    silent_client(servers[0].address, &recorder, CLIENTS + 1);
    // Killed while nobody learns it: connections stay, and nothing comes.
    to_servers[0].cut();
    servers[0].kill();
    pause(TTL * 3 / 2);
    until_granted_by(1, &recorder);
    to_servers[0].reset();
    to_servers[0].heal();
    let listen = servers[0].address.to_string();
    servers[0] = Server::start(&place, &far, &listen);
    pause(TTL);
    over.store(true, SeqCst);
    for turn in turns {
        let ended = clients.block_on(async { tokio::time::timeout(2 * LIMIT, turn).await });
        ended.expect("no client is stuck").unwrap();
    }
    let history = recorder.judged();
    let count =
        |matches: fn(&EventKind) -> bool| history.events.iter().filter(|event| matches(&event.kind)).count();
    let grants = count(|kind| matches!(kind, EventKind::Granted { .. }));
    let lost = count(|kind| matches!(kind, EventKind::Lost));
    println!("{grants} grants, {lost} losses");
    assert!(grants > 50 && lost > 3, "only {grants} grants, {lost} losses");
    // The killed servers' claims are over with the engine's TTL, the silent clients' with their sessions.
    support::until("nothing is left behind", || {
        let listed = place.output(["ls", "--json", "--engine", &near, "--namespace", "faults"]);
        String::from_utf8(listed.stdout).unwrap().trim() == "[]"
    });
}

/// What the server replies to a request without a body.
fn get(server: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn two_servers_on_one_engine_grant_in_the_order_of_the_requests() {
    const WAITERS: usize = 6;
    let (redis, place) = (Redis::start(), Place::new());
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let servers = [(); 2].map(|()| Server::start(&place, &url, "127.0.0.1:0"));
    let addresses = [servers[0].address, servers[1].address];
    let session = |server| post(server, "/v1/sessions", &json!({"ttl": "60s"}))["session"].clone();
    let first = session(addresses[0]);
    let held = post(addresses[0], "/v1/holds", &json!({"session": first, "names": ["a"]}));
    assert!(held["hold"].is_string(), "{held}");
    let (order, granted) = std::sync::mpsc::channel();
    let waiting: Vec<_> = (0..WAITERS)
        .map(|at| {
            let (server, order) = (addresses[(at + 1) % 2], order.clone());
            let waiter = std::thread::spawn(move || {
                let session = session(server);
                let held =
                    post(server, "/v1/holds", &json!({"session": session, "names": ["a"], "lease": "200ms"}));
                order.send((held["tokens"][0]["token"].as_u64(), at)).unwrap();
            });
            // The other server shows it, so it has its place in the engine's queue.
            support::until("one more waits", || {
                get(addresses[at % 2], "/v1/locks/a")["claims"].as_array().unwrap().len() == at + 2
            });
            waiter
        })
        .collect();
    drop(order);
    let mut stream = TcpStream::connect(addresses[0]).unwrap();
    let hold = held["hold"].as_str().unwrap();
    write!(stream, "DELETE /v1/holds/{hold} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    waiting.into_iter().for_each(|waiter| waiter.join().unwrap());
    // The tokens grow with the grants, whichever reply came first.
    let mut granted: Vec<_> = granted.iter().collect();
    granted.sort_unstable();
    assert!(granted[0].0 > held["tokens"][0]["token"].as_u64(), "{granted:?}");
    assert_eq!(granted.iter().map(|(_, at)| *at).collect::<Vec<_>>(), (0..WAITERS).collect::<Vec<_>>());
}
