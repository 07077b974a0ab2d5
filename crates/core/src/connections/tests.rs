//! Tests of one connection per runtime.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Says where it was opened, and counts itself.
struct Plain {
    runtime: Id,
    is_closed: AtomicBool,
    alive: Arc<AtomicUsize>,
}

impl Connection for Plain {
    fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

fn connections() -> (Connections<Plain>, Arc<AtomicUsize>) {
    let alive: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&alive);
    let open = move || {
        let alive = Arc::clone(&counted);
        async move {
            tokio::task::yield_now().await;
            alive.fetch_add(1, SeqCst);
            Ok(Plain { runtime: Handle::current().id(), is_closed: AtomicBool::new(false), alive })
        }
    };
    (Connections::new(open), alive)
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn each_runtime_has_one_connection_which_ends_with_it() {
    let (connections, alive) = connections();
    let (one, other) = (runtime(), runtime());
    for runtime in [&one, &other, &one] {
        let here = runtime.block_on(connections.foreground()).expect("opened");
        assert_eq!(here.runtime, runtime.handle().id());
    }
    assert_eq!(alive.load(SeqCst), 2);
    drop(one);
    assert_eq!(alive.load(SeqCst), 1, "a runtime that has ended keeps none");
    other.block_on(connections.foreground()).expect("the other one's stays");
    drop(connections);
    drop(other);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn a_caller_without_a_runtime_gets_the_backgrounds() {
    let (connections, _) = connections();
    let mut opening = Box::pin(connections.foreground());
    let opened = loop {
        match futures_util::FutureExt::now_or_never(&mut opening) {
            Some(opened) => break opened.expect("opened"),
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(opened.runtime, background::handle().id());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_at_once_share_one_and_a_closed_one_is_opened_anew() {
    let (connections, alive) = connections();
    let connections = Arc::new(connections);
    for _ in 0..20 {
        let asking = (0..16).map(|_| {
            let connections = Arc::clone(&connections);
            tokio::spawn(async move { connections.foreground().await })
        });
        let found = futures_util::future::join_all(asking).await;
        let found: Vec<Arc<Plain>> = found.into_iter().map(|one| one.unwrap().unwrap()).collect();
        assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
        found[0].is_closed.store(true, SeqCst);
    }
    assert_eq!(alive.load(SeqCst), 1, "those that were replaced are gone");
    connections.close();
    assert_eq!(alive.load(SeqCst), 0);
    connections.foreground().await.expect("it can be used again");
}

#[tokio::test]
async fn everybody_who_waits_learns_why_it_failed_and_the_next_one_tries_again() {
    let tries: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&tries);
    let connections = Connections::<Plain>::new(move || {
        counted.fetch_add(1, SeqCst);
        async { Err(Error::temporary("test", "connect", "refused")) }
    });
    let (one, other) = tokio::join!(connections.foreground(), connections.foreground());
    for failed in [one, other] {
        assert_eq!(failed.err().expect("refused").to_string(), "test: could not connect: refused");
    }
    assert_eq!(tries.load(SeqCst), 1);
    connections.foreground().await.err().expect("refused again");
    assert_eq!(tries.load(SeqCst), 2);
}

#[test]
fn a_runtime_that_is_not_polled_holds_up_no_other() {
    let (connections, _) = connections();
    let (idle, other) = (Builder::new_current_thread().enable_all().build().expect("a runtime"), runtime());
    idle.block_on(connections.foreground()).expect("opened");
    let here = other.block_on(connections.foreground()).expect("opened");
    assert_eq!(here.runtime, other.handle().id());
}

#[test]
fn a_runtime_without_io_gets_an_error_that_says_so() {
    let connections = Connections::<Plain>::new(|| async {
        let _ = tokio::net::TcpStream::connect("127.0.0.1:1").await;
        Err(Error::temporary("test", "connect", "refused"))
    });
    let bare = Builder::new_current_thread().build().expect("a runtime");
    let error = bare.block_on(connections.foreground()).err().expect("refused");
    assert!(error.to_string().contains("enable_all"), "{error}");
}

#[tokio::test]
async fn a_connection_that_answers_nothing_is_silent_even_if_nobody_waits_to_the_end() {
    let limit = Duration::from_millis(20);
    let replies = Replies::new(limit);
    assert_eq!(replies.request(async { 1 }).await, Ok(1));
    assert!(replies.request(pending::<()>()).await.is_err());
    assert!(replies.is_silent());

    let replies = Replies::new(limit);
    let mut given_up = Box::pin(replies.request(pending::<()>()));
    assert!(futures_util::poll!(given_up.as_mut()).is_pending());
    drop(given_up);
    assert!(!replies.is_silent(), "it was given up too early to know");
    let mut given_up = Box::pin(replies.request(pending::<()>()));
    assert!(futures_util::poll!(given_up.as_mut()).is_pending());
    tokio::time::sleep(limit).await;
    drop(given_up);
    assert!(replies.is_silent());
}

#[tokio::test]
async fn a_slow_reply_among_others_is_not_silence() {
    let limit = Duration::from_millis(50);
    let replies = Replies::new(limit);
    let mut slow = Box::pin(replies.request(pending::<()>()));
    assert!(futures_util::poll!(slow.as_mut()).is_pending());
    tokio::time::sleep(limit / 2).await;
    replies.received();
    assert!(slow.await.is_err());
    assert!(!replies.is_silent());
}
