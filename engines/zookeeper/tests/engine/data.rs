//! A node that exists already at a lock's path stays as it is: its data, its version, its kind.

use crate::common::{LIMIT, keeper_with, server, unique};
use crate::foreign::Foreign;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A client that has a node with data at the path.
async fn node_at(path: &str) -> Foreign {
    let servers = server().url().trim_start_matches("zookeeper://").to_owned();
    let mut client = Foreign::kazoo(&servers, path, "lock", &[]);
    assert_eq!(client.request("write settings-of-orders").await, "written");
    client
}

#[tokio::test]
async fn taking_a_lock_leaves_the_data_of_a_node_at_its_path() {
    for query in ["", "?style=plain"] {
        let (keeper, other, name) = (keeper_with(query).await, keeper_with(query).await, unique("data"));
        let mut client = node_at(&format!("/{name}")).await;
        for _ in 0..2 {
            let guard = keeper.mutex(&name).lock().await.unwrap();
            let waiting = tokio::spawn({
                let mutex = other.mutex(&name);
                async move { mutex.lock().await }
            });
            guard.release().await.unwrap();
            timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(client.request("read").await, "settings-of-orders version 0", "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_sent_together_leave_the_data_of_the_nodes_at_their_paths() {
    let (keeper, name) = (keeper_with("").await, unique("together"));
    let mut client = node_at(&format!("/{name}")).await;
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        // One of them on the node that has data, the others below it.
        let name = if number == 0 { name.clone() } else { format!("{name}/{number}") };
        let mutex = keeper.mutex(name);
        tasks.spawn(async move {
            let mut last = None;
            for _ in 0..10 {
                let guard = mutex.lock().await.unwrap();
                let token = guard.token().unwrap();
                assert!(last < Some(token), "tokens grow");
                last = Some(token);
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = timeout(LIMIT * 2, tasks.join_next()).await.unwrap() {
        done.unwrap();
    }
    assert_eq!(client.request("read").await, "settings-of-orders version 0");
}
