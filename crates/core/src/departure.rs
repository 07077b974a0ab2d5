//! Departure: one task per keeper sends the leave for everything that was dropped, waits and guards alike.

use crate::clock::{Clock, Moment};
use crate::engine::{Engine, Renewal};
use crate::life::Life;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How many leaves may be under way at once.
const AT_ONCE: usize = 64;

#[derive(Debug)]
enum Message {
    Leave(Arc<Life>),
    /// Dropped when everything sent before has left: the sending half of a channel.
    Flush(Box<dyn Any + Send>),
}

/// The way into the departure task.
#[derive(Debug, Clone)]
pub(crate) struct Departures {
    messages: mpsc::UnboundedSender<Message>,
    /// Whether the task was ever given anything to do.
    used: Arc<AtomicBool>,
}

impl Departures {
    pub(crate) fn new() -> (Self, DepartureTask) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { messages: sender, used: Arc::default() }, DepartureTask(receiver))
    }

    /// Sees to it that the claim leaves, if the engine may have it.
    pub(crate) fn send(&self, life: &Arc<Life>) {
        if life.take_leave() {
            self.used.store(true, SeqCst);
            // The task ends only when every sender is gone, so this cannot fail while anybody calls it.
            let _ = self.messages.send(Message::Leave(Arc::clone(life)));
        }
    }

    /// Waits until everything sent so far has left (or its TTL has passed). Without any it does not wake the
    /// task: a program that takes one lock and ends saves the switch of threads.
    pub(crate) async fn flush(&self) {
        let (left, wait) = oneshot::channel::<()>();
        if self.drops_when_left(left) {
            let _ = wait.await;
        }
    }

    /// Like [`flush`](Self::flush), for a caller that cannot await: blocks its thread, up to `limit`. Not for a thread on
    /// which the task itself runs.
    pub(crate) fn flush_blocking(&self, limit: Duration) {
        let (left, wait) = std::sync::mpsc::channel::<()>();
        if self.drops_when_left(left) {
            let _ = wait.recv_timeout(limit);
        }
    }

    /// Says whether there is anything to wait for.
    fn drops_when_left(&self, sender: impl Any + Send) -> bool {
        self.used.load(SeqCst) && self.messages.send(Message::Flush(Box::new(sender))).is_ok()
    }
}

/// The receiving end, to be run on the keeper's background runtime.
pub(crate) struct DepartureTask(mpsc::UnboundedReceiver<Message>);

impl DepartureTask {
    /// Runs until every sender is gone and everything has left; then closes the engine.
    pub(crate) async fn run(mut self, engine: Arc<dyn Engine>) {
        let clock = engine.clock();
        let mut leaving = FuturesUnordered::new();
        loop {
            let message = tokio::select! {
                message = self.0.recv(), if leaving.len() < AT_ONCE => message,
                Some(()) = leaving.next() => continue,
            };
            match message {
                Some(Message::Leave(life)) => leaving.push(leave(Arc::clone(&engine), life, clock)),
                Some(Message::Flush(left)) => {
                    while leaving.next().await.is_some() {}
                    drop(left);
                }
                None => break,
            }
        }
        while leaving.next().await.is_some() {}
        engine.close().await;
    }
}

/// Tries until the claim has left. One that has not is left to expire, and the engine forgets it.
async fn leave(engine: Arc<dyn Engine>, life: Arc<Life>, clock: Clock) {
    if let Some(rest) = life.must_stay() {
        stay(&engine, &life, rest, clock).await;
    } else if !has_left(&engine, &life, clock).await {
        engine.detached(&life.claim);
    }
}

/// Tries until the claim has left, or until it must have expired by itself.
async fn has_left(engine: &Arc<dyn Engine>, life: &Life, clock: Clock) -> bool {
    let claim = &life.claim;
    let pointless_at: Moment = clock.now().plus(claim.ttl.max(life.outlives()));
    let mut pause = claim.ttl / 200;
    loop {
        let left = tokio::select! {
            left = engine.release(claim) => left,
            () = clock.sleep_until(pointless_at) => return false,
        };
        match left {
            Ok(_) => return true,
            Err(error) if !error.is_temporary() => {
                tracing::warn!(lock = %claim.name, claim = %claim.id, %error, "could not leave; the claim will expire");
                return false;
            }
            Err(_) if clock.now() >= pointless_at => return false,
            Err(_) => clock.sleep(pause).await,
        }
        pause = (pause * 2).min(claim.ttl / 5);
    }
}

/// Lets a claim that may not leave yet end by itself. The engine keeps it until then in any case; the renewal only sees to it
/// that it is not kept longer.
async fn stay(engine: &Arc<dyn Engine>, life: &Life, rest: Duration, clock: Clock) {
    let renewal = Renewal::new(Arc::new(life.claim.clone()), rest).outlives(rest);
    if let Ok(Err(error)) = clock.timeout(life.claim.ttl / 4, engine.renew(&[renewal])).await {
        tracing::debug!(lock = %life.claim.name, %error, "could not shorten a hold that stays; it ends within its TTL");
    }
    engine.detached(&life.claim);
}
