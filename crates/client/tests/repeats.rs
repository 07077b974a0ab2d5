//! What clients see behind something that sends every request twice, the second copy late, and gives them the reply to either,
//! late or not at all; judged by the checker: no overlap, no late lost signal, nothing left behind.

use lockkeeper_conformance::history::{EventKind, Recorder};
use lockkeeper_core::engine::{Address, Memory};
use lockkeeper_core::{Demand, Keeper};
use lockkeeper_serve::{Listener, Server, Settings};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const TTL: Duration = Duration::from_secs(2);
const CLIENTS: u32 = 5;
const LOCKS: u32 = 2;
const RUN: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(30);

/// How late a second copy or a late reply is.
const LATE: Duration = Duration::from_millis(150);

/// What becomes of a request, by turns.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// The client gets the reply to the first copy.
    First,
    /// The client gets the reply to the second copy.
    Second,
    /// The client gets the reply to the first copy late, after the second copy took effect.
    Late,
    /// The client's connection ends without a reply.
    Lost,
}

/// Reads one message: the head, and as much of a body as it announces. Empty at the end of the connection.
async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        if stream.read_buf(&mut message).await? == 0 {
            return Ok(Vec::new());
        }
        let text = String::from_utf8_lossy(&message).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
            return Ok(message);
        }
    }
}

async fn exchange(server: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(request).await?;
    read_message(&mut stream).await
}

/// Carries the requests of one client connection.
async fn carry(mut client: TcpStream, server: SocketAddr, turns: Arc<AtomicU64>) -> io::Result<()> {
    loop {
        let request = read_message(&mut client).await?;
        if request.is_empty() {
            return Ok(());
        }
        let fate = [Fate::First, Fate::Second, Fate::First, Fate::Late, Fate::Second, Fate::Lost]
            [turns.fetch_add(1, SeqCst) as usize % 6];
        let (again, also) = (request.clone(), Duration::from_millis(rand::random_range(0..150)));
        // A task of its own: the copy comes also when the client has its reply, or has given up.
        let second = tokio::spawn(async move {
            tokio::time::sleep(also).await;
            exchange(server, &again).await
        });
        let replied = async {
            Ok::<_, io::Error>(match fate {
                Fate::First => exchange(server, &request).await?,
                Fate::Second => {
                    let (_, reply) = tokio::join!(exchange(server, &request), second);
                    reply.map_err(io::Error::other)??
                }
                Fate::Late => {
                    let reply = exchange(server, &request).await?;
                    tokio::time::sleep(LATE).await;
                    reply
                }
                Fate::Lost => {
                    exchange(server, &request).await?;
                    Vec::new()
                }
            })
        };
        let mut gone = [0];
        let reply = tokio::select! {
            reply = replied => reply?,
            _ = client.read(&mut gone) => return Ok(()),
        };
        if reply.is_empty() {
            return Ok(());
        }
        client.write_all(&reply).await?;
    }
}

/// Where the clients find what repeats their requests to the server.
async fn repeater(server: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, turns) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&turns);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, server, Arc::clone(&counted)));
        }
    });
    (address, turns)
}

async fn client(server: SocketAddr) -> Keeper {
    let address = Address::parse(&format!("http://{server}")).unwrap();
    loop {
        // The reply to its first request may be lost.
        if let Ok(engine) = lockkeeper_client::connect(address.clone(), TTL).await {
            return Keeper::builder().ttl(TTL).namespace("").build(engine).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_late_and_lost_messages_never_give_a_lock_to_two() {
    let keeper = Keeper::builder().ttl(TTL).build(Memory::engine()).unwrap();
    let listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
    let server: SocketAddr = listener.to_string().replace("http://", "").parse().unwrap();
    let serving = Server::new(keeper.clone(), Settings::default());
    tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
    let (address, carried) = repeater(server).await;
    let recorder = Recorder::new();
    let started = Instant::now();
    let turns: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let recorder = recorder.clone();
            tokio::spawn(async move {
                let keeper = client(address).await;
                for round in 0.. {
                    if started.elapsed() > RUN {
                        break;
                    }
                    let lock = (round + number) % LOCKS;
                    let writes = !(round + number).is_multiple_of(3);
                    let demand = if writes { Demand::Exclusive } else { Demand::Shared };
                    let story = recorder.asks(number, lock, demand);
                    let name = keeper.rwlock(format!("repeats/{lock}"));
                    let wait = TTL / 2;
                    let guard =
                        if writes { name.write_within(wait).await } else { name.read_within(wait).await };
                    story.gets(guard, tokio::time::sleep(Duration::from_millis(20))).await;
                }
                keeper.close().await;
            })
        })
        .collect();
    for turn in turns {
        tokio::time::timeout(LIMIT, turn).await.expect("no client is stuck").unwrap();
    }
    let history = recorder.judged();
    let grants =
        history.events.iter().filter(|event| matches!(event.kind, EventKind::Granted { .. })).count();
    let carried = carried.load(SeqCst);
    println!("{grants} grants, {carried} requests, each sent twice");
    assert!(grants > 20 && carried > 60, "{grants} grants, {carried} requests");
    let empty = async {
        while !keeper.inspect("").await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, empty).await.expect("nothing is left behind");
}

/// A late copy of a try that found the lock busy must not take it: its client would never learn of it, and would keep it with
/// what else it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_copies_of_tries_take_nothing_while_another_hold_is_kept() {
    let keeper = Keeper::builder().ttl(TTL).build(Memory::engine()).unwrap();
    let listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
    let server: SocketAddr = listener.to_string().replace("http://", "").parse().unwrap();
    let serving = Server::new(keeper.clone(), Settings::default());
    tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
    let (address, _) = repeater(server).await;
    let started = Instant::now();
    let turns: Vec<_> = (0..CLIENTS)
        .map(|number| {
            tokio::spawn(async move {
                let keeper = client(address).await;
                let kept = async || keeper.mutex(format!("kept/{number}")).lock().await.unwrap();
                let mut hold = kept().await;
                let (mut granted, mut busy) = (0, 0);
                while started.elapsed() < RUN / 2 {
                    match keeper.mutex("repeats/try").try_lock().await {
                        Ok(Some(guard)) => {
                            granted += 1;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            let _ = guard.release().await;
                        }
                        Ok(None) => busy += 1,
                        // Its reply was lost too often, or came too late.
                        Err(error) => assert!(error.is_temporary() || error.is_lost(), "{error}"),
                    }
                    if hold.state() == lockkeeper_core::State::Lost {
                        hold = kept().await;
                    }
                }
                (keeper, hold, granted, busy)
            })
        })
        .collect();
    let (mut kept, mut counts) = (Vec::new(), (0, 0));
    for turn in turns {
        let (keeper, hold, granted, busy) =
            tokio::time::timeout(LIMIT, turn).await.expect("no client is stuck").unwrap();
        kept.push((keeper, hold));
        counts = (counts.0 + granted, counts.1 + busy);
    }
    println!("{counts:?} grants and refusals");
    assert!(counts.0 > 3 && counts.1 > 10, "{counts:?}");
    // The clients live on, and so do their sessions.
    let empty = async {
        while keeper.look("repeats/try").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, empty).await.expect("nobody holds what nobody asked for");
    assert!(!keeper.inspect("kept/").await.unwrap().is_empty());
}
