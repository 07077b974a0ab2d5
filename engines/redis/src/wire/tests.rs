//! Who hears what on a wire, whatever comes from the other side.

use super::Wire;
use lockkeeper_core::drive::Stream;
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A wire that is driven by a task, the other side of it, and how often its end was told.
async fn connected() -> (Wire, TcpStream, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let ends = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&ends);
    let (wire, line) = Wire::over(Stream::following(near.unwrap()), move || {
        told.fetch_add(1, SeqCst);
    });
    tokio::spawn(line);
    (wire, far.unwrap().0, ends)
}

/// Reads until all of this has come.
async fn hears(far: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    far.read_exact(&mut heard).await.unwrap();
    assert_eq!(String::from_utf8(heard).unwrap(), text);
}

fn send<'a>(
    wire: &'a Wire,
    text: &'a str,
    replies: usize,
) -> impl Future<Output = redis::RedisResult<Vec<Value>>> + 'a {
    wire.send(|out| out.extend(text.as_bytes()), replies)
}

#[tokio::test]
async fn each_hears_its_own_replies_even_if_another_gave_up() {
    let (wire, mut far, _) = connected().await;
    let mut given_up = Box::pin(send(&wire, "a", 2));
    assert!(futures_util::poll!(given_up.as_mut()).is_pending());
    drop(given_up);
    let (two, one, ()) = tokio::join!(send(&wire, "b", 2), send(&wire, "c", 1), async {
        hears(&mut far, "abc").await;
        far.write_all(b":1\r\n:2\r\n:3\r\n>1\r\n+unasked\r\n:4\r\n:5\r").await.unwrap();
        far.write_all(b"\n").await.unwrap();
    });
    assert_eq!(two.unwrap(), [Value::Int(3), Value::Int(4)]);
    assert_eq!(one.unwrap(), [Value::Int(5)]);
}

#[tokio::test]
async fn a_long_reply_comes_in_pieces() {
    let (wire, mut far, _) = connected().await;
    let text = "x".repeat(100_000);
    let (replies, ()) = tokio::join!(send(&wire, "a", 3), async {
        hears(&mut far, "a").await;
        let reply = format!(":1\r\n${}\r\n{text}\r\n:2\r\n", text.len());
        for piece in reply.as_bytes().chunks(5_000) {
            far.write_all(piece).await.unwrap();
        }
    });
    let whole = Value::BulkString(text.clone().into_bytes());
    assert_eq!(replies.unwrap(), [Value::Int(1), whole, Value::Int(2)]);
}

#[tokio::test]
async fn what_is_longer_than_the_socket_takes_goes_on_when_it_can() {
    let (wire, mut far, _) = connected().await;
    let text = "y".repeat(20_000_000);
    let (reply, ()) = tokio::join!(send(&wire, &text, 1), async {
        hears(&mut far, &text).await;
        far.write_all(b"_\r\n").await.unwrap();
    });
    assert_eq!(reply.unwrap(), [Value::Nil]);
}

#[tokio::test]
async fn the_end_is_told_to_all_who_wait_and_to_all_who_come() {
    // The other side hangs up, says what is no reply, or answers what was not asked.
    for last_words in ["", "HTTP/1.1 400\r\n", ":1\r\n:2\r\n:3\r\n"] {
        let (wire, mut far, ends) = connected().await;
        let (first, second, ()) = tokio::join!(send(&wire, "a", 1), send(&wire, "b", 2), async {
            hears(&mut far, "ab").await;
            far.write_all(b":0\r\n").await.unwrap();
            far.write_all(last_words.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
        });
        assert_eq!(first.unwrap(), [Value::Int(0)]);
        assert_eq!(second.is_ok(), last_words.starts_with(":1"), "{last_words:?}");
        let late = loop {
            // Before its end is seen, one may still come and wait for it.
            if let Err(error) = send(&wire, "c", 1).await {
                break error;
            }
        };
        assert!(late.is_io_error());
        assert_eq!(ends.load(SeqCst), 1);
    }
}
