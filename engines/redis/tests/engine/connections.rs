//! Connections that are lost, silent or lead to the wrong server.

use crate::common::{engine, soon, try_keeper, until, waiters};
use lockkeeper_core::State;
use lockkeeper_testkit::{Proxy, Redis};
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

const STYLES: [&str; 4] = ["queue", "plain", "redisson", "redisson-rw"];

/// The server has forgotten the connection, and the client's side says nothing of it: a holder renews over a new one in
/// time, and keeps its locks.
#[tokio::test]
async fn a_half_open_connection_loses_no_hold() {
    for style in STYLES {
        let redis = Redis::start();
        let proxy = Proxy::start(([127, 0, 0, 1], redis.port()).into());
        let ttl = Duration::from_secs(2);
        let url = format!("redis://{}?style={style}", proxy.addr());
        let keeper = try_keeper(&url, ttl).await.unwrap();
        let mut guards = Vec::new();
        for number in 0..24 {
            guards.push(keeper.mutex(format!("held/{number}")).lock().await.unwrap());
        }
        for _ in 0..3 {
            proxy.half_open();
            tokio::time::sleep(2 * ttl).await;
            let held = guards.iter().filter(|guard| guard.state() != State::Lost).count();
            assert_eq!(held, guards.len(), "{style}: holds that are left");
        }
        proxy.half_open();
        let released = futures_util::future::join_all(guards.into_iter().map(|guard| guard.release()));
        assert!(soon("all are released", released).await.iter().all(Result::is_ok), "{style}");
    }
}

/// A waiter whose subscription has become half open is served all the same, by its renewal over the next connection.
#[tokio::test]
async fn a_half_open_subscription_is_opened_again_and_the_waiter_served() {
    for style in STYLES {
        let redis = Redis::start();
        let proxy = Proxy::start(([127, 0, 0, 1], redis.port()).into());
        let ttl = Duration::from_secs(3);
        let keeper = try_keeper(&format!("redis://{}?style={style}", proxy.addr()), ttl).await.unwrap();
        let other = try_keeper(&format!("{}?style={style}", redis.url()), ttl).await.unwrap();
        let guard = other.mutex("silent").lock().await.unwrap();
        let busy = keeper.mutex("busy").lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = keeper.mutex("silent");
            async move { mutex.lock().await }
        });
        if style == "queue" {
            until("it waits", async || waiters(&other, "silent").await == 1).await;
        } else {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        proxy.half_open();
        guard.release().await.unwrap();
        let start = Instant::now();
        soon("it is served", waiting).await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() < 2 * ttl, "{style}: only after {:?}", start.elapsed());
        // The renewal that was on its way may have failed just now: then the hold is in doubt until the next one.
        assert_ne!(busy.state(), State::Lost, "{style}");
        until("the other hold is renewed", async || busy.state() == State::Held).await;
    }
}

/// The reconnect task opens a lost subscription at once, whether or not anything is to be sent.
#[tokio::test]
async fn a_lost_subscription_is_opened_again_at_once() {
    let redis = Redis::start();
    let proxy = Proxy::start(([127, 0, 0, 1], redis.port()).into());
    let keeper = try_keeper(&format!("redis://{}", proxy.addr()), Duration::from_secs(60)).await.unwrap();
    let direct = crate::common::direct(redis.port()).await;
    let subscribed = async || subscriber(&mut direct.clone()).await;
    for _ in 0..3 {
        let before = subscribed().await.expect("the background connection subscribes");
        proxy.reset();
        until("another connection subscribes", async || subscribed().await.is_some_and(|now| now != before))
            .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    keeper.close().await;
    until("the subscription ends with the keeper", async || subscribed().await.is_none()).await;
}

/// The number of the newest connection that subscribes to a channel.
async fn subscriber(direct: &mut redis::aio::MultiplexedConnection) -> Option<u64> {
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(direct).await.unwrap();
    let subscribers = clients.lines().filter(|line| line.contains(" sub=1 "));
    let ids = subscribers.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok());
    ids.max()
}

/// Says what every Redis server says to a new client, but with the version of one that is too old.
#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).to_uppercase();
                for _ in text.matches("HELLO") {
                    let reply = "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.2.14\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";
                    if stream.write_all(reply.as_bytes()).is_err() {
                        break;
                    }
                }
            }
        }
    });
    let refused = engine(&format!("redis://127.0.0.1:{port}"), Duration::from_secs(10)).await;
    let error = refused.err().expect("too old");
    assert!(!error.is_temporary(), "{error}");
    assert!(error.to_string().contains("7.0") && error.to_string().contains("6.2.14"), "{error}");
}
