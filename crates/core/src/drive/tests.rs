//! Who drives while somebody asks: nobody waits for ever, whoever comes and goes.

use super::{Drive, Moves};
use crate::background;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::Id;

type Question = (u32, oneshot::Sender<u32>);

/// A line that answers with the next number, and who drove it last.
struct Server {
    questions: mpsc::UnboundedSender<Question>,
    driven_by: Arc<Mutex<Option<Id>>>,
    drive: Drive,
}

impl Server {
    fn start(home: &Handle, listens: bool) -> Arc<Self> {
        let (questions, mut asked) = mpsc::unbounded_channel::<Question>();
        let driven_by = Arc::new(Mutex::new(None));
        let by = Arc::clone(&driven_by);
        let line = poll_fn(move |cx| {
            *by.lock().unwrap() = tokio::task::try_id();
            while let Poll::Ready(question) = asked.poll_recv(cx) {
                let Some((number, answer)) = question else { return Poll::Ready(()) };
                let _ = answer.send(number + 1);
            }
            Poll::Pending
        });
        let drive = Drive::start(line, Moves::default(), home, listens);
        Arc::new(Self { questions, driven_by, drive })
    }

    /// Sends a question, without anybody waiting for its answer.
    fn send(&self, number: u32) -> oneshot::Receiver<u32> {
        let (answer, answered) = oneshot::channel();
        self.questions.send((number, answer)).unwrap();
        answered
    }

    async fn ask(&self, number: u32) -> u32 {
        self.drive.ask(async { self.send(number).await.unwrap() }).await
    }

    fn was_driven_by(&self, task: Id) -> bool {
        *self.driven_by.lock().unwrap() == Some(task)
    }
}

#[tokio::test]
async fn who_asks_alone_drives_himself_unless_the_line_listens() {
    for listens in [false, true] {
        let server = Server::start(&Handle::current(), listens);
        let asking = tokio::spawn({
            let server = Arc::clone(&server);
            async move {
                for number in 0..3 {
                    assert_eq!(server.ask(number).await, number + 1);
                }
                server.was_driven_by(tokio::task::id())
            }
        });
        assert_eq!(asking.await.unwrap(), !listens);
    }
}

#[tokio::test]
async fn what_comes_unasked_is_heard_when_the_driver_is_called_back() {
    let server = Server::start(&Handle::current(), false);
    server.ask(1).await;
    let mut unasked = server.send(5);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(unasked.try_recv().is_err(), "nobody drives");
    server.drive.call_back();
    assert_eq!(unasked.await, Ok(6));
}

#[tokio::test]
async fn who_still_waits_is_answered_when_the_one_who_drove_leaves_or_gives_up() {
    let server = Server::start(&Handle::current(), false);
    for gives_up in [false, true] {
        let (go_on, wait) = oneshot::channel::<()>();
        let mut first = Box::pin(server.drive.ask(async { wait.await.is_ok() }));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        let second = tokio::spawn({
            let server = Arc::clone(&server);
            async move { server.ask(7).await }
        });
        tokio::task::yield_now().await;
        if gives_up {
            drop(first);
        } else {
            go_on.send(()).unwrap();
            assert!(first.await);
        }
        assert_eq!(second.await.unwrap(), 8);
    }
}

#[tokio::test]
async fn one_who_drives_and_then_stands_still_is_replaced_by_the_house() {
    let server = Server::start(&Handle::current(), false);
    let mut stuck = Box::pin(server.drive.ask(std::future::pending::<()>()));
    assert!(futures_util::poll!(stuck.as_mut()).is_pending());
    server.drive.go_home();
    assert_eq!(server.ask(1).await, 2);
    assert!(futures_util::poll!(stuck.as_mut()).is_pending());
    assert_eq!(server.ask(2).await, 3);
}

#[tokio::test]
async fn who_asks_from_another_runtime_calls_the_driver_back() {
    let server = Server::start(&Handle::current(), false);
    assert_eq!(server.ask(1).await, 2);
    let far = background::handle().spawn({
        let server = Arc::clone(&server);
        async move { server.ask(2).await }
    });
    assert_eq!(far.await.unwrap(), 3);
}

#[tokio::test]
async fn a_line_that_ends_ends_what_is_asked() {
    let server = Server::start(&Handle::current(), false);
    server.drive.close();
    let (answer, answered) = oneshot::channel();
    assert!(server.questions.send((1, answer)).is_err());
    assert!(server.drive.ask(answered).await.is_err());
}

/// Many tasks on several threads, whose requests begin and end in all orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_question_is_answered() {
    let server = Server::start(&Handle::current(), false);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                for number in 0..2_000 {
                    if (number + task) % 7 == 0 {
                        let mut given_up = Box::pin(server.ask(number));
                        let _ = futures_util::poll!(given_up.as_mut());
                    }
                    if number % 500 == task {
                        server.drive.go_home();
                    }
                    server.drive.come_here();
                    assert_eq!(server.ask(number).await, number + 1);
                    if number % 50 == task {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
