//! What a call costs: one request to the server for each, and one heartbeat for all that a client holds.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use lockkeeper_core::Keeper;
use lockkeeper_core::engine::{Address, Memory};
use lockkeeper_serve::{Server, Settings};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Long enough that no heartbeat comes in between.
const TTL: Duration = Duration::from_secs(600);

/// A server that notes the method and the path of each request.
async fn counted(ttl: Duration) -> (String, Arc<Mutex<Vec<String>>>) {
    let keeper = Keeper::builder().ttl(ttl).build(Memory::engine()).unwrap();
    let noted: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = Arc::clone(&noted);
    let router: Router = Server::new(keeper, Settings::default()).router().layer(from_fn(
        move |request: Request, next: Next| {
            let path = request.uri().path().split('/').nth(2).unwrap_or_default();
            notes.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {path}", request.method()));
            next.run(request)
        },
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, noted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_and_its_release_are_one_request_each() {
    let (url, noted) = counted(TTL).await;
    let engine = lockkeeper_client::connect(Address::parse(&url).unwrap(), TTL).await.unwrap();
    let keeper = Keeper::builder().ttl(TTL).build(engine).unwrap();
    keeper.mutex("a").lock().await.unwrap().release().await.unwrap();
    assert_eq!(*noted.lock().unwrap(), ["GET server", "POST sessions", "POST holds", "DELETE sessions"]);
    noted.lock().unwrap().clear();
    for _ in 0..10 {
        keeper.mutex("a").lock().await.unwrap().release().await.unwrap();
    }
    let noted = noted.lock().unwrap().clone();
    assert_eq!(noted, ["POST holds", "DELETE sessions"].repeat(10));
}

/// A request that waits is one request, however long; nobody asks again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_is_one_request() {
    let (url, noted) = counted(TTL).await;
    let connect = async || {
        let engine = lockkeeper_client::connect(Address::parse(&url).unwrap(), TTL).await.unwrap();
        Keeper::builder().ttl(TTL).build(engine).unwrap()
    };
    let (one, other) = (connect().await, connect().await);
    let guard = one.mutex("a").lock().await.unwrap();
    noted.lock().unwrap().clear();
    let waiting = tokio::spawn({
        let mutex = other.mutex("a");
        async move { mutex.lock().await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*noted.lock().unwrap(), ["POST sessions", "POST holds"]);
    guard.release().await.unwrap();
    let _granted = waiting.await.unwrap().unwrap();
    assert_eq!(*noted.lock().unwrap(), ["POST sessions", "POST holds", "DELETE sessions"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_keeps_to_the_servers_ttl_if_its_own_is_longer() {
    let at_engine = Duration::from_secs(3);
    let (url, _) = counted(at_engine).await;
    let engine = lockkeeper_client::connect(Address::parse(&url).unwrap(), TTL).await.unwrap();
    let keeper = Keeper::builder().ttl(TTL).build(engine).unwrap();
    assert_eq!(keeper.ttl(), at_engine);
    let guard = keeper.mutex("a").lock().await.unwrap();
    tokio::select! {
        error = guard.lost() => panic!("{error}"),
        () = tokio::time::sleep(3 * at_engine) => {}
    }
    guard.release().await.unwrap();
}
