//! A server that does not keep up is not sent more because of it.

use crate::common::{keeper_at, soon, until, until_waiting};
use lockkeeper_testkit::Etcd;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// The transactions that the server got, each with the claims that travel together in it.
fn transactions(server: &Etcd) -> u64 {
    let counts = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("grpc_server_msg_received_total{")?;
        let rest = rest.contains(r#"grpc_method="Txn""#).then_some(rest)?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok().map(|count| count as u64)
    };
    server.metrics(0).lines().filter_map(counts).sum()
}

/// Each join that is sent again while nobody replies must be served before the first leave when somebody does: with all of
/// them on their way, a busy server never recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_not_sent_every_join_again() {
    let server = Etcd::start();
    let holder = keeper_at(&server.url(), LONG).await;
    let keeper = keeper_at(&server.url(), Duration::from_secs(5)).await;
    let gate = holder.mutex("silent").lock().await.expect("a grant");
    let (waiters, before) = (400, transactions(&server));
    server.servers()[0].pause();
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let keeper = keeper.clone();
            tokio::spawn(async move { keeper.mutex("silent").lock().await })
        })
        .collect();
    tokio::time::sleep(keeper.ttl() * 2).await;
    server.servers()[0].resume();
    until_waiting(&holder, "silent", waiters).await;
    let sent = transactions(&server) - before;
    println!("{sent} transactions until {waiters} claims wait");
    tasks.iter().for_each(|task| task.abort());
    gate.release().await.expect("a release");
    assert!(sent <= 3 * waiters as u64, "{sent} transactions until {waiters} claims wait");
}

/// Those that were given up stand before all that still wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_give_up_leave_together() {
    let server = Etcd::start();
    let holder = keeper_at(&server.url(), LONG).await;
    let keeper = keeper_at(&server.url(), LONG).await;
    let gate = holder.mutex("given up").lock().await.expect("a grant");
    let waiters = 300;
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let keeper = keeper.clone();
            tokio::spawn(async move { keeper.mutex("given up").lock().await })
        })
        .collect();
    until_waiting(&holder, "given up", waiters).await;
    let before = transactions(&server);
    tasks.iter().for_each(|task| task.abort());
    // A look costs a request as well: it is taken without one.
    let keys = || {
        let metrics = server.metrics(0);
        let count = metrics.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_keys_total "));
        count.and_then(|count| count.parse::<f64>().ok()).expect("the server counts its keys") as usize
    };
    until("all have left", async || keys() <= 1).await;
    let sent = transactions(&server) - before;
    println!("{sent} transactions until {waiters} claims have left");
    gate.release().await.expect("a release");
    let free = soon("the lock is free", holder.mutex("given up").lock()).await.expect("a grant");
    free.release().await.expect("a release");
    assert!(sent <= waiters as u64 / 2, "{sent} transactions for {waiters} departures");
}
