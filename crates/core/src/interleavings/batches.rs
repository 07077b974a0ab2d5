//! Requests that gather into batches, tasks that go away, and the end of the runtime.

use super::{Handle, in_any_order};
use crate::batch::{Batch, Batcher};
use shuttle::future::{block_on, spawn, yield_now};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Numbers {
    sent: Arc<Mutex<Vec<u32>>>,
    abandoned: Arc<Mutex<Vec<u32>>>,
}

impl Batch for Numbers {
    type Request = u32;
    type Reply = u32;

    fn at_most(&self) -> usize {
        2
    }

    async fn send(&self, requests: &[u32]) -> Vec<u32> {
        self.sent.lock().unwrap().extend(requests);
        yield_now().await;
        requests.iter().map(|request| request + 1000).collect()
    }

    fn abandoned(&self, request: u32, reply: u32) {
        assert_eq!(reply, request + 1000);
        self.abandoned.lock().unwrap().push(request);
    }
}

#[test]
fn each_task_gets_its_own_reply_and_nothing_is_sent_twice() {
    in_any_order(|| {
        let numbers = Numbers::default();
        let runtime = Handle::new();
        let batcher = Arc::new(Batcher::new(numbers.clone(), runtime.clone(), 2));
        let tasks: Vec<_> = (0..5)
            .map(|request| {
                let batcher = Arc::clone(&batcher);
                spawn(async move { batcher.request(request).await })
            })
            .collect();
        // One of them goes away, at whatever moment.
        tasks[1].abort();
        block_on(async {
            for (request, task) in (0..).zip(tasks) {
                match task.await {
                    Ok(reply) => assert_eq!(reply, Some(request + 1000)),
                    Err(_) => assert_eq!(request, 1, "only that one was aborted"),
                }
            }
            assert_eq!(batcher.request(9).await, Some(1009), "all is as in the beginning");
        });
        runtime.settle();
        let sent = numbers.sent.lock().unwrap().clone();
        let once: HashSet<u32> = sent.iter().copied().collect();
        assert_eq!(once.len(), sent.len(), "{sent:?}");
        assert!(
            numbers.abandoned.lock().unwrap().iter().all(|request| *request == 1 && once.contains(request))
        );
    });
}

#[test]
fn when_the_runtime_ends_every_task_is_notified() {
    in_any_order(|| {
        let runtime = Handle::new();
        let batcher = Arc::new(Batcher::new(Numbers::default(), runtime.clone(), 2));
        let tasks: Vec<_> = (0..4)
            .map(|request| {
                let batcher = Arc::clone(&batcher);
                spawn(async move { batcher.request(request).await })
            })
            .collect();
        runtime.end();
        block_on(async {
            for (request, task) in (0..).zip(tasks) {
                let reply = task.await.expect("nobody aborts it");
                assert!(reply.is_none_or(|reply| reply == request + 1000));
            }
            assert_eq!(batcher.request(9).await, None, "it has ended");
        });
        runtime.settle();
    });
}
