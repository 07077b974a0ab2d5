//! Candidates, and those who only want to know who leads.

use crate::bench::{Bench, soon, soon_held};
use lockkeeper::{DEFAULT_TTL, Leaders};
use std::time::Duration;

/// The next leader's text and token; nobody in between is passed over.
async fn next_leader(leaders: &mut Leaders) -> (String, Option<u64>) {
    loop {
        if let Some(leader) = soon("a change", leaders.changed()).await.expect("a look") {
            return (leader.holder.text, leader.token.map(|token| token.0));
        }
    }
}

pub(super) async fn an_observer_sees_every_leader_and_does_not_queue(bench: Bench) {
    let candidate = async |holder| {
        bench.connect(DEFAULT_TTL).holder(holder).connect().await.expect("a keeper").election("lead")
    };
    let (one, two) = (candidate("one").await, candidate("two").await);
    let observer = bench.keeper().await;
    let mut leaders = observer.election("lead").observe();
    assert!(soon("a look", leaders.changed()).await.expect("a look").is_none(), "nobody yet");
    let first = soon_held(one.campaign()).await;
    assert!(two.try_campaign().await.expect("an answer").is_none());
    assert!(bench.answer(async || two.campaign_within(Duration::from_millis(50)).await).await.is_none());
    let token = first.token().expect("a token").0;
    assert_eq!(next_leader(&mut leaders).await, ("one".to_owned(), Some(token)));
    let lock = observer.look("lead").await.expect("a look").expect("in use");
    assert_eq!((lock.name.as_str(), lock.claims.len()), ("lead", 1), "only the leader: {lock:?}");
    let successor = tokio::spawn(async move { soon_held(two.campaign()).await });
    first.release().await.expect("a release");
    let second = successor.await.expect("the second candidate");
    let token = second.token().expect("a token").0;
    assert_eq!(next_leader(&mut leaders).await, ("two".to_owned(), Some(token)));
    second.release().await.expect("a release");
    assert!(soon("a change", leaders.changed()).await.expect("a look").is_none(), "nobody any more");
    bench.until_idle(&observer, "lead").await;
    assert!(observer.look("lead").await.expect("a look").is_none());
}
