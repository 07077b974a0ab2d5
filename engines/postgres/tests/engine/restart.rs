//! Tokens grow across a restart of the server, in every style.

use lockkeeper_testkit::Postgres;

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_after_a_restart() {
    let server = Postgres::start();
    for style in lockkeeper_postgres::STYLES {
        let url = format!("{}?style={}", server.url(), style.style);
        let keeper = lockkeeper::connect(&url).await.expect("a keeper");
        let before = keeper.mutex("restarted").lock().await.expect("a grant").token().expect("a token");
        keeper.close().await;
        server.restart();
        let keeper = lockkeeper::connect(&url).await.expect("a keeper");
        let after = keeper.mutex("restarted").lock().await.expect("a grant").token().expect("a token");
        assert!(after > before, "{}: {after} after {before}", style.style);
    }
}
