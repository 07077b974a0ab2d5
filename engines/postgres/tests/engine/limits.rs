//! A server whose answers do not come any more is given up in time, in every style, and used again when they do.

use lockkeeper_testkit::{Postgres, Proxy};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_request_without_an_answer_ends_in_time() {
    let server = Postgres::start();
    let styles = lockkeeper_postgres::STYLES.iter().map(|style| ends_in_time(&server, style.style));
    futures_util::future::join_all(styles).await;
}

async fn ends_in_time(server: &Postgres, style: &str) {
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())));
    let port = proxy.addr().port().to_string();
    let url = server.url().replace(&server.port().to_string(), &port);
    let keeper = lockkeeper::connect(format!("{url}?style={style}&ttl=1s")).await.expect("a keeper");
    let name = format!("limits/{style}");
    keeper.mutex(&name).lock().await.expect("a grant").release().await.expect("a release");
    proxy.cut_replies();
    let tried = tokio::time::timeout(LONG, keeper.mutex(&name).try_lock()).await;
    let error = tried.unwrap_or_else(|_| panic!("{style}: no end")).expect_err("nothing can be known");
    assert!(error.is_temporary(), "{style}: {error}");
    proxy.heal();
    // The attempt that was not heard of may have counted: then it is gone with its TTL, or its connection.
    let granted = tokio::time::timeout(LONG, keeper.mutex(&name).lock()).await;
    granted
        .unwrap_or_else(|_| panic!("{style}: no grant"))
        .expect("a grant")
        .release()
        .await
        .expect("a release");
}
