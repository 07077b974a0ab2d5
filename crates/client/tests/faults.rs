//! What clients of two servers on one engine see while both hops are cut, delayed and reset, the engine is paused and one server
//! ends, judged by the checker: no overlap, no late lost signal.

use lockkeeper_conformance::history::{EventKind, Recorder};
use lockkeeper_core::engine::Address;
use lockkeeper_core::{Demand, Keeper};
use lockkeeper_serve::{Listener, Server, Settings};
use lockkeeper_testkit::{Postgres, Proxy};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(2);
const CLIENTS: u32 = 6;
const LOCKS: u32 = 2;

/// A server with a runtime of its own, which ends with it. Its keeper outlives that, and leaves for the guards that are dropped.
fn server(engine: SocketAddr) -> (Runtime, SocketAddr) {
    let url = format!("postgres://postgres@{engine}/postgres");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = runtime.block_on(async move {
        let keeper = lockkeeper::Connect::to(url).ttl(TTL).connect().await.unwrap();
        let listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
        let address = listener.to_string().replace("http://", "");
        let server = Server::new(keeper, Settings::default());
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        address
    });
    (runtime, address.parse().unwrap())
}

async fn keeper(server: SocketAddr) -> Keeper {
    let engine = lockkeeper_client::connect(Address::parse(&format!("http://{server}")).unwrap(), TTL).await;
    Keeper::builder().ttl(TTL).namespace("").build(engine.unwrap()).unwrap()
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

#[test]
fn histories_hold_while_both_hops_fail_and_a_server_dies() {
    let engine = Postgres::start();
    let to_engine = [(); 2].map(|()| Proxy::start(([127, 0, 0, 1], engine.port()).into()));
    let (first, first_address) = server(to_engine[0].addr());
    let (_second, second_address) = server(to_engine[1].addr());
    let to_servers = [Proxy::start(first_address), Proxy::start(second_address)];
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
            })
        })
        .collect();
    let pause = |time: Duration| std::thread::sleep(time);
    pause(TTL);
    // Requests take effect, and no client learns it, for longer than the TTL; the other server's engine is slow.
    to_servers[0].cut_replies();
    to_engine[1].delay(TTL / 16);
    pause(TTL * 3 / 2);
    to_servers[0].heal();
    to_engine[1].heal();
    pause(TTL / 2);
    // Replies come late, and connections break under them.
    to_servers[1].delay(TTL / 8);
    pause(TTL / 2);
    to_servers[1].reset();
    pause(TTL / 2);
    to_servers[1].heal();
    // A server loses its engine for longer than the TTL, while its clients reach it.
    to_engine[0].cut();
    pause(TTL * 3 / 2);
    to_engine[0].heal();
    pause(TTL);
    // The engine stops beyond every TTL, with requests of both under way, and goes on with them.
    engine.pause();
    pause(TTL * 5 / 4);
    engine.resume();
    pause(TTL);
    // Nobody reaches the other one, and then the first one's runtime ends.
    to_servers[1].cut();
    pause(TTL);
    to_servers[1].heal();
    first.shutdown_background();
    pause(TTL * 5 / 4);
    over.store(true, SeqCst);
    for turn in turns {
        let ended = clients.block_on(async { tokio::time::timeout(Duration::from_secs(60), turn).await });
        ended.expect("no client is stuck").unwrap();
    }
    let history = recorder.judged();
    let count =
        |matches: fn(&EventKind) -> bool| history.events.iter().filter(|event| matches(&event.kind)).count();
    let grants = count(|kind| matches!(kind, EventKind::Granted { .. }));
    println!("{grants} grants");
    let lost = count(|kind| matches!(kind, EventKind::Lost));
    assert!(grants > 50 && lost > 1, "only {grants} grants, {lost} losses");
}
