//! Ways in: passwords that change, and Unix sockets.

use crate::common::direct;
use crate::passwords::a_hold_survives_a_new_password;
use lockkeeper_testkit::Redis;

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_survives_a_change_of_the_password() {
    let server = Redis::start();
    let mut admin = direct(server.port()).await;
    for style in lockkeeper_redis::STYLES {
        let url = format!("redis://keeper@127.0.0.1:{}?style={}", server.port(), style.style);
        let admin = admin.clone();
        a_hold_survives_a_new_password(&url, true, async |password: &str| {
            let mut admin = admin.clone();
            let mut change = redis::cmd("ACL");
            change.arg("SETUSER").arg("keeper").arg("on").arg("resetpass").arg(format!(">{password}"));
            change.arg("~*").arg("&*").arg("+@all").exec_async(&mut admin).await.expect("a new password");
            let mut cut = redis::cmd("CLIENT");
            cut.arg("KILL").arg("USER").arg("keeper").exec_async(&mut admin).await.expect("a cut");
        })
        .await;
    }
    redis::cmd("PING").exec_async(&mut admin).await.expect("a reply");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_a_way_in_for_both_styles() {
    let socket = format!("{}/redis-{}.sock", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let server = Redis::start_with(&["--unixsocket", &socket]);
    let mut admin = direct(server.port()).await;
    for style in lockkeeper_redis::STYLES.iter().map(|style| style.style) {
        for url in
            [format!("redis+unix://{socket}?db=3&style={style}"), format!("unix://{socket}?style={style}")]
        {
            let keeper = lockkeeper::connect(&url).await.expect(&url);
            let guard = keeper.mutex("local").lock().await.expect(&url);
            let clients: String =
                redis::cmd("CLIENT").arg("LIST").query_async(&mut admin).await.expect("a list");
            let ours = clients.lines().filter(|line| line.contains(&format!("laddr={socket}"))).count();
            assert!(ours > 0, "{url}: {clients}");
            assert_eq!(clients.lines().count(), ours + 1, "{url}: {clients}");
            guard.release().await.expect(&url);
            keeper.close().await;
        }
    }
    let refused = lockkeeper::connect("unix:///nowhere/redis.sock").await.expect_err("nothing there");
    assert!(refused.to_string().contains("/nowhere/redis.sock"), "{refused}");
}
