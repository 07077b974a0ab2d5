//! Wakes waiters: the table of what is watched for whom, and the one watch stream of a keeper that feeds it.
//!
//! A watch covers all claims of one keeper on one lock and outlives the wait it was made for by a while. So in a
//! queue of clients that come back, a hand-over makes no new watch: everybody's predecessor is the same keeper
//! as last time.

use crate::generated::event::EventType;
use crate::generated::watch_request::RequestUnion;
use crate::generated::{Event, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::keys::{self, Key, Span};
use crate::requests::{Client, Messages};
use lockkeeper_core::engine::Clock;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// How long a watch outlives its last waiter.
const IDLE: Duration = Duration::from_secs(10);

/// How many departures each watch remembers, for waiters whose look is older than they are.
const REMEMBERED: usize = 256;

/// A pause before a broken stream is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// How often idle watches are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// The watches of one keeper.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    /// Notified when there is something to send.
    outgoing: Notify,
}

#[derive(Debug, Default)]
struct Table {
    watches: HashMap<i64, Watch>,
    ids: HashMap<Span, i64>,
    last_id: i64,
    /// Requests for the open stream. A new stream begins with everything in the table instead.
    outbox: Vec<WatchRequest>,
}

#[derive(Debug)]
struct Watch {
    span: Span,
    /// Everything before this revision has been seen.
    next_revision: i64,
    /// The latest departures, oldest first; complete from `remembers_from` on.
    departed: VecDeque<(i64, Key)>,
    remembers_from: i64,
    waiting: HashMap<Key, Vec<Arc<Wake>>>,
    idle_since: Option<Instant>,
}

/// Woken once, when it is worth looking at the queue again.
#[derive(Debug, Default)]
struct Wake {
    is_woken: AtomicBool,
    notify: Notify,
}

impl Wake {
    fn wake(&self) {
        self.is_woken.store(true, SeqCst);
        self.notify.notify_one();
    }
}

/// One waiter's interest in a few claims; dropping it ends the interest.
#[derive(Debug)]
pub(crate) struct Watching {
    watches: Arc<Watches>,
    keys: Vec<(i64, Key)>,
    wake: Arc<Wake>,
}

impl Watching {
    /// Resolves when one of the claims has left or changed, or when that may have been missed.
    pub(crate) async fn news(&self) {
        while !self.wake.is_woken.load(SeqCst) {
            self.wake.notify.notified().await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut table = self.watches.table();
        for (id, key) in &self.keys {
            let Some(watch) = table.watches.get_mut(id) else { continue };
            if let Some(wakes) = watch.waiting.get_mut(key) {
                wakes.retain(|wake| !Arc::ptr_eq(wake, &self.wake));
                if wakes.is_empty() {
                    watch.waiting.remove(key);
                }
            }
            if watch.waiting.is_empty() {
                watch.idle_since.get_or_insert_with(Instant::now);
            }
        }
    }
}

impl Watches {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches these claims for departures and changes after the revision at which they were looked at.
    pub(crate) fn watch<'a>(
        self: &Arc<Self>,
        keys: impl IntoIterator<Item = &'a Key>,
        looked_at: i64,
    ) -> Watching {
        let wake = Arc::new(Wake::default());
        let mut table = self.table();
        let keys: Vec<(i64, Key)> =
            keys.into_iter().map(|key| (table.enter(key, looked_at, &wake), key.clone())).collect();
        let anything_to_send = !table.outbox.is_empty();
        drop(table);
        if anything_to_send {
            self.outgoing.notify_one();
        }
        Watching { watches: Arc::clone(self), keys, wake }
    }

    /// Resolves when there may be something to send.
    pub(crate) async fn outgoing(&self) {
        self.outgoing.notified().await;
    }

    /// What to send on the open stream.
    pub(crate) fn take_outbox(&self) -> Vec<WatchRequest> {
        std::mem::take(&mut self.table().outbox)
    }

    /// What to send on a new stream: every watch, from where the last stream ended.
    pub(crate) fn everything(&self) -> Vec<WatchRequest> {
        let mut table = self.table();
        table.outbox.clear();
        table.watches.iter().map(|(id, watch)| watch.request(*id)).collect()
    }

