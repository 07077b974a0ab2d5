//! Who hears what on a wire, whatever comes from the other side.

use super::{Manner, Wire};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The server says lines: a number, which is an answer, or something behind a `>` that nobody asked for.
fn reads(bytes: &[u8]) -> io::Result<Option<(Option<String>, usize)>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    match line.as_bytes().first() {
        Some(b'0'..=b'9') => Ok(Some((Some(line), end + 1))),
        Some(b'>') => Ok(Some((None, end + 1))),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// A wire that is driven by a task, the other side of it, and how often its end was told.
async fn connected() -> (Wire<String>, TcpStream, Arc<AtomicUsize>) {
    connected_with(Manner::AtOnce).await
}

async fn connected_with(manner: Manner) -> (Wire<String>, TcpStream, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let ends = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&ends);
    let (wire, line) = Wire::over(near.unwrap(), manner, reads, move || {
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

async fn ask(wire: &Wire<String>, text: &str) -> io::Result<String> {
    wire.ask(|out| out.extend(text.as_bytes())).await
}

async fn ask_all(wire: &Wire<String>, text: &str, wanted: usize) -> io::Result<Vec<String>> {
    wire.ask_all(|out| out.extend(text.as_bytes()), wanted).await
}

#[tokio::test]
async fn each_hears_its_own_answers_even_if_another_gave_up() {
    let (wire, mut far, _) = connected().await;
    let mut given_up = Box::pin(ask_all(&wire, "a", 2));
    assert!(futures_util::poll!(given_up.as_mut()).is_pending());
    drop(given_up);
    let (two, one, none, ()) =
        tokio::join!(ask_all(&wire, "b", 2), ask(&wire, "c"), ask_all(&wire, "", 0), async {
            hears(&mut far, "abc").await;
            far.write_all(b"1\n2\n3\n>unasked\n4\n5").await.unwrap();
            far.write_all(b"\n").await.unwrap();
        });
    assert_eq!(two.unwrap(), ["3", "4"]);
    assert_eq!(one.unwrap(), "5");
    assert_eq!(none.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_question_in_turn_waits_for_the_answers_before_it_even_if_nobody_else_does() {
    let (wire, mut far, _) = connected_with(Manner::InTurn).await;
    assert!(!wire.is_busy());
    let mut given_up = Box::pin(ask_all(&wire, "a", 2));
    assert!(futures_util::poll!(given_up.as_mut()).is_pending());
    drop(given_up);
    let (second, third, ()) = tokio::join!(ask(&wire, "bb"), ask(&wire, "c"), async {
        let mut heard = [0; 8];
        for (question, answers) in [("a", &["1\n", "2\n"][..]), ("bb", &["3\n"]), ("c", &["4\n"])] {
            let count = far.read(&mut heard).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&heard[..count]), question);
            assert!(wire.is_busy());
            for answer in answers {
                // Whatever would come now comes too early.
                tokio::task::yield_now().await;
                assert_eq!(far.try_read(&mut heard).unwrap_err().kind(), ErrorKind::WouldBlock);
                far.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    assert_eq!((second.unwrap(), third.unwrap()), ("3".into(), "4".into()));
    assert!(!wire.is_busy());
}

#[tokio::test]
async fn a_long_answer_comes_in_pieces() {
    let (wire, mut far, _) = connected().await;
    let text = "8".repeat(100_000);
    let (answers, ()) = tokio::join!(ask_all(&wire, "a", 3), async {
        hears(&mut far, "a").await;
        for piece in format!("1\n{text}\n2\n").as_bytes().chunks(5_000) {
            far.write_all(piece).await.unwrap();
        }
    });
    assert_eq!(answers.unwrap(), ["1", text.as_str(), "2"]);
}

#[tokio::test]
async fn what_is_longer_than_the_socket_takes_goes_on_when_it_can() {
    let (wire, mut far, _) = connected().await;
    let text = "y".repeat(20_000_000);
    let (answer, ()) = tokio::join!(ask(&wire, &text), async {
        hears(&mut far, &text).await;
        far.write_all(b"7\n").await.unwrap();
    });
    assert_eq!(answer.unwrap(), "7");
}

#[tokio::test]
async fn the_end_is_told_to_all_who_wait_and_to_all_who_come() {
    // The other side hangs up, says what makes no sense, or answers what was not asked.
    for last_words in ["", "HTTP/1.1 400\n", "1\n2\n3\n"] {
        let (wire, mut far, ends) = connected().await;
        let (first, second, ()) = tokio::join!(ask(&wire, "a"), ask_all(&wire, "b", 2), async {
            hears(&mut far, "ab").await;
            far.write_all(b"0\n").await.unwrap();
            far.write_all(last_words.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
        });
        assert_eq!(first.unwrap(), "0");
        assert_eq!(second.is_ok(), last_words.starts_with('1'), "{last_words:?}");
        let late = loop {
            // Before its end is seen, one may still come and wait for it.
            if let Err(error) = ask(&wire, "c").await {
                break error;
            }
        };
        assert_eq!(late.kind(), ErrorKind::ConnectionReset);
        assert_eq!(ends.load(SeqCst), 1);
    }
}
