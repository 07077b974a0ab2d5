//! The one watch stream of a keeper: opened when there is something to watch, and again when it breaks.

use crate::client::Client;
use crate::watches::Watches;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A pause before a broken stream is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// How often idle watches are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// Serves the watches for ever; runs in the house.
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
        tokio::time::sleep(PAUSE).await;
    }
}

/// Serves until the stream breaks, nothing is left to watch, or requests go to another server.
async fn serve(
    client: &Client,
    watches: &Watches,
    requests: mpsc::UnboundedSender<crate::generated::WatchRequest>,
    receiver: mpsc::UnboundedReceiver<crate::generated::WatchRequest>,
) {
    let mut moves = client.moves();
    let mut opened = match client.watch(receiver).await {
        Ok(opened) => opened,
        Err(error) => return tracing::debug!(%error, "etcd: could not open the watch stream"),
    };
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            answer = opened.answers.message() => match answer {
                Ok(Some(response)) => {
                    if !watches.receive(response) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "etcd: the watch stream broke"),
            },
            () = watches.outgoing() => {}
            _ = sweep.tick() => {
                if !watches.sweep() {
                    return;
                }
            }
            // The server is being avoided: what it does not send must not be missed.
            _ = moves.changed() => return,
        }
        watches.take_outbox().into_iter().for_each(|request| drop(requests.send(request)));
    }
}
