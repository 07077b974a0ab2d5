//! The client's session: what happens when it has ended, when it cannot be made, and when it holds what nobody expects.

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use lockkeeper_core::Keeper;
use lockkeeper_core::engine::{Address, Memory};
use lockkeeper_serve::{Server, Settings};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(30);

struct Served {
    /// The server's own keeper.
    keeper: Keeper,
    address: String,
    /// The session of the last heartbeat.
    beats: Arc<Mutex<String>>,
    /// No session is made, and no reply comes.
    is_stuck: Arc<AtomicBool>,
}

async fn served() -> Served {
    let keeper = Keeper::builder().ttl(Duration::from_secs(60)).build(Memory::engine()).unwrap();
    let (beats, is_stuck): (Arc<Mutex<String>>, Arc<AtomicBool>) = Default::default();
    let (noted, stuck) = (Arc::clone(&beats), Arc::clone(&is_stuck));
    let router = Server::new(keeper.clone(), Settings::default()).router().layer(from_fn(
        move |request: Request, next: Next| {
            let path = request.uri().path().to_owned();
            if let Some(session) = path.strip_suffix("/heartbeat").and_then(|path| path.rsplit('/').next()) {
                session.clone_into(&mut noted.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let is_stuck = stuck.load(SeqCst) && request.method() == Method::POST && path == "/v1/sessions";
            async move {
                if is_stuck {
                    return std::future::pending().await;
                }
                next.run(request).await
            }
        },
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Served { keeper, address, beats, is_stuck }
}

impl Served {
    async fn client(&self, ttl: Duration) -> Keeper {
        let url = Address::parse(&format!("http://{}", self.address)).unwrap();
        let engine = lockkeeper_client::connect(url, ttl).await.unwrap();
        Keeper::builder().ttl(ttl).namespace("").build(engine).unwrap()
    }
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("not after {LIMIT:?}: {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_after_an_idle_time_finds_the_free_lock_free() {
    let served = served().await;
    let ttl = Duration::from_millis(300);
    let client = served.client(ttl).await;
    for _ in 0..3 {
        let guard = client.mutex("a").try_lock().await.unwrap();
        guard.expect("the lock is free").release().await.unwrap();
        // Nothing is held, so nothing keeps the session.
        tokio::time::sleep(2 * ttl).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_cannot_be_made_is_an_error_and_holds_up_nobody_for_ever() {
    let served = served().await;
    let client = served.client(Duration::from_millis(500)).await;
    served.is_stuck.store(true, SeqCst);
    let (mutex, other) = (client.mutex("a"), client.mutex("b"));
    let tries = async { tokio::join!(mutex.try_lock(), other.try_lock()) };
    let (one, two) = tokio::time::timeout(LIMIT, tries).await.expect("both end");
    assert!(one.unwrap_err().is_temporary() && two.unwrap_err().is_temporary());
    served.is_stuck.store(false, SeqCst);
    assert!(mutex.try_lock().await.unwrap().is_some());
}

/// A copy of a request arrives after the client has its reply, and the server has forgotten the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_no_claim_of_the_client_knows_is_released() {
    let served = served().await;
    let client = served.client(Duration::from_millis(900)).await;
    let _kept = client.mutex("kept").lock().await.unwrap();
    until("a heartbeat", async || !served.beats.lock().unwrap().is_empty()).await;
    let session = served.beats.lock().unwrap().clone();
    let body = format!("{{\"session\":\"{session}\",\"names\":[\"late\"],\"wait\":0}}");
    let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
    let key = "0123456789abcdef0123456789abcdef";
    let request = format!(
        "POST /v1/holds HTTP/1.1\r\n{head}\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 201"), "{reply}");
    until("nobody holds it", async || served.keeper.look("late").await.unwrap().is_none()).await;
    assert!(served.keeper.look("kept").await.unwrap().is_some());
}
