//! Encryption, and etcd's own users.

use crate::authorities::are_trusted;
use crate::common::{address, soon, until_waiting};
use crate::passwords::a_hold_survives_a_new_password;
use lockkeeper::{Connect, Keeper};
use lockkeeper_testkit::{Etcd, Server};
use std::io::Write as _;
use std::process::{Command, Stdio};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_work_over_tls_with_a_private_authority() {
    let server = Etcd::start_tls();
    for url in [
        format!("{}?ca={}", server.url(), server.ca().display()),
        format!("{}?tls&ca={}", server.url().replace("etcds:", "etcd:"), server.ca().display()),
    ] {
        let keeper = lockkeeper::connect(&url).await.expect("a keeper");
        let guard = keeper.mutex("safe").lock().await.expect("a grant");
        let waiting = keeper.clone();
        let wait = tokio::spawn(async move { waiting.mutex("safe").lock().await.expect("a grant") });
        until_waiting(&keeper, "safe", 1).await;
        guard.release().await.expect("a release");
        soon("the wait ends", wait).await.expect("no panic").release().await.expect("a release");
    }
    let other_client = lockkeeper::connect(server.url()).await;
    assert!(other_client.is_err(), "a server of an unknown authority was trusted");
}

/// Lets the user `keeper` touch `lockkeeper/` only, and nobody else anything.
fn guard(access: &[&str]) {
    for arguments in [
        "user add root:secret",
        "user grant-role root root",
        "role add locks",
        "role grant-permission locks readwrite lockkeeper/ lockkeeper0",
        "user add keeper:open-sesame",
        "user grant-role keeper locks",
        "auth enable",
    ] {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(access);
        assert!(
            command.args(arguments.split(' ')).output().expect("etcdctl").status.success(),
            "{arguments}"
        );
    }
}

/// The server's tokens are in its memory only, so the login and the connection must be made anew.
async fn hand_over_across_a_restart(keeper: &Keeper, server: &Server) {
    let guard = keeper.mutex("mine").lock().await.expect("a grant");
    let waiting = keeper.clone();
    let wait = tokio::spawn(async move { waiting.mutex("mine").lock().await.expect("a grant") });
    until_waiting(keeper, "mine", 1).await;
    server.restart();
    guard.release().await.expect("a release");
    soon("the wait ends", wait).await.expect("no panic").release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_gets_in_and_again_after_the_server_forgot_the_login() {
    let server = Etcd::start();
    guard(&["--endpoints", &address(&server)]);
    let at = |user: &str| format!("etcd://{user}@{}", address(&server));
    // A lease is granted to anybody; what is under it is not.
    let nobody = lockkeeper::connect(server.url()).await.expect("a keeper");
    let refused = nobody.mutex("mine").lock().await;
    assert!(refused.as_ref().is_err_and(|error| !error.is_temporary()), "no user: {refused:?}");
    let refused = lockkeeper::connect(at("keeper:wrong")).await;
    assert!(refused.as_ref().is_err_and(|error| !error.is_temporary()), "a wrong password: {refused:?}");

    let keeper = lockkeeper::connect(at("keeper:open-sesame")).await.expect("a keeper");
    hand_over_across_a_restart(&keeper, &server.servers()[0]).await;

    let elsewhere =
        Connect::to(at("keeper:open-sesame")).namespace("other").connect().await.expect("a keeper");
    let refused = elsewhere.mutex("mine").lock().await;
    assert!(refused.as_ref().is_err_and(|error| !error.is_temporary()), "no permission: {refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_gets_in_over_tls() {
    let server = Etcd::start_tls();
    let ca = server.ca().display().to_string();
    guard(&["--endpoints", &server.url().replace("etcds", "https"), "--cacert", &ca]);
    let at = |user: &str| server.url().replace("etcds://", &format!("etcds://{user}@")) + "?ca=" + &ca;
    let refused = lockkeeper::connect(at("keeper:wrong")).await;
    assert!(refused.as_ref().is_err_and(|error| !error.is_temporary()), "a wrong password: {refused:?}");

    let keeper = lockkeeper::connect(at("keeper:open-sesame")).await.expect("a keeper");
    hand_over_across_a_restart(&keeper, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_survives_a_change_of_the_password() {
    let server = Etcd::start();
    let address = address(&server);
    guard(&["--endpoints", &address]);
    let url = format!("etcd://keeper@{address}?style=queue");
    a_hold_survives_a_new_password(&url, true, async |password: &str| {
        let arguments = ["--endpoints", &address, "--user", "root:secret", "user", "passwd", "keeper"];
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(arguments).arg("--interactive=false").stdin(Stdio::piped());
        let mut change = command.stdout(Stdio::null()).spawn().expect("etcdctl");
        change
            .stdin
            .take()
            .expect("a pipe")
            .write_all(format!("{password}\n").as_bytes())
            .expect("a password");
        assert!(change.wait().expect("an end").success());
        // It forgets its logins and its connections.
        server.servers()[0].restart();
    })
    .await;
}

/// The authorities of the system are those of every engine; here the environment names them.
#[test]
fn the_authorities_of_the_system_are_trusted() {
    are_trusted("access::the_authorities_of_the_system_are_trusted", || {
        let server = Etcd::start_tls();
        let urls = vec![server.url()];
        let authority = server.ca();
        (server, authority, urls)
    });
}