    /// Ends watches that were not needed for a while; says whether any is left.
    pub(crate) fn sweep(&self) -> bool {
        let mut table = self.table();
        let now = Instant::now();
        let idle = |watch: &Watch| watch.idle_since.is_some_and(|since| now.duration_since(since) >= IDLE);
        let old: Vec<i64> =
            table.watches.iter().filter(|(_, watch)| idle(watch)).map(|(id, _)| *id).collect();
        for id in old {
            table.remove(id);
            let cancel = RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id });
            table.outbox.push(WatchRequest { request_union: Some(cancel) });
        }
        !table.watches.is_empty()
    }

    /// Takes in what the server sent; `false` if the stream is of no more use.
    pub(crate) fn receive(&self, response: WatchResponse) -> bool {
        let mut table = self.table();
        if response.canceled {
            // Compaction has removed what we did not see yet (or access was refused): all waiters must look.
            let is_refusal = response.watch_id < 0;
            match table.remove(response.watch_id) {
                Some(watch) => watch.wake_all(),
                // The reply to our own request to end it.
                None if !is_refusal => return true,
                None => {}
            }
            if response.compact_revision == 0 {
                tracing::warn!(reason = response.cancel_reason, "etcd: the server ended a watch");
            }
            return response.compact_revision > 0;
        }
        let Some(watch) = table.watches.get_mut(&response.watch_id) else { return true };
        match response.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision)).max() {
            Some(latest) => watch.next_revision = watch.next_revision.max(latest + 1),
            None if response.created => {}
            // A sign of progress: nothing has happened up to this revision.
            None => {
                let now = response.header.map_or(0, |header| header.revision);
                watch.next_revision = watch.next_revision.max(now + 1);
            }
        }
        for event in response.events {
            watch.take(event);
        }
        true
    }
}

impl Table {
    /// Wakes when the claim leaves or changes after the revision; at once if it may have done so already.
    fn enter(&mut self, key: &Key, looked_at: i64, wake: &Arc<Wake>) -> i64 {
        let span = keys::watched(key);
        let id = match self.ids.get(&span) {
            Some(id) => *id,
            None => self.add(span, looked_at + 1),
        };
        if let Some(watch) = self.watches.get_mut(&id) {
            let known_gone =
                watch.departed.iter().any(|(revision, gone)| *revision > looked_at && gone == key);
            if known_gone || watch.remembers_from > looked_at + 1 {
                wake.wake();
            }
            watch.idle_since = None;
            watch.waiting.entry(key.clone()).or_default().push(Arc::clone(wake));
        }
        id
    }

    fn add(&mut self, span: Span, from_revision: i64) -> i64 {
        self.last_id += 1;
        let watch = Watch {
            span: span.clone(),
            next_revision: from_revision,
            departed: VecDeque::new(),
            remembers_from: from_revision,
            waiting: HashMap::new(),
            idle_since: None,
        };
        self.outbox.push(watch.request(self.last_id));
        self.watches.insert(self.last_id, watch);
        self.ids.insert(span, self.last_id);
        self.last_id
    }

    fn remove(&mut self, id: i64) -> Option<Watch> {
        let watch = self.watches.remove(&id)?;
        self.ids.remove(&watch.span);
        Some(watch)
    }
}

impl Watch {
    fn request(&self, id: i64) -> WatchRequest {
        let create = WatchCreateRequest {
            key: self.span.start.clone(),
            range_end: self.span.end.clone(),
            start_revision: self.next_revision,
            progress_notify: true,
            watch_id: id,
        };
        WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
    }

    fn take(&mut self, event: Event) {
        let is_departure = event.r#type() == EventType::Delete;
        let Some(change) = event.kv else { return };
        if is_departure {
            self.wake(&change.key);
            self.departed.push_back((change.mod_revision, change.key));
            if self.departed.len() > REMEMBERED
                && let Some((revision, _)) = self.departed.pop_front()
            {
                self.remembers_from = revision + 1;
            }
        } else if change.create_revision != change.mod_revision {
            // Not an arrival: a holder has shrunk.
            self.wake(&change.key);
            self.remembers_from = change.mod_revision + 1;
            self.departed.clear();
        }
    }

    fn wake(&self, key: &Key) {
        self.waiting.get(key).into_iter().flatten().for_each(|wake| wake.wake());
    }

    fn wake_all(&self) {
        self.waiting.values().flatten().for_each(|wake| wake.wake());
    }
}

/// Serves the watches: opens the stream when there is something to watch, and again when it breaks. Runs on the background
/// runtime.
pub(crate) async fn run(client: Arc<Client>, watches: Arc<Watches>) {
    loop {
        let begin = watches.everything();
        if begin.is_empty() {
            watches.outgoing().await;
            continue;
        }
        let (requests, receiver) = mpsc::unbounded_channel();
        begin.into_iter().for_each(|request| drop(requests.send(request)));
        serve(&client, &watches, requests, receiver).await;
        Clock::Boot.sleep(PAUSE).await;
    }
}

