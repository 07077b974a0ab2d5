//! Tokens grow after a restart of all servers: the suite's case, on servers of its own.

use crate::common::{LIMIT, connect, unique};
use lockkeeper_core::{Keeper, Token};
use lockkeeper_testkit::ZooKeeper;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longer than the servers need to start again on a busy machine.
const TTL: Duration = Duration::from_secs(20);

/// Takes the lock and releases it, as soon as the servers let us.
async fn next_token(keeper: &Keeper, name: &str) -> Token {
    let taken = async {
        loop {
            match keeper.mutex(name).lock().await {
                Ok(guard) => {
                    let token = guard.token().unwrap();
                    drop(guard);
                    return token;
                }
                Err(error) => assert!(error.is_temporary() || error.is_lost(), "{error}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT * 2, taken).await.expect("a grant after the restart")
}

async fn grow_after_a_restart(url: &str, style: &str, restart: impl Fn()) {
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}style={style}");
    let keeper = connect(&url, TTL).await.unwrap();
    let name = unique("restarted");
    let token = next_token(&keeper, &name).await;
    restart();
    // Of a keeper that was there before, and of a new one.
    let again = next_token(&keeper, &name).await;
    assert!(again > token);
    assert!(next_token(&connect(&url, TTL).await.unwrap(), &name).await > again);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_after_a_restart() {
    let server = ZooKeeper::start();
    for style in ["queue", "plain"] {
        grow_after_a_restart(&server.url(), style, || server.servers()[0].restart()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_after_a_restart_with_tls() {
    let server = ZooKeeper::start_tls();
    for style in ["queue", "plain"] {
        grow_after_a_restart(&server.tls_url(), style, || server.restart()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_after_a_restart_of_the_ensemble() {
    let ensemble = ZooKeeper::ensemble(3);
    for style in ["queue", "plain"] {
        let restart = || ensemble.servers().iter().for_each(|server| server.restart());
        grow_after_a_restart(&ensemble.url(), style, restart).await;
    }
}