/// Serves until the stream breaks, its connection is closed, or nothing is left to watch.
async fn serve(
    client: &Client,
    watches: &Watches,
    requests: mpsc::UnboundedSender<WatchRequest>,
    receiver: mpsc::UnboundedReceiver<WatchRequest>,
) {
    let Messages { mut messages, connection } = match client.watch(receiver).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "etcd: could not open the watch stream"),
    };
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            message = messages.message() => match message {
                Ok(Some(response)) => {
                    connection.member().received();
                    if !watches.receive(response) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    connection.member().close();
                    return tracing::debug!(%error, "etcd: the watch stream broke");
                },
            },
            () = watches.outgoing() => {}
            _ = sweep.tick() => {
                if !watches.sweep() {
                    return;
                }
            }
            // Whichever request found out that the connection is dead: a new stream misses nothing.
            () = connection.member().closed() => return,
        }
        watches.take_outbox().into_iter().for_each(|request| drop(requests.send(request)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::{KeyValue, ResponseHeader};

    fn key(claim: &str) -> Key {
        format!("lock//x-keeper-{claim}").into_bytes()
    }

    fn response(id: i64, kind: EventType, claim: &str, created: i64, revision: i64) -> WatchResponse {
        let kv = KeyValue {
            key: key(claim),
            create_revision: created,
            mod_revision: revision,
            ..KeyValue::default()
        };
        let event = Event { r#type: kind.into(), kv: Some(kv) };
        WatchResponse { watch_id: id, events: vec![event], ..WatchResponse::default() }
    }

    fn has_news(watching: &Watching) -> bool {
        watching.wake.is_woken.load(SeqCst)
    }

    #[test]
    fn only_the_waiters_of_the_departed_are_woken() {
        let watches = Arc::new(Watches::default());
        let (a, b) = (watches.watch([&key("a")], 10), watches.watch([&key("b")], 12));
        assert_eq!(watches.take_outbox().len(), 1, "one watch for all claims of a keeper on a lock");
        watches.receive(response(1, EventType::Put, "b", 13, 13));
        assert!(!has_news(&a) && !has_news(&b), "an arrival is no news");
        watches.receive(response(1, EventType::Delete, "a", 0, 14));
        assert!(has_news(&a) && !has_news(&b));
        let late = watches.watch([&key("a")], 13);
        assert!(has_news(&late), "it left between the look and the watch");
        assert!(!has_news(&watches.watch([&key("a")], 14)), "that departure is older than the look");
    }

    #[test]
    fn a_look_older_than_the_watch_is_taken_again() {
        let watches = Arc::new(Watches::default());
        let _first = watches.watch([&key("a")], 10);
        assert!(has_news(&watches.watch([&key("b")], 8)));
    }

    #[test]
    fn a_shrunk_holder_is_news() {
        let watches = Arc::new(Watches::default());
        let waiter = watches.watch([&key("a")], 10);
        watches.receive(response(1, EventType::Put, "a", 9, 11));
        assert!(has_news(&waiter));
        assert!(has_news(&watches.watch([&key("a")], 10)), "it changed after that look");
    }

    #[test]
    fn compaction_wakes_all_waiters_and_the_next_wait_watches_again() {
        let watches = Arc::new(Watches::default());
        let waiter = watches.watch([&key("a")], 10);
        watches.take_outbox();
        let cancelled =
            WatchResponse { watch_id: 1, canceled: true, compact_revision: 99, ..Default::default() };
        assert!(watches.receive(cancelled));
        assert!(has_news(&waiter));
        drop(waiter);
        let _again = watches.watch([&key("a")], 100);
        assert_eq!(watches.take_outbox().len(), 1);
    }

    #[test]
    fn a_new_stream_goes_on_where_the_last_one_ended() {
        let watches = Arc::new(Watches::default());
        let _waiter = watches.watch([&key("a")], 10);
        watches.receive(response(1, EventType::Delete, "b", 0, 40));
        let start = |requests: Vec<WatchRequest>| match &requests[0].request_union {
            Some(RequestUnion::CreateRequest(create)) => create.start_revision,
            other => panic!("{other:?}"),
        };
        assert_eq!(start(watches.everything()), 41);
        let header = Some(ResponseHeader { revision: 70 });
        watches.receive(WatchResponse { watch_id: 1, header, ..Default::default() });
        assert_eq!(start(watches.everything()), 71);
        assert!(watches.take_outbox().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_watch_ends_after_a_while() {
        let watches = Arc::new(Watches::default());
        drop(watches.watch([&key("a")], 10));
        watches.take_outbox();
        assert!(watches.sweep(), "it may be needed again soon");
        tokio::time::advance(IDLE).await;
        assert!(!watches.sweep());
        assert_eq!(watches.take_outbox().len(), 1);
    }
}
